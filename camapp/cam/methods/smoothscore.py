"""SS-CAM and IS-CAM: Score-CAM with the score of a masked picture averaged over noise, or over the way to the mask."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import nn

from camapp.backbones.load import LoadedModel
from camapp.cam.engine import LayerChoice
from camapp.cam.evidence import Evidence
from camapp.cam.methods.scorecam import ScoreCAM
from camapp.cam.passes import Passes
from camapp.cam.replay import checked_count
from camapp.errors import UsageError

NOISY = ("mask", "input")


class SSCAM(ScoreCAM):
    r"""SS-CAM: Score-CAM with each channel's score averaged over noise.

    .. math:: C_k = \frac{1}{N} \sum_{i=1}^N f^c\big(X \circ (H^k + \delta_i)\big) - f^c(X_b), \qquad
              \delta_i \sim \mathcal{N}(0, \sigma^2),

    with masks, softmax, baseline and map as in Score-CAM. That is the paper's SS-CAM(1), noise on the upsampled and
    scaled channel; in its SS-CAM(2) the noise is on the masked input, :math:`f^c(X \circ H^k + \delta_i)`.

    The same N noise pictures serve every channel and every picture, so that channels are compared under the same noise
    and the maps depend neither on the batch nor on its size. They are drawn from ``seed``; the global random state is
    neither read nor moved.

    Cost: N times Score-CAM's.

    Args:
        model: as for every method.
        layer: as for every method.
        output: as for every method.
        fuse: as for every method.
        samples: N, how many noisy versions there are of each masked picture.
        std: the standard deviation, in units of the mask (0 to 1), or of the input where the noise is there.
        noisy: "mask" for SS-CAM(1), "input" for SS-CAM(2).
        seed: of the noise.
        top_channels: as for ScoreCAM.
        batch_size: as for ScoreCAM.
        align_corners: as for ScoreCAM.

    Raises:
        UsageError: an option that cannot be meant.

    Source: Wang et al., "SS-CAM: Smoothed Score-CAM for Sharper Visual Feature Localization", 2020, section 3.
    """

    name = "sscam"
    title = "SS-CAM"
    cost = "several forwards for each channel"

    def __init__(
        self,
        model: nn.Module | LoadedModel,
        layer: LayerChoice = None,
        *,
        output: Any = None,
        fuse: str | None = None,
        samples: int = 35,
        std: float = 2.0,
        noisy: Literal["mask", "input"] = "mask",
        seed: int = 0,
        top_channels: int | None = None,
        batch_size: int | None = None,
        align_corners: bool = False,
    ) -> None:
        super().__init__(
            model,
            layer,
            output=output,
            fuse=fuse,
            top_channels=top_channels,
            batch_size=batch_size,
            align_corners=align_corners,
        )
        self.samples = checked_count("samples", samples)
        if not (std >= 0 and math.isfinite(std)):
            raise UsageError(f"std = {std!r} is no standard deviation: a number from 0.")
        if noisy not in NOISY:
            raise UsageError(f"noisy={noisy!r}; use one of {', '.join(NOISY)}.")
        self.std = std
        self.noisy = noisy
        self.seed = seed
        self._drawn: dict[tuple[int, torch.Size, torch.device], torch.Tensor] = {}

    @property
    def versions(self) -> int:
        """How many noisy versions there are of each masked picture."""
        return self.samples

    def evidence(self, passes: Passes) -> Evidence:
        """As Score-CAM's; the noise is kept for the call alone."""
        try:
            return super().evidence(passes)
        finally:
            self._drawn.clear()

    def masked(self, picture: torch.Tensor, masks: torch.Tensor, versions: torch.Tensor) -> torch.Tensor:
        """The masked pictures, with the noise of their versions."""
        if self.noisy == "mask":
            return picture * masks.add_(self._noise(masks, versions))
        pictures = picture * masks
        return pictures.add_(self._noise(pictures, versions))

    def _noise(self, like: torch.Tensor, versions: torch.Tensor) -> torch.Tensor:
        """The noise of each version: the same one wherever that version comes again."""
        return torch.cat([self._of_version(like[:1], version) for version in versions.tolist()])

    def _of_version(self, one: torch.Tensor, version: int) -> torch.Tensor:
        """The noise of one version, drawn on the CPU once a call: the same on every device and for every channel."""
        key = (version, one.shape, one.device)
        if key not in self._drawn:
            # A generator a version: what torch draws depends on how much is drawn at once.
            seeds = torch.Generator().manual_seed(self.seed)
            seed = torch.randint(2**62, (self.samples,), generator=seeds, device="cpu")[version]
            generator = torch.Generator().manual_seed(int(seed))
            noise = torch.randn(one.shape, generator=generator, device="cpu", dtype=torch.float32).mul_(self.std)
            self._drawn[key] = noise.to(one.device)
        return self._drawn[key]


class ISCAM(ScoreCAM):
    r"""IS-CAM: Score-CAM with each channel's score averaged on the way from the zero input to the masked picture.

    .. math:: C_k = \frac{1}{N} \sum_{i=1}^N f^c\Big(\frac{i}{N} \, X \circ H^k\Big) - f^c(X_b),

    with masks, softmax, baseline and map as in Score-CAM: the Riemann sum of the integral over the straight way from
    the baseline to the masked picture, as in integrated gradients. The coefficients are 1/N, 2/N, ... 1. torchcam adds
    them up from step to step, :math:`\sum_{j \le i} j / N`; they then reach (N + 1) / 2 and leave the way: most of the
    scores are those of pictures several times as bright as the one explained.

    Cost: N times Score-CAM's.

    Args:
        model: as for every method.
        layer: as for every method.
        output: as for every method.
        fuse: as for every method.
        steps: N, how many steps the way has.
        top_channels: as for ScoreCAM.
        batch_size: as for ScoreCAM.
        align_corners: as for ScoreCAM.

    Raises:
        UsageError: an option that cannot be meant.

    Source: Naidu et al., "IS-CAM: Integrated Score-CAM for axiomatic-based explanations", 2020, section 3.
    """

    name = "iscam"
    title = "IS-CAM"
    cost = "several forwards for each channel"

    def __init__(
        self,
        model: nn.Module | LoadedModel,
        layer: LayerChoice = None,
        *,
        output: Any = None,
        fuse: str | None = None,
        steps: int = 10,
        top_channels: int | None = None,
        batch_size: int | None = None,
        align_corners: bool = False,
    ) -> None:
        super().__init__(
            model,
            layer,
            output=output,
            fuse=fuse,
            top_channels=top_channels,
            batch_size=batch_size,
            align_corners=align_corners,
        )
        self.steps = checked_count("steps", steps)

    @property
    def versions(self) -> int:
        """How many steps there are from the zero input to each masked picture."""
        return self.steps

    def masked(self, picture: torch.Tensor, masks: torch.Tensor, versions: torch.Tensor) -> torch.Tensor:
        """The masked pictures, as bright as their steps have them."""
        share = (versions + 1).to(masks.dtype) / self.steps
        return picture * masks.mul_(share.view(-1, *[1] * (masks.dim() - 1)))
