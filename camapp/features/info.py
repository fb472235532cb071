"""FeatureInfo: what a feature is: the layer it comes from, how that lies in the picture, and how it was pooled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True)
class FeatureInfo:
    """Where the features of one name come from.

    Args:
        layer: the place in the network, such as ``"layer4"``, ``"layer1.0.relu@0"`` or ``"classifier:input"``.
        kind: the class of its module.
        layout: the axes of what it gave: ``"NC"``, ``"NCL"``, ``"NCHW"``, ``"NCDHW"``, ``"NHWC"``, ``"NDHWC"``, tokens
            ``"NLC"``, or ``"other"`` where they are not places of the picture.
        shape: of what it gave for one picture, without the batch axis.
        grid: extent of its map, such as rows and columns; None where its output has no place in the picture.
        stride: pixels of the input from one place of the grid to the next, for each axis; None without a grid.
        prefix: tokens in front of the patch tokens.
        dtype: of what it gave, such as ``"float32"``.
        pool: how it was pooled, such as ``"avg"`` or ``"gem(3)"``.
        size: the shape of the feature of one picture.
    """

    layer: str
    kind: str
    layout: str
    shape: tuple[int, ...]
    grid: tuple[int, ...] | None
    stride: tuple[float, ...] | None
    prefix: int
    dtype: str
    pool: str
    size: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """The facts, ready for JSON."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> FeatureInfo:
        """The inverse of ``to_dict``; facts of later versions that this one does not know are left out.

        Raises:
            KeyError: a fact is missing.
        """
        given: dict[str, Any] = {field.name: facts[field.name] for field in fields(cls)}
        values: dict[str, Any] = {name: tuple(one) if isinstance(one, list) else one for name, one in given.items()}
        return cls(**values)
