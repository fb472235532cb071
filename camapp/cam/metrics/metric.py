"""Metric: one measure of heatmaps over a data set."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

import torch
from torch import Tensor

from camapp.cam.metrics.sample import Sample
from camapp.errors import UsageError

Direction = Literal["higher", "lower"]


class Metric(ABC):
    """One measure over a data set: add pictures with ``update``, then read ``value``.

    How the pictures are split into batches changes nothing.

    Attributes:
        name: what ``find_metrics`` knows it by.
        title: what people know it by.
        direction: whether higher or lower values are better.
        needs: what it needs beyond pictures and maps: ``boxes``, ``explain``, ``masks``.
        cheap: whether it costs a forward a picture or less, beside ``Sample.confidence``.
        scale: the unit of all its values: ``"%"`` for 0 to 100, else ``""``.
        is_mean: whether ``value`` is the mean of the pictures' values, so that it has a standard error.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    direction: ClassVar[Direction]
    needs: ClassVar[frozenset[str]] = frozenset()
    cheap: ClassVar[bool] = False
    scale: ClassVar[str] = ""
    is_mean: bool = True

    def __init__(self) -> None:
        self._values: list[Tensor] = []

    @classmethod
    def summary(cls) -> str:
        """What it measures, in one line."""
        return (cls.__doc__ or "").strip().partition("\n")[0]

    @property
    def seen(self) -> int:
        """How many pictures it has judged."""
        return sum(len(values) for values in self._values)

    def update(self, sample: Sample) -> Tensor:
        """Judge pictures.

        Returns:
            (B,) float32 on the CPU, one value a picture; NaN where the metric is not defined.

        Raises:
            UsageError: the sample lacks what the metric needs.
        """
        for need in sorted(self.needs):
            if getattr(sample, need) is None:
                raise UsageError(f'The metric "{self.name}" needs {need}, and the sample has none: Sample({need}=...).')
        values = self._judge(sample).detach().to("cpu", torch.float32)
        self._values.append(values)
        return values

    def value(self) -> float:
        """The measure over all pictures so far, those without a value left out; NaN where there is none."""
        return mean_of_defined(torch.cat(self._values)) if self._values else float("nan")

    def curve(self) -> tuple[list[float], list[float]] | None:
        """The mean curve that the value sums up, as x and y; None for a metric without one, or without pictures."""
        return None

    @abstractmethod
    def _judge(self, sample: Sample) -> Tensor:
        """One value a picture, (B,)."""


def mean_of_defined(values: Tensor) -> float:
    """The mean of the values that are not NaN, in float64; NaN where there is none."""
    return float(values.double().nanmean())
