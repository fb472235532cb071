"""What to keep in mind before believing a heatmap: found by its figures, said in a sentence each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from camapp.cam.methods import METHODS

# A softmax this close to 1 hardly moves with the evidence; below the other, the model does not see the class.
SATURATED, UNSEEN = 0.999, 0.01

# Fewer places than this a side show hardly more than which half of the picture.
FEW_PLACES = 5

# A picture smaller than this a side is mostly interpolation by the time that a model sees it.
SMALL_SIDE = 32


class Scored(Protocol):
    """A class as a model scores it."""

    @property
    def label(self) -> str:
        """Its name."""
        ...

    @property
    def probability(self) -> float:
        """Its probability; NaN where it has none."""
        ...


def cautions(
    method: str, layer: str, classes: Sequence[Scored], grid: Sequence[int], size: tuple[int, int]
) -> tuple[str, ...]:
    """What to keep in mind about maps, most important first; empty where nothing stands out.

    Told are maps that ignore the class, classes that the model does not see, a saturated softmax, layers of very few
    places, and tiny pictures. Blank maps have their own reasons.

    Args:
        method: the method's name.
        layer: the layer's name; "" for a method that looks at no layer.
        classes: those explained.
        grid: rows and columns of the layer's map.
        size: width and height of the picture.
    """
    return tuple(_found(method, layer, classes, grid, size))


def _little(probability: float) -> str:
    return f"only {probability:.2%}" if probability >= 5e-5 else "less than 0.01%"


def _found(
    method: str, layer: str, classes: Sequence[Scored], grid: Sequence[int], size: tuple[int, int]
) -> Iterator[str]:
    kind = METHODS.get(method)
    if kind is not None and not kind.class_specific:
        yield f"{kind.title} ignores the class: every class of this picture has the same map."
    for one in classes:
        if one.probability < UNSEEN:
            yield (
                f"The model gives {one.label} {_little(one.probability)}: the map shows where the little evidence "
                "for it lies, stretched to the full range of colours."
            )
        elif one.probability > SATURATED:
            yield (
                f"The softmax of {one.label} is saturated (over {SATURATED:.1%}): it hardly moves when evidence goes. "
                "The map explains the logit, which does."
            )
    if layer and min(grid) < FEW_PLACES:
        yield (
            f"The layer has only {' x '.join(map(str, grid))} places: the map is smooth because it is coarse. An "
            "earlier layer shows finer detail."
        )
    if min(size) < SMALL_SIDE:
        yield f"The picture has only {size[0]} x {size[1]} pixels: the model sees little but their enlargement."
