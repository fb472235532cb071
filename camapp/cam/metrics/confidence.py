"""Average Drop and Increase in Confidence: the score of the picture as far as its map shows it."""

from __future__ import annotations

import torch
from torch import Tensor

from camapp.cam.metrics.metric import Metric
from camapp.cam.metrics.sample import Sample


class AverageDrop(Metric):
    r"""Average Drop %: how much of the score is lost when the map fades the rest of the picture out.

    .. math:: 100 \cdot \max(0, f_c(x) - f_c(E)) / f_c(x), \qquad E = L \circ x + (1 - L) \cdot fill .

    A picture of score 0 has nothing to lose: its drop is 0.

    The paper writes :math:`E = L \circ x` and leaves open whether pixels or normalised inputs are multiplied. Here it
    is the normalised input, so that what the map hides turns into ``fill``: 0 is the data set's mean colour, as in
    torchcam, which divides by the score too, and in pytorch-grad-cam, whose ``DropInConfidence`` does not divide.
    Pixels multiplied would fade to black: about -2 in the normalised space of ImageNet.

    Source: Chattopadhyay et al., "Grad-CAM++", WACV 2018, section 5.1 (i).

    Args:
        fill: what lies where the map is 0, in normalised space.
    """

    name = "average_drop"
    title = "Average Drop"
    direction = "lower"
    cheap = True
    scale = "%"

    def __init__(self, fill: float = 0.0) -> None:
        super().__init__()
        self._fill = fill

    def _judge(self, sample: Sample) -> Tensor:
        return 100 * relative_drop(sample, self._fill)


class Increase(Metric):
    r"""Increase in Confidence %: the share of pictures whose score rises when the map fades the rest out.

    A picture's value is :math:`100 \cdot 1[f_c(E) > f_c(x)]`.

    Source: Chattopadhyay et al., "Grad-CAM++", WACV 2018, section 5.1 (ii).

    Args:
        fill: as in ``AverageDrop``.
    """

    name = "increase"
    title = "Increase in Confidence"
    direction = "higher"
    cheap = True
    scale = "%"

    def __init__(self, fill: float = 0.0) -> None:
        super().__init__()
        self._fill = fill

    def _judge(self, sample: Sample) -> Tensor:
        return 100.0 * (sample.masked_confidence(self._fill) > sample.confidence)


def relative_drop(sample: Sample, fill: float) -> Tensor:
    """max(0, f_c(x) - f_c(E)) / f_c(x), (B,) in [0, 1]."""
    before, after = sample.confidence, sample.masked_confidence(fill)
    return (before - after).clamp(min=0) / before.clamp(min=torch.finfo(before.dtype).tiny)
