"""XGrad-CAM."""

from __future__ import annotations

import torch

from camapp.cam.methods.channels import LEAST_SUM, ChannelMethod


class XGradCAM(ChannelMethod):
    r"""XGrad-CAM: each channel, weighted by the mean of its gradient, each place counting as much as it is active.

    .. math:: w^c_k = \sum_{i,j} \frac{A^k_{ij}}{\sum_{a,b} A^k_{ab}} \, \frac{\partial y^c}{\partial A^k_{ij}}, \qquad
              L^c = \sum_k w^c_k A^k .

    The weights are chosen so that the map sums to that of HiResCAM, channel by channel (the paper's axioms of
    sensitivity and conservation). Meant for layers behind a ReLU: of a channel of both signs whose activations cancel,
    the weight has no bound. Where they cancel altogether the weight is 0 (grad-cam adds 1e-7 to the sum instead). Cost:
    one forward, one backward behind the layer.

    Source: Fu et al., "Axiom-based Grad-CAM: Towards Accurate Visualization and Explanation of CNNs", BMVC 2020,
    equations 7 and 8.
    """

    name = "xgradcam"
    title = "XGrad-CAM"

    def weights(self, activation: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """Sums of gradients times activations, over the sums of the activations, (N, C)."""
        flat = activation.flatten(2)
        total = flat.sum(2)
        sound = total.abs() > LEAST_SUM * flat.detach().abs().sum(2)
        return torch.where(sound, (gradient.flatten(2) * flat).sum(2) / torch.where(sound, total, 1.0), 0.0)
