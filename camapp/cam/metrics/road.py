"""ROAD: the score after the most and the least relevant pixels were replaced by what their neighbours suggest."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from scipy import sparse
from scipy.sparse.linalg import splu
from torch import Tensor

from camapp.cam.metrics.baselines import picture_generator
from camapp.cam.metrics.metric import Metric
from camapp.cam.metrics.sample import Sample, check_positive
from camapp.cam.metrics.variants import pixel_ranks, score_variants
from camapp.errors import UsageError

PERCENTAGES = (10, 20, 30, 40, 50, 60, 70, 80, 90)
STRAIGHT, DIAGONAL = 1 / 6, 1 / 12  # the weights of neighbours


class ROAD(Metric):
    """ROAD (remove and debias): (LeRF - MoRF) / 2, averaged over the percentages of pixels removed.

    MoRF is the score after the most relevant pixels were removed, LeRF after the least relevant. Removed pixels are
    filled by noisy linear imputation (``impute``), which leaves less of the removed region's shape to be seen than one
    colour does. Ties go in a pseudo-random order (``pixel_ranks``), so that exactly the percentage is removed.

    The paper reports accuracies; the difference of scores is what pytorch-grad-cam calls ``ROADCombined``.

    Cost: for each map, percentage and order one forward and one sparse linear system of the pixels removed.

    Source: Rong et al., "A Consistent and Efficient Evaluation Strategy for Attribution Methods", ICML 2022, section 4.

    Args:
        percentages: how many percent of the pixels are removed, each between 0 and 100.
        noise: standard deviation of the Gaussian noise on imputed pixels, in normalised space.
        batch_size: pictures given to the score at a time.
        seed: of the noise, which depends on the picture's number too, and of the order of ties.

    Raises:
        UsageError: percentages that remove nothing or everything.
    """

    name = "road"
    title = "ROAD"
    direction = "higher"

    def __init__(
        self,
        percentages: Sequence[float] = PERCENTAGES,
        *,
        noise: float = 0.01,
        batch_size: int = 64,
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_positive("batch_size", batch_size)
        if not percentages or not all(0 < percent < 100 for percent in percentages):
            raise UsageError(f"percentages = {tuple(percentages)}: give one or more, each above 0 and below 100.")
        self._percentages = tuple(percentages)
        self._noise = noise
        self._batch_size = batch_size
        self._seed = seed
        self._sum = torch.zeros(2, len(self._percentages), dtype=torch.float64)

    def curve(self) -> tuple[list[float], list[float]] | None:
        """The percentages removed, and the mean (LeRF - MoRF) / 2 there."""
        if not self.seen:
            return None
        morf, lerf = self._sum / self.seen
        return list(self._percentages), ((lerf - morf) / 2).tolist()

    def both_curves(self) -> tuple[list[float], list[float], list[float]] | None:
        """The percentages removed, and the mean scores of MoRF and of LeRF."""
        if not self.seen:
            return None
        morf, lerf = (self._sum / self.seen).tolist()
        return list(self._percentages), morf, lerf

    def _judge(self, sample: Sample) -> Tensor:
        ranks = pixel_ranks(sample.maps, self._seed).cpu().numpy()
        pictures = sample.inputs.cpu().double().numpy()
        counts = [round(percent / 100 * ranks[0].size) for percent in self._percentages]
        seen = self.seen

        def write(out: Tensor, row: int, first: int, last: int) -> None:
            noise = picture_generator(self._seed, seen + row).standard_normal(pictures.shape[1:]) * self._noise
            for variant in range(first, last):
                least, index = divmod(variant, len(counts))
                removed = ranks[row] >= ranks[row].size - counts[index] if least else ranks[row] < counts[index]
                filled = impute(pictures[row], removed) + noise * removed
                out[variant - first] = torch.from_numpy(filled)

        scores = score_variants(sample, 2 * len(counts), write, self._batch_size).double().cpu()
        morf, lerf = scores.unflatten(1, (2, len(counts))).unbind(1)
        self._sum += torch.stack([morf.sum(0), lerf.sum(0)])
        return ((lerf - morf) / 2).mean(1)


def impute(picture: np.ndarray, removed: np.ndarray) -> np.ndarray:
    """Fill removed pixels so that each is the weighted mean of its neighbours, removed ones included.

    Straight neighbours weigh 1/6, diagonal ones 1/12; at the picture's edge the weights of those that are there are
    scaled up to a sum of 1. One sparse linear system gives all pixels at once.

    Source: Rong et al., ICML 2022, section 4.2 (noisy linear imputation, without the noise).

    Args:
        picture: (C, H, W) float64.
        removed: (H, W) bool; at least one pixel is kept.

    Returns:
        (C, H, W) float64.

    Raises:
        UsageError: nothing is kept.
    """
    gone = removed.ravel()
    if not gone.any():
        return picture.copy()
    if gone.all():
        raise UsageError("All pixels are removed: there is nothing left to fill them from.")
    unknown, known = np.flatnonzero(gone), np.flatnonzero(~gone)
    values = picture.reshape(len(picture), -1).T.copy()
    rows = _laplacian(*removed.shape)[unknown]
    # Symmetric and weakly diagonally dominant: no pivoting, and an ordering made for symmetric matrices.
    solver = splu(
        rows[:, unknown].tocsc(),
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )
    values[unknown] = solver.solve(-(rows[:, known] @ values[known]))
    return values.T.reshape(picture.shape)


@lru_cache(maxsize=4)
def _laplacian(height: int, width: int) -> sparse.csr_array:
    """The graph of neighbouring pixels: on the diagonal the sum of a pixel's weights, beside it minus the weights."""
    index = np.arange(height * width).reshape(height, width)
    pairs = [
        (index[:, :-1], index[:, 1:], STRAIGHT),
        (index[:-1], index[1:], STRAIGHT),
        (index[:-1, :-1], index[1:, 1:], DIAGONAL),
        (index[:-1, 1:], index[1:, :-1], DIAGONAL),
    ]
    one = np.concatenate([first.ravel() for first, _, _ in pairs])
    other = np.concatenate([second.ravel() for _, second, _ in pairs])
    weight = np.concatenate([np.full(first.size, value) for first, _, value in pairs])
    half = sparse.coo_array((weight, (one, other)), shape=(index.size, index.size)).tocsr()
    weights = half + half.T
    return sparse.csr_array(sparse.diags_array(weights.sum(axis=1)) - weights)
