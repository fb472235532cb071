"""MaxBoxAcc and MaxBoxAccV2: how many objects the map's boxes find at the best threshold."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from camapp.cam.metrics.boxes import boxes_at_levels, overlaps
from camapp.cam.metrics.metric import Metric
from camapp.cam.metrics.sample import Sample

THRESHOLDS = np.arange(0, 1, 0.001)  # shares of the maximum


class BoxAccuracy(Metric):
    """The share of pictures with a box of IoU >= delta, at the threshold that is best for all pictures together.

    Maps are rounded down to 8 bits and cut at each of 1000 thresholds, shares of their maximum. A picture is
    right where the box of a contour overlaps any of its true boxes by delta or more.

    What ``update`` returns is the best of each picture alone. ``value`` takes one threshold (a delta) for all pictures,
    so it is at most the mean of these.

    Attributes:
        deltas: the IoUs asked for; each has its own best threshold, and the value is the mean over them.
        largest: only the contour that encloses the most counts, not any.
    """

    needs = frozenset({"boxes"})
    direction = "higher"
    cheap = True
    scale = "%"
    is_mean = False
    deltas: ClassVar[tuple[float, ...]]
    largest: ClassVar[bool]

    def __init__(self) -> None:
        super().__init__()
        self._found = np.zeros((len(self.deltas), len(THRESHOLDS)))
        self._judged = 0

    def value(self) -> float:
        """In percent; NaN before the first picture that has a box."""
        return float(100 * (self._found.max(1) / self._judged).mean()) if self._judged else float("nan")

    def curve(self) -> tuple[list[float], list[float]] | None:
        """The thresholds, and the accuracy in percent at each, the mean over the deltas."""
        if not self._judged:
            return None
        return THRESHOLDS.tolist(), (100 * self._found.mean(0) / self._judged).tolist()

    def _judge(self, sample: Sample) -> Tensor:
        assert sample.boxes is not None, "Metric.update has looked"
        values = torch.full((len(sample),), torch.nan)
        for row, (heat, boxes) in enumerate(zip(sample.maps.cpu().numpy(), sample.boxes, strict=True)):
            if len(boxes) == 0:
                continue
            found = self._at_thresholds(heat, boxes.cpu().numpy())
            self._found += found
            self._judged += 1
            values[row] = 100 * float(found.max(1).mean())
        return values

    def _at_thresholds(self, heat: np.ndarray, boxes: np.ndarray) -> np.ndarray:
        """Whether a box is found, (deltas, thresholds)."""
        bits = (heat * 255).astype(np.uint8)
        drawn = boxes_at_levels(bits, largest=self.largest)
        counts = [len(some) for some in drawn]
        best = overlaps(np.concatenate(drawn), boxes).max(1)
        per_level = np.maximum.reduceat(best, np.cumsum([0, *counts[:-1]]))
        levels = (THRESHOLDS * bits.max()).astype(np.int64)
        return per_level[levels] >= np.array(self.deltas)[:, None]


class MaxBoxAcc(BoxAccuracy):
    """MaxBoxAcc: the largest contour's box, IoU >= 0.5.

    Source: Choe et al., "Evaluating Weakly Supervised Object Localization Methods Right", CVPR 2020, section 4.1.
    """

    name = "max_box_acc"
    title = "MaxBoxAcc"
    deltas = (0.5,)
    largest = True


class MaxBoxAccV2(BoxAccuracy):
    """MaxBoxAccV2: any contour's box, mean over IoU >= 0.3, 0.5 and 0.7, each at its own best threshold.

    Source: Choe et al., "Evaluation for Weakly Supervised Object Localization: Protocol, Metrics, and Datasets", 2020
    (arXiv 2007.04178).
    """

    name = "max_box_acc_v2"
    title = "MaxBoxAccV2"
    deltas = (0.3, 0.5, 0.7)
    largest = False
