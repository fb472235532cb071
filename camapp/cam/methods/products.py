"""HiResCAM, element-wise Grad-CAM and LayerCAM: products of the activation and its gradient, place by place."""

from __future__ import annotations

import torch

from camapp.cam.layer_method import GradientMethod


class HiResCAM(GradientMethod):
    r"""HiResCAM: the activation times its gradient at each place, summed over the channels.

    .. math:: L^c_{ij} = \sum_k \frac{\partial y^c}{\partial A^k_{ij}} \, A^k_{ij}

    Grad-CAM averages the gradient over the places first, and so may light places that the model does not use. Where the
    rest of the network is linear behind the layer, these values plus the bias sum to the logit exactly. Cost: one
    forward, one backward behind the layer.

    Source: Draelos and Carin, "Use HiResCAM instead of Grad-CAM for faithful explanations of convolutional neural
    networks", 2020, equation 5.
    """

    name = "hirescam"
    title = "HiResCAM"

    def weigh(self, activation: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """Gradients times activations, (N, C, *grid)."""
        return gradient * activation


class ElementWise(GradientMethod):
    r"""Element-wise Grad-CAM: only what supports the class is summed, place by place and channel by channel.

    .. math:: L^c_{ij} = \sum_k \mathrm{relu}\!\left(\frac{\partial y^c}{\partial A^k_{ij}} \, A^k_{ij}\right)

    ``raw`` is never negative, so there is no counterfactual map. Cost: one forward, one backward behind the layer.

    Source: J. Gildenblat's pytorch-grad-cam, ``GradCAMElementWise``; there is no paper.
    """

    name = "elementwise"
    title = "Element-wise Grad-CAM"

    def weigh(self, activation: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """The positive part of gradients times activations, (N, C, *grid)."""
        return (gradient * activation).relu()


class LayerCAM(GradientMethod):
    r"""LayerCAM: the activation times the positive part of its gradient at each place, summed over the channels.

    .. math:: L^c_{ij} = \sum_k \mathrm{relu}\!\left(\frac{\partial y^c}{\partial A^k_{ij}}\right) A^k_{ij}

    Fine detail from early layers too; for several layers at once the paper takes the maximum (``fuse="max"``), which is
    the default here. Its scaling of the maps of early layers (tanh of twice the map over its maximum, equation 9) is
    left out. Cost: one forward, one backward behind the first of the layers.

    Source: Jiang et al., "LayerCAM: Exploring Hierarchical Class Activation Maps for Localization", IEEE TIP 2021,
    equations 6 to 8.
    """

    name = "layercam"
    title = "LayerCAM"
    fuse = "max"

    def weigh(self, activation: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """Positive gradients times activations, (N, C, *grid)."""
        return gradient.relu() * activation
