"""Coherency, Complexity, and ADCC, which joins them with Average Drop."""

from __future__ import annotations

import torch
from torch import Tensor

from camapp.cam.metrics.confidence import relative_drop
from camapp.cam.metrics.metric import Metric
from camapp.cam.metrics.sample import Sample, check_positive
from camapp.cam.metrics.similarity import pearson


class Coherency(Metric):
    """Coherency: whether the picture as far as its map shows it is explained by the same map.

    (r + 1) / 2 with r the Pearson correlation of L(x) and L(E). Where one of them is constant no correlation is
    defined; r counts as 0, so that blank maps are neither left out nor rewarded.

    Source: Poppi et al., "Revisiting the Evaluation of Class Activation Mapping for Explainability", CVPR workshops
    2021, section 3.

    Args:
        fill: what lies where the map is 0, as in ``AverageDrop``.
        batch_size: pictures explained at a time.
    """

    name = "coherency"
    title = "Coherency"
    direction = "higher"
    needs = frozenset({"explain"})

    def __init__(self, fill: float = 0.0, *, batch_size: int = 16) -> None:
        super().__init__()
        check_positive("batch_size", batch_size)
        self._fill = fill
        self._batch_size = batch_size

    def _judge(self, sample: Sample) -> Tensor:
        return coherency(sample, self._fill, self._batch_size)


class Complexity(Metric):
    """Complexity: the mean of the map, its L1 norm over H * W. Little of the picture should be enough.

    Source: Poppi et al., CVPR workshops 2021, section 3.
    """

    name = "complexity"
    title = "Complexity"
    direction = "lower"
    cheap = True

    def _judge(self, sample: Sample) -> Tensor:
        return complexity(sample)


class ADCC(Metric):
    """ADCC: the harmonic mean of Coherency, 1 - Complexity and 1 - Average Drop, of each picture.

    3 / (1 / Coherency + 1 / (1 - Complexity) + 1 / (1 - AverageDrop)), Average Drop in [0, 1]; 0 where one of the three
    is 0.

    Source: Poppi et al., CVPR workshops 2021, equation 6.

    Args:
        fill: as in ``Coherency``.
        batch_size: as in ``Coherency``.
    """

    name = "adcc"
    title = "ADCC"
    direction = "higher"
    needs = frozenset({"explain"})

    def __init__(self, fill: float = 0.0, *, batch_size: int = 16) -> None:
        super().__init__()
        check_positive("batch_size", batch_size)
        self._fill = fill
        self._batch_size = batch_size

    def _judge(self, sample: Sample) -> Tensor:
        parts = torch.stack(
            [
                coherency(sample, self._fill, self._batch_size),
                1 - complexity(sample),
                1 - relative_drop(sample, self._fill).to(sample.maps.device),
            ]
        ).double()
        return 3 / (1 / parts.clamp(min=0)).sum(0)  # 1 / 0 is infinity, and the mean 0


def coherency(sample: Sample, fill: float, batch_size: int) -> Tensor:
    """(B,) in [0, 1]."""
    return (pearson(sample.maps, sample.masked_maps(fill, batch_size)).nan_to_num(0.0) + 1) / 2


def complexity(sample: Sample) -> Tensor:
    """(B,) in [0, 1]."""
    return sample.maps.double().mean((1, 2))
