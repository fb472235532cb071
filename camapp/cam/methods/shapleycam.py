"""ShapleyCAM."""

from __future__ import annotations

import torch

from camapp.cam.layer_method import CurvatureMethod
from camapp.cam.methods.channels import over_places


class ShapleyCAM(CurvatureMethod):
    r"""ShapleyCAM: Grad-CAM with a second-order term, from the Shapley values of a quadratic model of the network.

    With the gradient :math:`g` and the Hessian :math:`H` of the score with respect to the layer's activation :math:`A`,

    .. math:: w^c_k = \frac{1}{Z} \sum_{i,j} \left( g - \tfrac{1}{2} H A \right)^k_{ij}, \qquad L^c = \sum_k w^c_k A^k .

    The sign of the second term follows from :math:`y(A) - y(0) \approx g^T A - \frac{1}{2} A^T H A`. Where the network
    is piecewise linear behind the layer (ReLUs and a linear head), :math:`H A` is zero for a logit and the map is
    Grad-CAM's: the paper explains ``camapp.cam.targets.ResidualScore`` instead, which has a curvature of its own. Cost:
    one forward, and two backwards behind the layer for each target.

    Source: Cai, "CAMs as Shapley Value-based Explainers", The Visual Computer, 2025, section 4 (ShapleyCAM).
    """

    name = "shapleycam"
    title = "ShapleyCAM"
    cost = "one forward and two backwards"
    differentiable = False  # its map holds second derivatives, which are given without a graph of their own

    def weigh(self, activation: torch.Tensor, gradient: torch.Tensor, curvature: torch.Tensor) -> torch.Tensor:
        """Mean gradients less half the mean curvatures, times activations, (N, C, *grid)."""
        return over_places((gradient - curvature / 2).flatten(2).mean(2), activation) * activation
