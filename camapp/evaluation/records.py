"""What a run measured, as data: values, their summary, curves, examples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

# The metrics whose curves are drawn, a panel each.
DRAWN = ("insertion", "deletion", "road")


@dataclass(frozen=True)
class Value:
    """One metric of one map.

    Args:
        picture: the picture's name.
        method: the method's name, or the baseline's.
        layer: the layer explained; empty for a baseline.
        metric: the metric's name.
        value: NaN where the metric is undefined.
        target: the class explained.
        label: its name.
        reason: why the map is blank or was refused, or None.
        state: "measured"; "refused" by the method, which gave no map; or "not measured" where the metric was refused.
    """

    picture: str
    method: str
    layer: str
    metric: str
    value: float
    target: int
    label: str
    reason: str | None
    state: str = "measured"


@dataclass(frozen=True)
class SummaryRow:
    """One metric of a method at a layer, over all pictures.

    Args:
        kind: "method" or "baseline".
        method: its name.
        layer: the layer explained; empty for a baseline.
        metric: the metric's name.
        title: what a table calls it.
        scale: its unit, "%" or nothing.
        direction: "higher" or "lower" is better.
        value: over all pictures; NaN where undefined.
        standard_error: of the mean over pictures; NaN where the value is no mean, or that of one picture.
        pictures: how many have a value.
        blanks: how many maps were blank.
        refused: how many pictures the method refused.
        seconds_per_picture: time to make a map by this method alone, of the first batch; NaN for a baseline.
    """

    kind: str
    method: str
    layer: str
    metric: str
    title: str
    scale: str
    direction: str
    value: float
    standard_error: float
    pictures: int
    blanks: int
    refused: int
    seconds_per_picture: float


@dataclass(frozen=True)
class Curve:
    """A metric's curve, the mean over pictures."""

    kind: str
    method: str
    layer: str
    metric: str
    title: str
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True)
class Failure:
    """A picture that was skipped, and why."""

    picture: str
    reason: str


@dataclass(frozen=True, eq=False)
class Example:
    """A picture as the model sees it, with its maps.

    Args:
        picture: its name.
        label: the class explained.
        rgb: (h, w, 3) uint8.
        boxes: the object's edges in its pixels.
        maps: (h, w) in [0, 1], by method and layer.
    """

    picture: str
    label: str
    rgb: np.ndarray
    boxes: list[list[float]]
    maps: dict[tuple[str, str], np.ndarray]


@dataclass(frozen=True, eq=False)
class Measured:
    """What a run measured.

    Args:
        model: the model's name.
        weights: where its weights come from, their SHA-256, and whether they are random.
        settings: what was asked for.
        versions: the versions the values depend on.
        pictures: the names of the pictures measured.
        failures: the pictures skipped, and why.
        values: one a picture, method, layer and metric.
        summary: one a method, layer and metric; the baselines last.
        curves: of the metrics that have one.
        metrics: what each metric measures, by its name.
        examples: the first pictures with their maps.
        notes: what was done, and what to know about the values.
    """

    model: str
    weights: dict[str, Any]
    settings: dict[str, Any]
    versions: dict[str, str]
    pictures: tuple[str, ...]
    failures: tuple[Failure, ...]
    values: tuple[Value, ...]
    summary: tuple[SummaryRow, ...]
    curves: tuple[Curve, ...]
    metrics: dict[str, str]
    examples: tuple[Example, ...]
    notes: tuple[str, ...]
