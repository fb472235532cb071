"""EigenCAM, Eigen-Grad-CAM and KPCA-CAM: principal components of what a layer gave."""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn

from camapp.backbones.load import LoadedModel
from camapp.cam.components import LEAST_ENERGY, first_component, first_eigenvector, signed_towards, wide
from camapp.cam.engine import LayerChoice
from camapp.cam.layer_method import ActivationMethod
from camapp.cam.methods.products import HiResCAM
from camapp.cam.targets.output import How
from camapp.errors import LayerError, UsageError

# A kernel matrix of places by places; 4096 places take 134 MB in float64.
MOST_PLACES = 4096

KERNELS = ("rbf", "sigmoid")


class EigenCAM(ActivationMethod):
    r"""EigenCAM: the layer's channels at each place, projected on their first principal component.

    With the activations as a matrix of a row a place, :math:`A = U \Sigma V^T`, the map is :math:`A v_1`. The same for
    every class. The sign of :math:`v_1`, which a decomposition leaves to chance, is such that the map is positive where
    the layer is most active: its inner product with :math:`\sum_k (A^k_{ij})^2` is positive. So neither the signs nor
    the order of the channels change the map.

    The paper decomposes the activations as they are (``centre=False``); grad-cam subtracts each channel's mean first,
    as principal components are defined, and so does this by default. grad-cam's sign is that of its decomposition.
    Cost: one forward, and an eigenvector of a matrix of channels or places, whichever are fewer.

    Args:
        model: as for ``Method``.
        layer: as for ``Method``.
        output: as for ``Method``.
        fuse: as for ``Method``.
        centre: subtract each channel's mean over the places.

    Source: Muhammad and Yeasin, "Eigen-CAM: Class Activation Map using Principal Components", IJCNN 2020, section III.
    """

    name = "eigencam"
    title = "EigenCAM"

    def __init__(
        self,
        model: nn.Module | LoadedModel,
        layer: LayerChoice = None,
        *,
        output: How = None,
        fuse: str | None = None,
        centre: bool = True,
    ) -> None:
        super().__init__(model, layer, output=output, fuse=fuse)
        self.centre = centre

    def combine(self, activation: torch.Tensor) -> torch.Tensor:
        """The projection, (N, *grid)."""
        return first_component(activation, centre=self.centre, towards=activation.detach().square().sum(1))


class EigenGradCAM(HiResCAM):
    r"""Eigen-Grad-CAM: as EigenCAM, of the activation times its gradient, so that it tells classes apart.

    The map is the first principal component of :math:`\frac{\partial y^c}{\partial A^k_{ij}} A^k_{ij}`, with the sign
    that agrees with their sum over the channels, which is HiResCAM's map: positive where the class is supported. Cost:
    one forward, one backward behind the layer, and the eigenvector.

    Args:
        model: as for ``Method``.
        layer: as for ``Method``.
        output: as for ``Method``.
        fuse: as for ``Method``.
        centre: subtract each channel's mean over the places first, as grad-cam does.

    Source: J. Gildenblat's pytorch-grad-cam, ``EigenGradCAM``, after the EigenCAM paper; there is no paper of its own.
    """

    name = "eigengradcam"
    title = "Eigen-Grad-CAM"

    def __init__(
        self,
        model: nn.Module | LoadedModel,
        layer: LayerChoice = None,
        *,
        output: How = None,
        fuse: str | None = None,
        centre: bool = True,
    ) -> None:
        super().__init__(model, layer, output=output, fuse=fuse)
        self.centre = centre

    def combine(self, activation: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """The projection, (N, *grid)."""
        return first_component(self.weigh(activation, gradient), centre=self.centre)


class KPCACAM(ActivationMethod):
    r"""KPCA-CAM: EigenCAM with a kernel, so that the component need not be a linear function of the channels.

    With the centred activation :math:`x_p` of each place :math:`p` and the kernel matrix
    :math:`K_{pq} = e^{-\gamma \lVert x_p - x_q \rVert^2}` (or :math:`\tanh(\gamma \, x_p \cdot x_q + 1)`), centred in
    both axes, the map is :math:`\sqrt{\lambda_1} u_1` of its largest eigenvalue. The same for every class; the sign is
    as EigenCAM's. Cost: one forward, and an eigenvector of a matrix of places by places, 4096 at most.

    Args:
        model: as for ``Method``.
        layer: as for ``Method``.
        output: as for ``Method``.
        fuse: as for ``Method``.
        kernel: "rbf" (the default), or "sigmoid", grad-cam's default.
        gamma: the kernel's width; by default one over the channels, as scikit-learn's and grad-cam's.

    Raises:
        UsageError: another kernel, or a gamma that is not positive.

    Source: Karmani et al., "KPCA-CAM: Visual Explainability of Deep Computer Vision Models using Kernel PCA", 2024,
    section III.
    """

    name = "kpcacam"
    title = "KPCA-CAM"

    def __init__(
        self,
        model: nn.Module | LoadedModel,
        layer: LayerChoice = None,
        *,
        output: How = None,
        fuse: str | None = None,
        kernel: Literal["rbf", "sigmoid"] = "rbf",
        gamma: float | None = None,
    ) -> None:
        super().__init__(model, layer, output=output, fuse=fuse)
        if kernel not in KERNELS:
            raise UsageError(f"kernel={kernel!r}; use one of {', '.join(KERNELS)}.")
        if gamma is not None and not 0 < gamma < float("inf"):
            raise UsageError(f"gamma = {gamma!r} is no positive number.")
        self.kernel = kernel
        self.gamma = gamma

    def combine(self, activation: torch.Tensor) -> torch.Tensor:
        """The kernel's first component, (N, *grid).

        Raises:
            LayerError: the layer has more places than a kernel matrix is made of.
        """
        places = activation.flatten(2).transpose(1, 2).to(wide(activation))
        if places.shape[1] > MOST_PLACES:
            raise LayerError(
                f"KPCA-CAM compares every two places of a layer, and this one has {places.shape[1]} places; it takes "
                f"{MOST_PLACES} at most. Choose a later layer, or EigenCAM."
            )
        energy = places.detach().square().sum(2)
        finite = energy.sum(1).isfinite()
        energy = torch.where(finite[:, None], energy, 0.0)
        places = torch.where(finite[:, None, None], places, 0.0)
        places = places - places.mean(1, keepdim=True)
        # Places that differ by rounding errors alone are the same place.
        varies = places.detach().square().sum((1, 2)) > LEAST_ENERGY * energy.sum(1)
        kernel = self._kernel(places)
        kernel = kernel - kernel.mean(1, keepdim=True)
        kernel = kernel - kernel.mean(2, keepdim=True)
        vector, value = first_eigenvector(kernel)
        along = (vector[:, None, :] @ kernel @ vector[..., None])[:, 0, 0]  # the eigenvalue, as part of a graph
        above = varies & (value > 0)
        component = vector * torch.where(above, along, 1.0).sqrt()[:, None]
        component = signed_towards(torch.where(above[:, None], component, 0.0), energy)
        component = torch.where(finite[:, None], component, float("nan"))
        return component.to(activation.dtype).unflatten(1, activation.shape[2:])

    def _kernel(self, places: torch.Tensor) -> torch.Tensor:
        """How alike each two places are, (N, places, places), of places (N, places, C)."""
        gamma = 1 / places.shape[2] if self.gamma is None else self.gamma
        products = places @ places.mT
        if self.kernel == "sigmoid":
            return (gamma * products + 1).tanh()
        lengths = products.diagonal(dim1=1, dim2=2)
        return (-gamma * (lengths[:, :, None] + lengths[:, None, :] - 2 * products).clamp(min=0)).exp()
