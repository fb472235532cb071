"""One cell of a comparison: a method at a layer, or a baseline, with all its metrics."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from camapp.cam.metrics import Metric, Sample
from camapp.errors import CamappError
from camapp.evaluation.records import Curve, SummaryRow, Value


@dataclass
class Cell:
    """A method at a layer, or a baseline, with its metrics and what it cost."""

    kind: str
    method: str
    asked: str | None
    metrics: list[Metric]
    layer: str = ""
    seconds_per_picture: float = math.nan
    explained: int = 0
    blanks: int = 0
    refused: int = 0
    seen: dict[str, list[float]] = field(default_factory=dict)

    def measure(self, sample: Sample, pictures: list[str], labels: list[str], reasons: list[str | None]) -> list[Value]:
        """Give a sample to the metrics; a value a picture and metric."""
        self.explained += len(pictures)
        self.blanks += sum(reason is not None for reason in reasons)
        rows = []
        for metric in self.metrics:
            try:
                found, fault, state = metric.update(sample).tolist(), None, "measured"
            except CamappError as error:  # a method that explains anew may refuse the changed picture
                found, fault, state = [math.nan] * len(pictures), f"not measured: {error}", "not measured"
            self.seen.setdefault(metric.name, []).extend(found)
            rows += [
                Value(picture, self.method, self.layer, metric.name, value, int(target), label, fault or reason, state)
                for picture, value, target, label, reason in zip(
                    pictures, found, sample.targets.tolist(), labels, reasons, strict=True
                )
            ]
        return rows

    def refuse(self, picture: str, target: int, label: str, reason: str) -> list[Value]:
        """A row a metric for a picture that the method refused."""
        self.refused += 1
        layer = self.layer or self.asked or ""
        return [
            Value(picture, self.method, layer, metric.name, math.nan, target, label, f"refused: {reason}", "refused")
            for metric in self.metrics
        ]

    def summary(self) -> Iterator[SummaryRow]:
        """A row a metric."""
        for metric in self.metrics:
            values = np.array([value for value in self.seen.get(metric.name, []) if not math.isnan(value)])
            value = metric.value() if self.explained else math.nan
            yield SummaryRow(
                kind=self.kind,
                method=self.method,
                layer=self.layer or self.asked or "",
                metric=metric.name,
                title=metric.title,
                scale=metric.scale,
                direction=metric.direction,
                value=value,
                standard_error=_standard_error(values) if metric.is_mean else math.nan,
                pictures=len(values),
                blanks=self.blanks,
                refused=self.refused,
                seconds_per_picture=self.seconds_per_picture,
            )

    def curves(self) -> Iterator[Curve]:
        """The curves of the metrics that have one."""
        for metric in self.metrics:
            curve = metric.curve() if self.explained else None
            if curve is not None:
                yield Curve(
                    self.kind, self.method, self.layer, metric.name, metric.title, tuple(curve[0]), tuple(curve[1])
                )


def _standard_error(values: np.ndarray) -> float:
    """Of the mean over pictures; NaN of fewer than two."""
    return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan
