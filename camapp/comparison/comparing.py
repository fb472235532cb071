"""compare_maps: one picture, several methods at several layers, all asked for the same class."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch

from camapp.backbones.inputs import run_channels_last
from camapp.backbones.load import LoadedModel
from camapp.cam.compare import run_together, shares_passes
from camapp.cam.engine import Method
from camapp.cam.methods import find_method
from camapp.cam.result import CamResult, Sign
from camapp.cam.targets import TopClasses
from camapp.cam.targets.plan import One
from camapp.cam.watch import Progress, Watch
from camapp.comparison.comparison import Cell, Comparison
from camapp.errors import CamappError, StoppedError, TargetError, UsageError
from camapp.explainer import (
    Look,
    PictureSource,
    Prepared,
    checked_paintable,
    explanations_of,
    open_picture,
    opened_model,
)
from camapp.explanation import Explanation
from camapp.hooks.as_found import as_found
from camapp.hooks.layers import find_layer
from camapp.images.geometry import Fit

# More do not fit beside each other, and agreement is found between each two of them.
MOST_METHODS, MOST_LAYERS = 6, 3

NO_TIME_LEFT = "not begun: the time was over before its turn. Give more time, or fewer methods."


def compare_maps(
    model: str | LoadedModel,
    picture: PictureSource,
    *,
    methods: Sequence[str],
    layers: str | Sequence[str | None] | None = None,
    targets: One | None = None,
    fit: Fit | None = None,
    sign: Sign = "positive",
    progress: Progress | None = None,
    deadline: float | None = None,
    cancel: Any | None = None,
) -> Comparison:
    """Explain one class of one picture by several methods at several layers.

    Each cell is what ``camapp.explain`` gives for its method and layer. Methods that read the same layers share one
    forward and one backward. A method that refuses a layer or the model says why in its cell, and the others go on; so
    does one that the deadline ended. Methods that run the model many times come last.

    Args:
        model: the name of a model card, or a ``LoadedModel``.
        picture: as for ``camapp.explain``.
        methods: names of methods, up to ``MOST_METHODS``; one that looks at the whole network has one cell, whatever
            the layers.
        layers: names of layers, up to ``MOST_LAYERS``; None among them, or alone, is each method's own choice: the
            recommended layer for most.
        targets: the one class to explain, by index or name, or a target of ``camapp.cam.targets``; by default the
            likeliest class, found once for all cells.
        fit: as for ``camapp.explain``.
        sign: as for ``camapp.explain``.
        progress: called with the runs done and the runs expected so far: one a cell, and those of methods that run the
            model many times.
        deadline: seconds for all cells together.
        cancel: a ``threading.Event`` or a function; stops everything once it is set.

    Returns:
        The cells, row by row: a method's layers beside each other.

    Raises:
        UsageError: a method that does not exist; too many of them, or of layers; only one cell to compare.
        LayerError: a layer that the model does not have.
        TargetError: a class that it does not have, or more than one.
        DecodeError, ModelError, WeightsError: as ``camapp.explain``.
        StoppedError: ``cancel`` was set.

    Example:
        >>> comparison = camapp.compare_maps("efficientnet_lite0", "cat.jpg", methods=["gradcam", "layercam", "fused"])
        >>> comparison.correlation[0, 1]  # Grad-CAM and LayerCAM
        >>> comparison.save("comparison")
    """
    start = time.perf_counter()
    loaded = opened_model(model)
    kinds, columns = _checked_methods(methods), _checked_layers(loaded, layers)
    places = [(kind, layer) for kind in kinds for layer in (columns if kind.takes_layer else (None,))]
    if len(places) < 2:
        raise UsageError("There is one map, and nothing to compare it with. Name two methods, or two layers.")
    look, watch = checked_paintable(sign, "minmax"), Watch(progress, deadline, cancel)
    opened = open_picture(picture)
    prepared = Prepared(opened, loaded.place(opened, fit))
    inputs = loaded.inputs([prepared.placed])
    bench = _Bench(loaded, prepared, inputs, _settled(loaded, inputs, targets), look, watch)
    found = _filled(bench, places, cancel)
    made = [cell.explanation for cell in found.values() if cell.explanation]
    if not made:
        cell = found[places[0]]
        raise UsageError(f"None of the {len(places)} maps can be made. {cell.title}: {cell.reason}")
    return Comparison(
        picture=opened,
        model=loaded.name,
        weights=made[0].weights,
        methods=tuple(kind.name for kind in kinds),
        layers=columns,
        cells=tuple(found[place] for place in places),
        target=made[0].classes[0],
        predictions=made[0].predictions,
        geometry=prepared.placed.geometry,
        notes=tuple(note for note in made[0].notes if all(note in one.notes for one in made)),
        seconds=time.perf_counter() - start,
    )


_Place: TypeAlias = tuple[type[Method], str | None]


@dataclass(frozen=True, eq=False)
class _Bench:
    """What all cells share.

    Args:
        model: the model.
        prepared: the picture.
        inputs: (1, 3, h, w), of the picture.
        target: what is explained.
        look: how maps are made of values.
        watch: counts what runs.
    """

    model: LoadedModel
    prepared: Prepared
    inputs: torch.Tensor
    target: One
    look: Look
    watch: Watch

    def explain(self, places: Sequence[_Place]) -> list[Explanation]:
        """The explanations of cells, in one go; each bears an equal part of the time."""
        start = time.perf_counter()
        engines = [kind(self.model, layer) for kind, layer in places]

        def run(batch: torch.Tensor) -> list[CamResult]:
            return run_together(engines, batch, [[self.target]], self.watch, **self.look)

        with self.model.named_failures():
            results = run_channels_last(engines[0].model, run, self.inputs)
        seconds = (time.perf_counter() - start) / len(results)
        return [explanations_of(self.model, result, [self.prepared], self.look, seconds)[0] for result in results]


def _filled(bench: _Bench, places: Sequence[_Place], cancel: Any | None) -> dict[_Place, Cell]:
    """All cells, in the order of ``places``; once the deadline has passed, the rest say so."""
    found: dict[_Place, Cell] = {}
    late: str | None = None
    bench.watch.expect(len(places))
    for group in _groups(places):
        try:
            if late is None:
                _fill(found, bench, group)
        except StoppedError as error:
            if _asked(cancel):
                raise
            late = str(error)
            found.update({place: _cell(place, reason=late) for place in group if place not in found})
        found.update({place: _cell(place, reason=NO_TIME_LEFT) for place in group if place not in found})
    return {place: found[place] for place in places}


def _fill(found: dict[_Place, Cell], bench: _Bench, group: Sequence[_Place]) -> None:
    """Find the cells of a group; where one of them refuses, each by itself. What is made before a stop is kept.

    Raises:
        StoppedError: as the bench's watch says.
    """
    try:
        made = bench.explain(group)
    except StoppedError:
        raise
    except CamappError as error:
        if len(group) > 1:
            for place in group:
                _fill(found, bench, [place])
            return
        found[group[0]] = _cell(group[0], reason=str(error))
    else:
        found.update({place: _cell(place, one) for place, one in zip(group, made, strict=True)})
    bench.watch.step(len(group))


def _groups(places: Sequence[_Place]) -> Iterator[list[_Place]]:
    """Cells that can share a pass together, the others alone, those that run the model many times at the end."""
    shared: dict[str | None, list[_Place]] = {}
    for kind, layer in places:
        if shares_passes(kind):
            shared.setdefault(layer, []).append((kind, layer))
    yield from shared.values()
    alone = [place for place in places if not shares_passes(place[0])]
    yield from ([place] for place in sorted(alone, key=lambda place: place[0].runs_many))


def _cell(place: _Place, explanation: Explanation | None = None, reason: str | None = None) -> Cell:
    kind, layer = place
    return Cell(kind.name, layer, explanation, reason)


def _asked(cancel: Any | None) -> bool:
    """Whether the caller, and not the deadline, ended it."""
    asked = getattr(cancel, "is_set", cancel)
    return bool(asked is not None and asked())


def _settled(model: LoadedModel, inputs: torch.Tensor, target: Any) -> Any:
    """What all cells explain: a class's index, or a target as it is given.

    Raises:
        TargetError: more than one.
    """
    if isinstance(target, list | tuple | set | torch.Tensor | np.ndarray | TopClasses):
        raise TargetError(
            f"targets={target!r}: maps are compared for one class. Give one index or name, or leave it out for the "
            "likeliest class."
        )
    if target is None:
        with model.named_failures(), as_found(model.module), torch.no_grad():
            return int(run_channels_last(model.module, model.module, inputs).argmax())
    return model.class_index(target) if isinstance(target, str | int) else target


def _checked_methods(given: Sequence[str]) -> list[type[Method]]:
    names = [given] if isinstance(given, str) else list(given)
    kinds = list(dict.fromkeys(find_method(name) for name in names))
    if not kinds:
        raise UsageError("methods is empty. Name two or more, such as gradcam and layercam.")
    if len(kinds) > MOST_METHODS:
        raise UsageError(f"{len(kinds)} methods are too many to compare at once. Choose up to {MOST_METHODS}.")
    return kinds


def _checked_layers(model: LoadedModel, given: str | Sequence[str | None] | None) -> tuple[str | None, ...]:
    layers = (given,) if given is None or isinstance(given, str) else tuple(dict.fromkeys(given)) or (None,)
    if len(layers) > MOST_LAYERS:
        raise UsageError(f"{len(layers)} layers are too many to compare at once. Choose up to {MOST_LAYERS}.")
    for layer in layers:
        if layer is not None:
            find_layer(model.module, layer)
    return layers
