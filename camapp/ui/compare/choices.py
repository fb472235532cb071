"""The one way from choices that nobody vouches for to a comparison, for the page and its API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from camapp.backbones.layers import LayerInfo
from camapp.cam.methods import find_method
from camapp.comparison import MOST_LAYERS, MOST_METHODS, Comparison, compare_maps
from camapp.errors import CamappError, UsageError
from camapp.patches import PatchSimilarity, patch_similarity
from camapp.ui.frame.calls import as_downloaded
from camapp.ui.frame.choices import check_layer, needed_picture, own_layers, recommended_layer
from camapp.ui.frame.classes import TOP_PREDICTION, is_top
from camapp.ui.frame.models import ModelPool
from camapp.ui.frame.scheduler import Task
from camapp.ui.frame.words import shape_text

# Seconds for all maps of a comparison together, so that others get their turn.
DEADLINE = 180.0


@dataclass(frozen=True)
class CompareChoices:
    """What is to be compared; as a visitor sent it.

    Args:
        picture: the path of an upload, or None.
        model: one of the models on offer.
        layers: some of its layers; the recommended one, or none, is each method's own choice.
        methods: some of ``METHODS``.
        target: class index or name; -1 or empty for the top prediction.
        exact: whether the recommended layer means itself; see ``own_layers``.
    """

    picture: str | None
    model: str
    layers: Sequence[str]
    methods: Sequence[str]
    target: int | str = TOP_PREDICTION
    exact: bool = False

    def check(self) -> None:
        """Refuse what can be seen to be wrong without the model.

        Raises:
            UsageError: no picture, no such method, too many of anything.
        """
        needed_picture(self.picture)
        if len(self.methods) > MOST_METHODS:
            raise UsageError(
                f"{len(self.methods)} methods are too many to compare at once. Choose up to {MOST_METHODS}."
            )
        if len(self.layers) > MOST_LAYERS:
            raise UsageError(f"{len(self.layers)} layers are too many to compare at once. Choose up to {MOST_LAYERS}.")
        for name in self.methods:
            find_method(name)

    def settled(self, pool: ModelPool) -> bool:
        """Whether layers and class are the model's own, and not still those of the model chosen before."""
        try:
            known = {layer.name for layer in pool.layers(self.model)}
            if not is_top(self.target):
                pool.load(self.model).class_index(self.target)
        except CamappError:
            return False
        return set(self.layers) <= known

    @property
    def slow(self) -> bool:
        """Whether a method among them runs the model many times."""
        return any(find_method(name).runs_many for name in self.methods)


@dataclass(frozen=True)
class Compared:
    """A comparison with what made it.

    Args:
        comparison: the result.
        layers: all layers of its model with a map.
        choices: what was asked for.
    """

    comparison: Comparison
    layers: list[LayerInfo]
    choices: CompareChoices

    @property
    def columns(self) -> list[tuple[str, str]]:
        """Name and shape of each layer that is a column, the recommended one by its name."""
        known = {layer.name: layer for layer in self.layers}
        best = recommended_layer(self.layers)
        names = [best if layer is None else layer for layer in self.comparison.layers]
        return [(name, _detail(known.get(name))) for name in names]


def compare_choices(pool: ModelPool, choices: CompareChoices, task: Task[Any]) -> Compared:
    """Compare what a visitor chose.

    Args:
        pool: the models on offer.
        choices: nobody vouches for them.
        task: is told how far it is, and may stop it.

    Raises:
        CamappError: what is wrong with any of the choices.
    """
    choices.check()
    model, layers = as_downloaded(pool.load(choices.model, slow=choices.slow)), pool.layers(choices.model)
    for name in choices.layers:
        check_layer(name, layers, choices.model)
    comparison = compare_maps(
        model,
        choices.picture or "",
        methods=list(choices.methods),
        layers=[None if own_layers([name], layers, exact=choices.exact) else name for name in choices.layers] or None,
        targets=None if is_top(choices.target) else model.class_index(choices.target),
        progress=task.progress,
        deadline=DEADLINE,
        cancel=task.cancelled,
    )
    return Compared(comparison, layers, choices)


def compare_patches(
    pool: ModelPool, picture: str | None, second: str | None, model: str, layer: str
) -> PatchSimilarity:
    """The patches of one or two pictures that a visitor chose.

    Args:
        pool: the models on offer.
        picture: the path of an upload, or None.
        second: another one, or None.
        model: one of the models on offer.
        layer: one of its layers; "" for one of finer places than the last map.

    Raises:
        CamappError: what is wrong with any of them.
    """
    first, loaded = needed_picture(picture), as_downloaded(pool.load(model))
    if layer:
        check_layer(layer, pool.layers(model), model)
    return patch_similarity(loaded, first, second, layer or None)


def _detail(layer: LayerInfo | None) -> str:
    if layer is None:
        return ""
    shape = shape_text(layer.shape)
    return f"{shape} · recommended" if layer.recommended else shape
