"""Insertion and Deletion: the score while pixels appear or disappear in the order of their relevance."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import torch
from scipy.ndimage import gaussian_filter1d
from torch import Tensor
from torch.nn import functional as F

from camapp.cam.metrics.metric import Metric
from camapp.cam.metrics.sample import Sample, check_positive
from camapp.cam.metrics.variants import pixel_ranks, score_variants
from camapp.errors import UsageError


class PixelCurve(Metric):
    """The area under the score while a start picture turns into an end picture, the most relevant pixels first.

    Step 0 is the start picture, the last step the end picture; the area is the trapezoidal rule over the share of
    pixels changed, which for whole steps is (sum of the scores - half of the two ends) / steps, as in RISE.

    Args:
        pixels_per_step: pixels changed from one score to the next. None: as many as the picture is wide, 224 at
            224 x 224 as in RISE.
        batch_size: pictures given to the score at a time.
        seed: of the order in which pixels of equal relevance go (``pixel_ranks``).

    Raises:
        UsageError: a count below 1; pictures of several sizes in one metric.
    """

    def __init__(self, pixels_per_step: int | None = None, *, batch_size: int = 64, seed: int = 0) -> None:
        super().__init__()
        check_positive("batch_size", batch_size)
        if pixels_per_step is not None:
            check_positive("pixels_per_step", pixels_per_step)
        self._pixels_per_step = pixels_per_step
        self._batch_size = batch_size
        self._seed = seed
        self._shares: Tensor | None = None
        self._sum: Tensor | float = 0.0

    def curve(self) -> tuple[list[float], list[float]] | None:
        """The share of pixels changed, 0 to 1, and the mean score there."""
        if self._shares is None or isinstance(self._sum, float):
            return None
        return self._shares.tolist(), (self._sum / self.seen).tolist()

    def _judge(self, sample: Sample) -> Tensor:
        height, width = sample.inputs.shape[-2:]
        step = self._pixels_per_step or width
        changed = [*range(0, height * width, step), height * width]
        shares = torch.tensor(changed, dtype=torch.float64) / (height * width)
        if self._shares is not None and not torch.equal(shares, self._shares):
            raise UsageError(
                f'The metric "{self.name}" averages curves of one picture size; this one is {width} x {height}. '
                "Use one metric for each size."
            )
        scores = self._scores(sample, torch.tensor(changed, device=sample.inputs.device)).double().cpu()
        self._shares, self._sum = shares, self._sum + scores.sum(0)
        return torch.trapezoid(scores, shares)

    def _scores(self, sample: Sample, changed: Tensor) -> Tensor:
        ranks = pixel_ranks(sample.maps, self._seed)[:, None]
        start, end = self._ends(sample.inputs)
        bounds = changed[:, None, None, None]

        def write(out: Tensor, row: int, first: int, last: int) -> None:
            torch.where(ranks[row] < bounds[first:last], end[row], start[row], out=out)

        return score_variants(sample, len(changed), write, self._batch_size)

    @abstractmethod
    def _ends(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """The start and end pictures, both (B, C, H, W)."""


class Insertion(PixelCurve):
    """Insertion AUC: how fast the score rises while the pixels of a blurred picture become sharp.

    The picture is blurred in normalised space as in RISE's own code: kernel 11 x 11, a unit impulse smoothed by a
    Gaussian of standard deviation 5 that is reflected at the kernel's edges; beyond the picture lies 0.

    Source: Petsiuk et al., "RISE", BMVC 2018, section 3.3 and the authors' evaluation.py.

    Args:
        pixels_per_step: as in ``PixelCurve``.
        kernel: side of the blur's kernel in pixels, odd.
        sigma: its standard deviation in pixels.
        batch_size: as in ``PixelCurve``.
        seed: as in ``PixelCurve``.

    Raises:
        UsageError: a kernel that is not odd.
    """

    name = "insertion"
    title = "Insertion AUC"
    direction = "higher"

    def __init__(
        self,
        pixels_per_step: int | None = None,
        *,
        kernel: int = 11,
        sigma: float = 5.0,
        batch_size: int = 64,
        seed: int = 0,
    ) -> None:
        super().__init__(pixels_per_step, batch_size=batch_size, seed=seed)
        check_positive("kernel", kernel)
        if kernel % 2 == 0:
            raise UsageError(f"kernel = {kernel} has no middle; give an odd number of pixels.")
        impulse = np.zeros(kernel)
        impulse[kernel // 2] = 1.0
        self._kernel = torch.from_numpy(gaussian_filter1d(impulse, sigma))

    def _ends(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        channels, half = inputs.shape[1], len(self._kernel) // 2
        line = self._kernel.to(inputs.device, inputs.dtype).expand(channels, 1, 1, -1)
        blurred = F.conv2d(inputs, line, padding=(0, half), groups=channels)
        return F.conv2d(blurred, line.mT, padding=(half, 0), groups=channels), inputs


class Deletion(PixelCurve):
    """Deletion AUC: how fast the score falls while pixels are replaced.

    Source: Petsiuk et al., "RISE", BMVC 2018, section 3.3 and the authors' evaluation.py.

    Args:
        pixels_per_step: as in ``PixelCurve``.
        fill: what replaces a pixel, in normalised space; 0 is the mean colour, as in RISE's own code.
        batch_size: as in ``PixelCurve``.
        seed: as in ``PixelCurve``.
    """

    name = "deletion"
    title = "Deletion AUC"
    direction = "lower"

    def __init__(
        self, pixels_per_step: int | None = None, *, fill: float = 0.0, batch_size: int = 64, seed: int = 0
    ) -> None:
        super().__init__(pixels_per_step, batch_size=batch_size, seed=seed)
        self._fill = fill

    def _ends(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        return inputs, torch.full_like(inputs, self._fill)
