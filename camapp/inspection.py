"""inspect_pictures: what the layers of a model give on some pictures, and how the gradients of their scores flow."""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import torch

from camapp.backbones.inputs import like_parameters
from camapp.backbones.load import LoadedModel
from camapp.cam.targets.output import pick_output
from camapp.cam.targets.plan import One, plan_targets
from camapp.cam.watch import Watch
from camapp.errors import DecodeError, UsageError
from camapp.explanation import RANDOM_WEIGHTS
from camapp.hooks.inspector.judging import Thresholds
from camapp.hooks.inspector.once import inspect_once
from camapp.hooks.report.html import html_table
from camapp.hooks.report.json_form import json_number
from camapp.hooks.report.picture import depth_png
from camapp.hooks.report.records import FILES, Snapshot, write_report
from camapp.hooks.report.table import text
from camapp.hooks.selection import Pattern
from camapp.images.decode import Picture
from camapp.images.geometry import Fit, checked_fit
from camapp.loading import load_model
from camapp.sources.batches import load_batches
from camapp.sources.pictures import Source, check_count, find_pictures
from camapp.version import versions

# The score of one class reaches one row of the head: 99 of 100 elements of its gradient are 0 where nothing vanishes.
_THRESHOLDS = Thresholds(vanishing_p99=0.0)

__all__ = ["FILES", "InspectedPicture", "Inspection", "inspect_picture", "inspect_pictures"]


@dataclass(frozen=True)
class InspectedPicture:
    """A picture of an inspection.

    Args:
        name: of its file.
        target: what was scored in it, in words: by default its likeliest class.
        score: the score, before any softmax.
    """

    name: str
    target: str
    score: float


