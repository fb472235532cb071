"""PxAP: the map as a classifier of pixels."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from camapp.cam.metrics.metric import Metric
from camapp.cam.metrics.sample import Sample

# Lower edges of the bins; 1 has one of its own.
EDGES = np.append(np.arange(0, 1, 0.001), 1.0)
IGNORED = 255


class PxAP(Metric):
    r"""Pixel average precision: the area under the precision-recall curve of all pixels of all pictures together.

    .. math:: \sum_l Precision(\tau_l) \, (Recall(\tau_l) - Recall(\tau_{l-1}))

    over thresholds 1, 0.999, ..., 0; a pixel is positive where the map reaches the threshold.

    What ``update`` returns is each picture's own, NaN where its mask is empty; ``value`` pools the pixels, so it is not
    their mean, and the pixels of a picture with an empty mask count as negative.

    Source: Choe et al., "Evaluating Weakly Supervised Object Localization Methods Right", CVPR 2020, section 4.2.
    """

    name = "pxap"
    title = "PxAP"
    direction = "higher"
    needs = frozenset({"masks"})
    cheap = True
    scale = "%"
    is_mean = False

    def __init__(self) -> None:
        super().__init__()
        self._counts = np.zeros((2, len(EDGES)))

    def value(self) -> float:
        """In percent; NaN before the first mask that is not empty."""
        return _average_precision(self._counts)

    def curve(self) -> tuple[list[float], list[float]] | None:
        """Recall and precision, both 0 to 1, from high thresholds to low, at those whose bin holds a pixel."""
        if not self._counts[0].any():
            return None
        recall, precision = _recall_precision(self._counts)
        return recall.tolist(), precision.tolist()

    def _judge(self, sample: Sample) -> Tensor:
        assert sample.masks is not None, "Metric.update has looked"
        values = []
        for heat, mask in zip(sample.maps.cpu().numpy(), sample.masks, strict=True):
            counts = _counted(heat, mask.cpu().to(torch.uint8).numpy())
            self._counts += counts
            values.append(_average_precision(counts))
        return torch.tensor(values)


def _counted(heat: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """How many pixels of the object, and of the rest, fall into each bin: (2, bins)."""
    bins = np.searchsorted(EDGES, heat.astype(np.float64), side="right") - 1
    on_object, rest = mask == 1, (mask != 1) & (mask != IGNORED)
    return np.stack([np.bincount(bins[pixels], minlength=len(EDGES)) for pixels in (on_object, rest)])


def _average_precision(counts: np.ndarray) -> float:
    if not counts[0].any():
        return float("nan")
    recall, precision = _recall_precision(counts)
    return float(100 * (precision * np.diff(recall, prepend=0.0)).sum())


def _recall_precision(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At each threshold whose bin holds a pixel, highest first."""
    falling = counts[:, ::-1]
    true, false = falling.cumsum(axis=1)[:, falling.any(axis=0)]
    return true / true[-1], true / (true + false)
