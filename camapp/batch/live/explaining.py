"""Pictures explained one by one, each handed over when it is done; what is wrong with one is told of it alone."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, TypeAlias

import torch

from camapp.backbones.load import LoadedModel
from camapp.batch.records import Item
from camapp.batch.sources import Reader, Source, list_items
from camapp.cam.engine import LayerChoice, Method
from camapp.cam.methods import find_method
from camapp.cam.watch import Progress
from camapp.errors import CamappError, StoppedError, TargetError, UsageError
from camapp.explainer import explain
from camapp.explanation import Explanation
from camapp.images.decode import Limits, decode
from camapp.images.geometry import Fit, checked_fit
from camapp.loading import load_model

# One class for all pictures; that of each by the picture's name; None for each picture's likeliest.
Targets: TypeAlias = int | str | Mapping[str, int | str] | None
Status: TypeAlias = Literal["done", "failed", "left"]

STOPPED = "Stopped before it was done."
NO_CLASS = "No class is named for it."
NO_MEMORY = "There is not enough memory for this picture."

_log = logging.getLogger("camapp")


@dataclass(frozen=True, eq=False)
class Outcome:
    """What became of one picture.

    Args:
        item: the picture.
        status: "done"; "failed"; "left" where it was not done, since the batch was stopped or its time was over.
        explanation: of its class; None where there is none.
        reason: why there is none; empty where there is one.
        seconds: from reading it to the map.
    """

    item: Item
    status: Status
    explanation: Explanation | None = None
    reason: str = ""
    seconds: float = 0.0


def explain_each(
    model: str | LoadedModel,
    source: Source | Iterable[Item],
    *,
    method: str | Method = "gradcam",
    layer: LayerChoice = None,
    targets: Targets = None,
    fit: Fit | None = None,
    deadline: float | None = None,
    cancel: Any | None = None,
    progress: Progress | None = None,
) -> Iterator[Outcome]:
    """Explain pictures one by one, and hand over each as soon as it is done.

    For batches that somebody waits for. ``camapp.batch.export_heatmaps`` takes any number of pictures to a folder, runs
    several at once, and goes on where it was ended.

    Args:
        model: the name of a model card, or a ``LoadedModel``.
        source: what ``export_heatmaps`` takes (a folder, files, a .zip, ...), or inputs that are listed already.
        method: a method's name, or a method made for this model.
        layer: the layer, or several; the model card's recommended one by default.
        targets: the class to explain, by index or name; or a dictionary of each picture's own by the picture's name;
            by default each picture's likeliest.
        fit: "crop", "letterbox" or "stretch"; the model card's own way by default.
        deadline: seconds for all of them together; the rest is "left".
        cancel: a ``threading.Event`` or a function; once it is set, the rest is "left".
        progress: called with the forwards done and expected of a picture, by methods that run the model many times.

    Yields:
        One outcome a picture, in the source's order.

    Raises:
        UsageError, LayerError, TargetError, ModelError: what no picture can be explained with.

    Example:
        >>> with ResultsArchive("maps.zip") as archive:
        ...     for outcome in explain_each("efficientnet_lite0", ["cat.jpg", "dog.jpg"]):
        ...         archive.add(outcome)
    """
    loaded = load_model(model) if isinstance(model, str) else model
    explainer = PictureExplainer(loaded, method=method, layer=layer, targets=targets, fit=fit, deadline=deadline)
    return _each(explainer, _items(source), cancel, progress)


def _each(
    explainer: PictureExplainer, items: Iterable[Item], cancel: Any | None, progress: Progress | None
) -> Iterator[Outcome]:
    with explainer:
        for item in items:
            yield explainer.outcome(item, cancel=cancel, progress=progress)


def _items(source: Source | Iterable[Item]) -> Iterable[Item]:
    if isinstance(source, str | os.PathLike):
        return list_items(source)
    listed = list(source)
    items = [one for one in listed if isinstance(one, Item)]
    paths = [one for one in listed if not isinstance(one, Item)]
    return list_items(paths) if paths else items


@dataclass
class PictureExplainer:
    """Explains one picture after the other, each whenever it is asked to; used in one thread at a time.

    Args:
        model: the model.
        method: as of ``explain_each``.
        layer: the same.
        targets: the same.
        fit: the same.
        deadline: seconds from now for all pictures together.
        limits: of each picture; by default those of the environment.

    Raises:
        UsageError, LayerError, TargetError, ModelError: what no picture can be explained with.
    """

    model: LoadedModel
    method: str | Method = "gradcam"
    layer: LayerChoice = None
    targets: Targets = None
    fit: Fit | None = None
    deadline: float | None = None
    limits: Limits = field(default_factory=Limits.from_environment)

    def __post_init__(self) -> None:
        if self.deadline is not None and not self.deadline > 0:
            raise UsageError(f"deadline = {self.deadline!r} is no positive number of seconds.")
        if self.fit is not None:
            checked_fit(self.fit)
        self._engine = self._made()
        shared = None if isinstance(self.targets, Mapping) else self.targets
        self._one = None if shared is None else self.model.class_index(shared)
        self._reader = Reader(self.limits)
        self._ends = None if self.deadline is None else time.monotonic() + self.deadline

    def __enter__(self) -> PictureExplainer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the archives that it has open."""
        self._reader.close()

    def outcome(self, item: Item, *, cancel: Any | None = None, progress: Progress | None = None) -> Outcome:
        """Explain one picture; nothing that is wrong with it is raised.

        Args:
            item: the picture.
            cancel: as of ``explain_each``.
            progress: the same.
        """
        asked = _asked(cancel)
        began = time.perf_counter()
        if asked():
            return Outcome(item, "left", reason=STOPPED)
        if self.over:
            return Outcome(item, "left", reason=self._too_late)
        try:
            explanation = self._explained(item, cancel, progress)
        except StoppedError:
            return Outcome(item, "left", reason=STOPPED if asked() else self._too_late, seconds=_since(began))
        except CamappError as error:
            reason = str(error)
        except (MemoryError, torch.OutOfMemoryError):
            reason = NO_MEMORY
        except Exception as error:
            _log.exception("explaining %r met an unexpected error", item.name)
            reason = f"Something unexpected went wrong with it ({type(error).__name__}); the log says more."
        else:
            return Outcome(item, "done", explanation, seconds=_since(began))
        return Outcome(item, "failed", reason=reason, seconds=_since(began))

    @property
    def title(self) -> str:
        """The method's name for people."""
        return self._engine.title

    @property
    def takes_layer(self) -> bool:
        """Whether the method explains at layers; others look at the whole network."""
        return self._engine.takes_layer

    @property
    def target(self) -> int | None:
        """The class that all pictures are explained for; None where each has its own."""
        return self._one

    @property
    def over(self) -> bool:
        """Whether the time for all pictures together is over."""
        return self._ends is not None and time.monotonic() >= self._ends

    def settings(self) -> dict[str, Any]:
        """What decides on the maps, next to the model: fit for JSON."""
        return {
            "method": self._engine.name,
            "layer": [str(name) for name in self._engine.layers],
            "targets": dict(self.targets) if isinstance(self.targets, Mapping) else self.targets,
            "fit": self.fit,
        }

    def _made(self) -> Method:
        if not isinstance(self.method, Method):
            return find_method(self.method)(self.model, self.layer)
        self.method.check_made_for(self.model)
        if self.layer is not None:
            raise UsageError(f"layer={self.layer!r} comes too late: name it where the {self.method.title} is made.")
        return self.method

    def _explained(self, item: Item, cancel: Any, progress: Progress | None) -> Explanation:
        target = self._target_of(item)
        picture = decode(self._reader.read(item), name=item.name, limits=self.limits)
        left = None if self._ends is None else max(self._ends - time.monotonic(), 1e-3)
        return explain(
            self.model,
            picture,
            targets=target,
            method=self._engine,
            fit=self.fit,
            deadline=left,
            cancel=cancel,
            progress=progress,
        )

    def _target_of(self, item: Item) -> int | str | None:
        """The class; looked up before the picture is read."""
        if not isinstance(self.targets, Mapping):
            return self._one
        if item.name not in self.targets:
            raise TargetError(NO_CLASS)
        return self.model.class_index(self.targets[item.name])

    @property
    def _too_late(self) -> str:
        return f"The {self.deadline:g} s for the whole batch were over before it was done."


def _asked(cancel: Any | None) -> Callable[[], bool]:
    asked = getattr(cancel, "is_set", cancel)
    return (lambda: False) if asked is None else asked


def _since(began: float) -> float:
    return time.perf_counter() - began