@dataclass(frozen=True, eq=False, repr=False)
class Inspection:
    """What an inspection of a model on pictures found; shows and saves itself.

    Args:
        model: its name.
        weights: where they are from: ``source``, ``sha256``, ``random``.
        found: how many pictures the source has; the first of them were inspected.
        pictures: those inspected.
        failures: names of those that cannot be read, and why.
        snapshot: the figures of all layers and parameters and the verdicts on them. Its loss is the sum of the scores.
        settings: what was asked for.
        versions: what the result depends on.
    """

    model: str
    weights: dict[str, Any]
    found: int
    pictures: tuple[InspectedPicture, ...]
    failures: tuple[tuple[str, str], ...]
    snapshot: Snapshot
    settings: dict[str, Any]
    versions: dict[str, str]

    @property
    def random_weights(self) -> bool:
        """Whether the model ran without weights, so that the predictions mean nothing."""
        return bool(self.weights["random"])

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON; ``Snapshot.from_dict`` reads the snapshot out of it."""
        return {
            "model": self.model,
            "weights": self.weights,
            "found": self.found,
            "pictures": [{**vars(one), "score": json_number(one.score)} for one in self.pictures],
            "failures": [{"picture": name, "reason": reason} for name, reason in self.failures],
            "settings": self.settings,
            "versions": self.versions,
            **self.snapshot.to_dict(),
        }

    def save(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> list[Path]:
        """Write snapshot.json, table.txt and depth.png, all or none.

        Args:
            folder: made if missing.
            overwrite: replace an inspection that is already there.

        Returns:
            The files.

        Raises:
            UsageError: there is one already, or ``folder`` is a file.
        """
        drawn = depth_png(self.snapshot, self._heading())
        return write_report(Path(folder), self.to_dict(), str(self), drawn, overwrite=overwrite)

    def __str__(self) -> str:
        return "\n".join([*self._picture_lines(), "", text(self.snapshot, self._heading())])

    def __repr__(self) -> str:
        warning = f" {RANDOM_WEIGHTS}" if self.random_weights else ""
        count = len(self.pictures)
        return f"Inspection({self.model}{warning}, {count} picture{'s' * (count != 1)}: {self.snapshot!r})"

    def _repr_html_(self) -> str:
        """The pictures, the figures over depth, and the tables."""
        listed = "".join(f"<div>{escape(line)}</div>" for line in self._picture_lines())
        drawn = depth_png(self.snapshot, self._heading())
        picture = "" if drawn is None else base64.b64encode(drawn).decode()
        shown = (
            '<div style="overflow:auto"><img alt="Gradients and activations over depth" style="max-width:none" '
            f'src="data:image/png;base64,{picture}"></div>'
        )
        table = html_table(self.snapshot, self._heading())
        return f'<div style="max-height:8em;overflow:auto">{listed}</div>{shown if picture else ""}{table}'

    def _picture_lines(self) -> list[str]:
        lines = [f"{one.name}: {one.target}, {one.score:.4g}" for one in self.pictures]
        return lines + [f"{name}: cannot be read: {reason}" for name, reason in self.failures]

    def _heading(self) -> str:
        warning = f"{RANDOM_WEIGHTS} " if self.random_weights else ""
        count = len(self.pictures)
        of_all = f" of {self.found}" if self.found > count + len(self.failures) else ""
        score = "score" if count == 1 else "sum of the scores"
        plural = "s" * ((self.found if of_all else count) != 1)
        return f"{warning}{self.model} on {count}{of_all} picture{plural}, {score} {self.snapshot.loss:.4g}"


def inspect_pictures(
    model: str | Path | LoadedModel,
    source: Source,
    *,
    target: One | None = None,
    layers: Pattern | Sequence[Pattern] | None = None,
    batch_size: int = 16,
    fit: Fit | None = None,
    workers: int | None = None,
) -> Inspection:
    """Look at what the layers of a model give on pictures, and at the gradients of the scores on the way back.

    One forward and one backward of the sum of the pictures' scores, with the model in eval mode. Nothing of the model
    changes. To watch training, there is ``camapp.Inspector``.

    Args:
        model: the name of a model card, the path of a card or of a ``.camapp`` file, or a ``LoadedModel``.
        source: a folder, a picture, a pattern, a list of files, or a sequence of these; see ``find_pictures``.
        target: whose score is sent back in every picture: a class by index or name, or a target of
            ``camapp.cam.targets``; each picture's likeliest class by default.
        layers: which layers: patterns of ``camapp.hooks.selection``, modules, or classes of modules such as
            ``nn.Conv2d``; by default all that contain no others.
        batch_size: how many pictures are taken, the first of the source; they run together.
        fit: "crop", "letterbox" or "stretch"; the model card's own way by default.
        workers: threads that decode pictures; as many as there are processors, up to 8, by default.

    Returns:
        What was found. Pictures that cannot be read are in its ``failures``.

    Raises:
        UsageError: no such source, or an option that cannot be meant.
        LayerError, TargetError: a layer or class that does not exist.
        ModelError, WeightsError: a model that cannot be loaded, or that fails on its own input.
        DecodeError: not one of the pictures can be read.

    Example:
        >>> inspection = camapp.inspect_pictures("efficientnet_lite0", "photos")
        >>> print(inspection)
        >>> inspection.save("inspection")
    """
    check_count("batch_size", batch_size, 1)
    how = None if fit is None else checked_fit(fit)
    loaded = load_model(model) if isinstance(model, str | Path) else model
    if not isinstance(loaded, LoadedModel):
        raise UsageError(
            f"model is a {type(model).__name__}; needed is a card's name or a LoadedModel, such as camapp.wrap_model "
            "makes of any nn.Module. To inspect a network as it trains there is camapp.Inspector."
        )
    if target is not None:
        plan_targets(target, 1, loaded.class_index)  # a wrong class is told before a picture is decoded
    pictures = find_pictures(source)
    taken = pictures[:batch_size]
    batch = next(iter(load_batches(loaded, taken, batch_size=batch_size, workers=workers, fit=how)))
    failures = tuple((taken[row].name, reason) for row, reason in batch.failures)
    if not batch.rows:
        name, reason = failures[0]
        raise DecodeError(f"None of {len(taken)} picture(s) can be read. The first, {name}: {reason}")
    names = [taken[row].name for row in batch.rows]
    settings = {"batch_size": batch_size, "fit": how or loaded.card.preprocessing.fit}
    return _inspected(loaded, batch.inputs, names, target, layers, len(pictures), failures, settings)


def inspect_picture(
    model: LoadedModel,
    picture: Picture,
    *,
    target: One | None = None,
    layers: Pattern | Sequence[Pattern] | None = None,
    fit: Fit | None = None,
    deadline: float | None = None,
    cancel: Any | None = None,
) -> Inspection:
    """``inspect_pictures`` of one picture that is decoded already, with a model that is loaded.

    Once ``deadline`` seconds have passed, or ``cancel`` (an event or a function) is set, no forward or backward begins.

    Raises:
        UsageError, LayerError, TargetError, ModelError: as ``inspect_pictures``.
        StoppedError: by ``deadline`` or ``cancel``.
    """
    watch = Watch(None, deadline, cancel)
    if target is not None:
        plan_targets(target, 1, model.class_index)
    inputs, geometry, _ = model.prepare(picture, fit)
    settings = {"batch_size": 1, "fit": geometry.fit}
    return _inspected(model, inputs, [picture.name], target, layers, 1, (), settings, watch)


def _inspected(
    model: LoadedModel,
    inputs: torch.Tensor,
    names: Sequence[str],
    target: One | None,
    layers: Pattern | Sequence[Pattern] | None,
    found: int,
    failures: tuple[tuple[str, str], ...],
    settings: dict[str, Any],
    watch: Watch | None = None,
) -> Inspection:
    """One forward and backward of inputs (B, 3, h, w), the pictures of B names."""
    scoring = _Scoring(model, inputs, target, watch or Watch())
    with model.named_failures():
        snapshot = inspect_once(model.module, scoring, layers=layers, thresholds=_THRESHOLDS)
    return Inspection(
        model=model.name,
        weights={
            "source": model.weights.source,
            "sha256": model.weights.sha256,
            "random": model.weights.random,
        },
        found=found,
        pictures=tuple(
            InspectedPicture(name, label, score)
            for name, label, score in zip(names, scoring.labels, scoring.scores, strict=True)
        ),
        failures=failures,
        snapshot=snapshot,
        settings={
            "target": "each picture's likeliest class" if target is None else scoring.labels[0],
            "layers": "all that contain no others" if layers is None else _listed(layers),
            **settings,
            "input": list(model.card.preprocessing.size),
            "device": str(model.device),
        },
        versions=versions(),
    )


class _Scoring:
    """The sum of the pictures' scores, and, once it was taken, what was scored in each; for a backward to follow."""

    def __init__(self, model: LoadedModel, inputs: torch.Tensor, target: One | None, watch: Watch) -> None:
        self._model = model
        self._watch = watch
        self._inputs = inputs
        self._plan = plan_targets(target, len(inputs), model.class_index)
        self.labels: list[str] = []
        self.scores: list[float] = []

    def __call__(self) -> torch.Tensor:
        self._watch.expect(2)
        inputs = like_parameters(self._inputs, self._model.module, keep_graph=False)
        # a gradient of the input keeps the graph where every parameter is frozen; a model may change its input in place
        output = self._model.module(inputs.detach().requires_grad_().clone())
        picked = pick_output(output, len(inputs))
        aims = self._plan.settle(picked)
        scores = aims.scores(picked)[:, 0]
        self.labels = [
            name if index < 0 else self._model.label(index)
            for index, name in zip(aims.indices[:, 0].tolist(), (names[0] for names in aims.names), strict=True)
        ]
        self.scores = scores.detach().tolist()
        self._watch.step(1)
        return scores.sum()


def _listed(layers: Pattern | Sequence[Pattern]) -> list[str]:
    given = [layers] if isinstance(layers, str | type | torch.nn.Module) else list(layers)
    return [one if isinstance(one, str) else one.__name__ if isinstance(one, type) else repr(one) for one in given]
