"""RandomCAM: the yardstick that every other method should beat."""

from __future__ import annotations

import zlib

import torch
from torch import nn

from camapp.backbones.load import LoadedModel
from camapp.cam.engine import LayerChoice
from camapp.cam.evidence import Evidence
from camapp.cam.layer_method import LayerMethod, shoot
from camapp.cam.methods.channels import over_places
from camapp.cam.passes import Passes
from camapp.cam.shot import Shot
from camapp.cam.targets.output import How
from camapp.errors import UsageError


class RandomCAM(LayerMethod):
    r"""RandomCAM: each channel, weighted by chance; the baseline that every other method has to beat.

    What it shows is the layer's activations and no class. The weights are drawn anew for each picture, layer and
    target, from the seed, the picture's values and the target's name alone: a picture gets the same map in any batch,
    on any device, and every time. Cost: one forward.

    Args:
        model: as for ``Method``.
        layer: as for ``Method``.
        output: as for ``Method``.
        fuse: as for ``Method``.
        seed: another one gives other weights.

    Raises:
        UsageError: a seed that is no whole number.

    Source: J. Gildenblat's pytorch-grad-cam, ``RandomCAM``.
    """

    name = "randomcam"
    title = "RandomCAM"
    cost = "one forward"
    needs = "activation"
    class_specific = False  # another target draws other weights, which say nothing of it

    def __init__(
        self,
        model: nn.Module | LoadedModel,
        layer: LayerChoice = None,
        *,
        output: How = None,
        fuse: str | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(model, layer, output=output, fuse=fuse)
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise UsageError(f"seed = {seed!r} is no whole number.")
        self.seed = seed

    def read(
        self, activation: torch.Tensor, gradient: torch.Tensor | None, curvature: torch.Tensor | None
    ) -> torch.Tensor:
        """The activation (N, C, *grid) as it is: the weights depend on the pictures too."""
        return activation

    def evidence(self, passes: Passes) -> Evidence:
        """One forward, and the weights."""
        shot = shoot(passes, [self])
        raws = {}
        with torch.set_grad_enabled(passes.differentiable):
            for layer, (activation, _) in shot.read.items():
                weights = self._weights(passes.inputs, shot, layer, activation.shape[1]).to(activation)
                raws[layer] = (over_places(weights, activation) * activation).sum(1)
        return Evidence(raws, {}, shot)

    def _weights(self, inputs: torch.Tensor, shot: Shot, layer: str, channels: int) -> torch.Tensor:
        """The weights (N, C), float32 on the CPU."""
        weights = []
        for picture, names in zip(inputs.detach().float().cpu(), shot.aims.names, strict=True):
            values = zlib.crc32(picture.contiguous().numpy().tobytes())
            for name in names:
                start = zlib.crc32(f"{self.seed} {values} {layer} {name}".encode())
                generator = torch.Generator().manual_seed(start)
                weights.append(torch.rand(channels, generator=generator, device="cpu") * 2 - 1)
        return torch.stack(weights)
