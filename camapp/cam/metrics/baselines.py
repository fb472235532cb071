"""Maps that know nothing of the picture: what a heatmap has to beat."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from camapp.cam.metrics.sample import check_positive
from camapp.errors import UsageError, did_you_mean

BASELINES = ("center", "random", "uniform")

CENTER_SIGMA = 0.25  # of each side
RANDOM_PLACES = 7  # a side, as the last layer of most networks at 224 x 224


def baseline_maps(name: str, count: int, size: tuple[int, int], *, seed: int = 0, first: int = 0) -> Tensor:
    """Maps (count, H, W) float32 in [0, 1] that are made without looking.

    ``center`` is a Gaussian at the centre, where photographs have their subject, with a standard deviation of a quarter
    of each side. ``random`` is uniform noise at 7 x 7 places, enlarged bilinearly: what a class activation map of noise
    looks like. (Noise drawn for each pixel is no such map: it has no blobs, hence no boxes, and taking pixels away one
    here, one there hides nothing.) ``uniform`` is 1 everywhere: the whole picture, in no order.

    Args:
        name: one of ``BASELINES``.
        count: how many maps.
        size: height and width.
        seed: of ``random``.
        first: the number of the first picture: the random map of picture i depends on the seed and i only.

    Raises:
        UsageError: there is no such baseline.
    """
    if name not in BASELINES:
        raise UsageError(
            f'No baseline "{name}".{did_you_mean(str(name), BASELINES)} Baselines: {", ".join(BASELINES)}.'
        )
    check_positive("count", count)
    if name == "uniform":
        return torch.ones(count, *size)
    if name == "center":
        return _stretched(_center(size).expand(1, *size)).repeat(count, 1, 1)
    return _stretched(_random(count, size, seed, first))


def picture_generator(seed: int, number: int) -> np.random.Generator:
    """Random numbers for one picture, the same however the pictures are split into batches.

    Args:
        seed: of the whole run, not negative.
        number: the picture's, from 0.
    """
    return np.random.default_rng([seed, number])


def _center(size: tuple[int, int]) -> Tensor:
    rows, columns = (
        torch.exp(-0.5 * ((torch.arange(side) + 0.5 - side / 2) / (CENTER_SIGMA * side)) ** 2) for side in size
    )
    return rows[:, None] * columns


def _random(count: int, size: tuple[int, int], seed: int, first: int) -> Tensor:
    shape = (RANDOM_PLACES, RANDOM_PLACES)
    noise = [picture_generator(seed, first + index).random(shape, dtype=np.float32) for index in range(count)]
    places = torch.from_numpy(np.stack(noise))
    return F.interpolate(places[:, None], size, mode="bilinear", align_corners=False)[:, 0]


def _stretched(maps: Tensor) -> Tensor:
    lowest, highest = maps.amin((1, 2), keepdim=True), maps.amax((1, 2), keepdim=True)
    return ((maps - lowest) / (highest - lowest).clamp(min=torch.finfo(maps.dtype).tiny)).clamp(0, 1)
