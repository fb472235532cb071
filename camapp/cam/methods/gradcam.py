"""Grad-CAM."""

from __future__ import annotations

import torch

from camapp.cam.methods.channels import ChannelMethod


class GradCAM(ChannelMethod):
    r"""Grad-CAM: each channel of the layer, weighted by the mean gradient of the score over its places.

    With the activation :math:`A^k` of channel :math:`k`, its :math:`Z` places :math:`(i, j)` and the logit :math:`y^c`,

    .. math:: \alpha^c_k = \frac{1}{Z} \sum_{i,j} \frac{\partial y^c}{\partial A^k_{ij}}, \qquad
              L^c = \sum_k \alpha^c_k A^k .

    ``raw`` is :math:`L^c`, signed; ``maps`` are made of its positive part. Cost: one forward, and one backward through
    the part of the network behind the layer.

    Source: Selvaraju et al., "Grad-CAM: Visual Explanations from Deep Networks via Gradient-based Localization",
    ICCV 2017, equations 1 and 2.

    Example:
        >>> model = camapp.load_model("efficientnet_lite0")
        >>> result = camapp.GradCAM(model)(inputs, targets=[[281, 285]])
        >>> result.maps.shape
        torch.Size([1, 2, 224, 224])
    """

    name = "gradcam"
    title = "Grad-CAM"

    def weights(self, activation: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """Mean gradients, (N, C)."""
        return gradient.flatten(2).mean(2)
