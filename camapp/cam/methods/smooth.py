"""Smoothing: the average of a method's maps over altered copies of the picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from camapp.backbones.load import LoadedModel
from camapp.cam.engine import LayerChoice, Method
from camapp.cam.evidence import Evidence
from camapp.cam.methods.gradcam import GradCAM
from camapp.cam.methods.wrapper import Wrapper
from camapp.cam.passes import Passes
from camapp.cam.targets.output import How, Output
from camapp.errors import UsageError


class Smooth(Wrapper):
    r"""Test-time augmentation: the average of the base's raw maps over altered copies of the picture.

    .. math:: L = \frac{1}{T} \sum_{t=1}^{T} \tau_t^{-1} \left( L_{base} \left( \tau_t(x) \right) \right)

    The copies: the picture, and with ``flips`` its mirror image, whose map is mirrored back; both again at each of the
    ``intensities``; and all these again, with ``noise``, ``samples`` times with Gaussian noise. All are asked about
    what the unaltered picture is explained for; the result's scores and logits are the unaltered picture's.

    What wanders when the picture is altered a little is averaged away; it is no better founded than the base. Only
    pictures (B, C, H, W) are mirrored, and only where the model gives a vector for each, such as class scores: a
    region or a box would have to be mirrored with them. Otherwise a note says so. Cost: the base's, once a copy.

    Args:
        model: as for every method.
        layer: as for every method.
        base: the method asked, a class or a name.
        flips: whether to add the mirror image, left for right.
        intensities: what the normalised input is multiplied by, beside 1; ``(0.9, 1.1)`` is usual.
        noise: the standard deviation of the noise, as a part of the range of each picture's values.
        samples: how many noisy copies, where there is noise.
        seed: where the noise begins, so that the same call gives the same maps.
        base_options: what the base's constructor takes.
        output: as for every method.
        fuse: as for every method.

    Raises:
        UsageError: options that cannot be meant.

    Source: the noise is that of Smilkov et al., "SmoothGrad: removing noise by adding noise", 2017, section 3, there
    for gradients of pixels; flips and intensities are common practice without a paper.
    """

    name = "smooth"
    title = "Smooth"
    cost = "a forward and a backward for each altered copy"

    def __init__(
        self,
        model: nn.Module | LoadedModel,
        layer: LayerChoice = None,
        *,
        base: type[Method] | str = GradCAM,
        flips: bool = True,
        intensities: Sequence[float] = (),
        noise: float = 0.0,
        samples: int = 8,
        seed: int = 0,
        base_options: Mapping[str, Any] | None = None,
        output: How = None,
        fuse: str | None = None,
    ) -> None:
        super().__init__(model, layer, base=base, base_options=base_options, output=output, fuse=fuse)
        if not 0 <= noise < float("inf"):
            raise UsageError(
                f"noise = {noise} is no standard deviation: give 0 for none, or a part of the range as 0.1."
            )
        if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
            raise UsageError(f"samples = {samples!r} is no positive whole number of noisy copies.")
        if not all(0 < factor < float("inf") for factor in intensities):
            raise UsageError(f"intensities = {intensities!r}: give factors above 0, such as (0.9, 1.1).")
        self.flips = flips
        self.intensities = tuple(factor for factor in intensities if factor != 1)
        self.noise = noise
        self.samples = samples if noise else 0
        self.seed = seed

    def evidence(self, passes: Passes) -> Evidence:
        """The base's for each copy, mirrored back and averaged."""
        found = self.base.evidence(passes)
        mirrors = self.flips and passes.inputs.dim() == 4 and has_no_places(found.shot.output)
        copies = (1 + len(self.intensities)) * (1 + mirrors) * (1 + self.samples)
        passes.watch.expect(copies * len(passes.inputs))
        passes.watch.step(len(passes.inputs))
        sides = [dict(raws) for raws in (found.raws, found.against) if raws is not None]
        reached = dict(found.reached)
        # Asked for what was settled on the picture itself, so that all copies are explained for one thing.
        asked = passes.aiming(found.shot.aims)
        for altered, is_mirrored in self._copies(passes.inputs, mirrors):
            other = self.base.evidence(asked.on(altered))
            for sums, raws in zip(sides, (other.raws, other.against), strict=False):
                for key, raw in (raws or {}).items():
                    sums[key] = sums[key] + (raw.flip(-1) if is_mirrored else raw)
            reached = {key: one | other.reached[key] for key, one in reached.items()}
            passes.watch.step(len(passes.inputs))
        notes = found.notes if mirrors or not self.flips else (*found.notes, NOT_MIRRORED)
        raws, *against = ({key: total / copies for key, total in sums.items()} for sums in sides)
        return replace(found, raws=raws, reached=reached, notes=notes, against=against[0] if against else None)

    def _copies(self, inputs: torch.Tensor, mirrors: bool) -> Iterator[tuple[torch.Tensor, bool]]:
        """Each altered copy of the inputs, and whether it is mirrored."""
        # Drawn on the CPU and alike for all pictures: the same maps on every device and in every batch.
        noise = torch.Generator("cpu").manual_seed(self.seed)
        spread = self.noise * (inputs.flatten(1).amax(1) - inputs.flatten(1).amin(1))
        spread = spread.view(-1, *[1] * (inputs.dim() - 1))
        for factor in (1.0, *self.intensities):
            for is_mirrored in (False, True)[: 1 + mirrors]:
                altered = (inputs.flip(-1) if is_mirrored else inputs) * factor
                if factor != 1 or is_mirrored:
                    yield altered, is_mirrored
                for _ in range(self.samples):
                    drawn = torch.randn(inputs.shape[1:], generator=noise, device="cpu").to(inputs)
                    yield altered + spread * drawn, is_mirrored


NOT_MIRRORED = "not mirrored: only pictures are, of models that give a vector for each, such as class scores"


def has_no_places(output: Output) -> bool:
    """Whether what a model returned is a vector for each picture: the same target fits its mirror image."""
    return isinstance(output, torch.Tensor) and output.dim() == 2
