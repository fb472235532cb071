"""Grad-CAM++ and Smooth Grad-CAM++."""

from __future__ import annotations

import torch
from torch import nn

from camapp.backbones.load import LoadedModel
from camapp.cam.engine import LayerChoice
from camapp.cam.evidence import Evidence
from camapp.cam.from_input import any_gradient
from camapp.cam.layer_method import LayerMethod, shoot
from camapp.cam.methods.channels import LEAST_SUM, ChannelMethod, over_places
from camapp.cam.passes import Passes
from camapp.cam.targets.output import How
from camapp.errors import UsageError


class GradCAMPlusPlus(ChannelMethod):
    r"""Grad-CAM++: each channel, weighted by the positive gradients, each of them by a share of its own.

    With the gradient :math:`g^k_{ij} = \partial S^c / \partial A^k_{ij}` of the logit :math:`S^c`,

    .. math:: \alpha^{kc}_{ij} = \frac{(g^k_{ij})^2}{2 (g^k_{ij})^2 + \sum_{a,b} A^k_{ab} \, (g^k_{ij})^3}, \qquad
              w^c_k = \sum_{i,j} \alpha^{kc}_{ij} \, \mathrm{relu}(g^k_{ij}), \qquad L^c = \sum_k w^c_k A^k ,

    and :math:`\alpha = 0` where its denominator is 0 but for rounding, as it may be where activations of both signs
    cancel: one place would swamp the map. It counts several objects of a class alike, large and small. The
    paper explains :math:`e^{S^c}`, whose derivatives are the powers of :math:`g` times :math:`e^{S^c}`: that cancels
    in :math:`\alpha` and would multiply the whole map by one positive number, so it is left out of ``raw``.

    Of the peers, grad-cam adds 1e-6 to the denominator, which silences gradients below 1e-3; torch-cam takes
    :math:`\sum_{a,b} A_{ab} \, g_{ab}^3` instead, and never divides by it (0.5.0); xplique takes means for the sums.
    This is the paper's formula; :math:`\alpha` is computed as :math:`1 / (2 + g \sum A)`, which no small gradient
    underflows. Cost: one forward, one backward behind the layer.

    Source: Chattopadhyay et al., "Grad-CAM++: Improved Visual Explanations for Deep Convolutional Networks", WACV
    2018, equations 7 and 19.
    """

    name = "gradcam++"
    title = "Grad-CAM++"

    def weights(self, activation: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """Sums of the shares times the positive gradients, (N, C)."""
        flat = activation.flatten(2)
        total, size = (over_places(one, activation) for one in (flat.sum(2), flat.detach().abs().sum(2)))
        below = 2 + total * gradient
        sound = below.abs() > LEAST_SUM * (2 + size * gradient.abs())
        shares = torch.where(sound, 1 / torch.where(sound, below, 1.0), 0.0)
        return (shares * gradient.relu()).flatten(2).sum(2)  # where the gradient is 0 the share counts nothing


class SmoothGradCAMPlusPlus(LayerMethod):
    r"""Smooth Grad-CAM++: Grad-CAM++ with the powers of the gradient averaged over noisy copies of the picture.

    With :math:`D_p`, the mean over the copies of :math:`(\partial S^c / \partial A^k_{ij})^p`, and the activation
    :math:`A` of the unaltered picture,

    .. math:: \alpha^{kc}_{ij} = \frac{D_2}{2 D_2 + \sum_{a,b} A^k_{ab} D_3}, \qquad
              w^c_k = \sum_{i,j} \alpha^{kc}_{ij} \, \mathrm{relu}(D_1), \qquad L^c = \sum_k w^c_k A^k .

    The paper prints :math:`D_1` as the numerator of :math:`\alpha`; without noise the method would then not be
    Grad-CAM++, which it extends, so :math:`D_2` is taken, as torch-cam does. torch-cam's map is of the activations and
    gradients of the last noisy copy (0.5.0); this one is of the unaltered activations and the mean gradient. Cost: one
    forward and backward for the picture and each of its copies.

    Args:
        model: as for ``Method``.
        layer: as for ``Method``.
        output: as for ``Method``.
        fuse: as for ``Method``.
        samples: the noisy copies, 1 and up.
        noise: the standard deviation of the noise, as a part of the picture's own range from least to greatest value.
        seed: of the noise. Every picture meets the same noise (times its own range), so that a map does not depend on
            the rest of the batch.

    Raises:
        UsageError: an option out of range.

    Source: Omeiza et al., "Smooth Grad-CAM++: An Enhanced Inference Level Visualization Technique for Deep
    Convolutional Neural Network Models", 2019, section 3.
    """

    name = "smoothgradcam++"
    title = "Smooth Grad-CAM++"
    cost = "a forward and a backward for each noisy copy"
    needs = "gradient"
    differentiable = False

    def __init__(
        self,
        model: nn.Module | LoadedModel,
        layer: LayerChoice = None,
        *,
        output: How = None,
        fuse: str | None = None,
        samples: int = 8,
        noise: float = 0.15,
        seed: int = 0,
    ) -> None:
        super().__init__(model, layer, output=output, fuse=fuse)
        if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
            raise UsageError(f"samples = {samples!r} is no positive whole number of noisy copies.")
        if not 0 <= noise < float("inf"):
            raise UsageError(f"noise = {noise!r}; needed is a part of the picture's range, 0 and up, such as 0.15.")
        self.samples = samples
        self.noise = noise
        self.seed = seed

    def read(
        self, activation: torch.Tensor, gradient: torch.Tensor | None, curvature: torch.Tensor | None
    ) -> torch.Tensor:
        """Both, (N, 2, C, *grid): the map is made once all copies are known."""
        assert gradient is not None, "shoot gives what needs says"
        return torch.stack([activation, gradient], 1)

    def evidence(self, passes: Passes) -> Evidence:
        """One pass for the picture, and one for each of its noisy copies."""
        passes.watch.expect(len(passes.inputs) * (self.samples + 1))
        shot = shoot(passes, [self])
        passes.watch.step(len(passes.inputs))
        gradients: dict[str, list[torch.Tensor]] = {layer: [] for layer in passes.layers}
        for noisy in self._noisy(passes.inputs):
            found = shoot(passes.on(noisy).aiming(shot.aims), [self])
            passes.watch.step(len(noisy))
            for layer, (pair, _) in found.read.items():
                gradients[layer].append(pair[:, 1])
        raws = {layer: averaged_map(shot.read[layer][0][:, 0], torch.stack(each)) for layer, each in gradients.items()}
        reached = {layer: any_gradient(torch.stack(each, 1)) for layer, each in gradients.items()}
        return Evidence(raws, reached, shot)

    def _noisy(self, inputs: torch.Tensor) -> list[torch.Tensor]:
        """The noisy copies of the batch; drawn on the CPU, so that they are the same on every device."""
        generator = torch.Generator().manual_seed(self.seed)
        values = inputs.flatten(1).float()
        scale = self.noise * (values.amax(1) - values.amin(1)).view(-1, *[1] * (inputs.dim() - 1))
        drawn = torch.randn(self.samples, *inputs.shape[1:], generator=generator, device="cpu")
        return [(inputs.float() + scale * noise).to(inputs.dtype) for noise in drawn.to(inputs.device)]


def averaged_map(activation: torch.Tensor, gradients: torch.Tensor) -> torch.Tensor:
    """The raw map (N, *grid) of an activation (N, C, *grid) and the gradients (samples, N, C, *grid) of its copies."""
    # Powers of gradients of 1 at most, or the third would underflow; what was divided out comes back below.
    largest = gradients.abs().flatten(2).amax(2).amax(0).view(-1, *[1] * (activation.dim() - 1))
    small = gradients / torch.where(largest > 0, largest, 1.0)
    first, second, third = (small.pow(power).mean(0) for power in (1, 2, 3))
    flat = activation.flatten(2)
    total, size = (over_places(one, activation) * largest for one in (flat.sum(2), flat.abs().sum(2)))
    below = 2 * second + total * third
    sound = below.abs() > LEAST_SUM * (2 * second + size * small.abs().pow(3).mean(0))
    shares = torch.where(sound, second / torch.where(sound, below, 1.0), 0.0)
    weights = (shares * first.relu() * largest).flatten(2).sum(2)
    return (over_places(weights, activation) * activation).sum(1)
