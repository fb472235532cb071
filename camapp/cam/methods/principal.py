"""Principal-component smoothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from camapp.backbones.load import LoadedModel
from camapp.cam.components import first_component
from camapp.cam.engine import LayerChoice, Method
from camapp.cam.layer_method import GradientMethod
from camapp.cam.methods.gradcam import GradCAM
from camapp.cam.methods.wrapper import base_class, make_base
from camapp.cam.targets.output import How
from camapp.errors import UsageError


class PrincipalComponent(GradientMethod):
    r"""The first principal component of what the channels contribute, instead of their sum.

    The base weighs the channels, :math:`C^k` at :math:`Z` places. Their matrix (:math:`Z` by channels), each column
    less its mean, is projected on its first right singular vector :math:`v`:

    .. math:: L = \sum_k v_k \, (C^k - \overline{C^k}), \qquad
              v = \operatorname{arg\,max}_{\lVert v \rVert = 1} \operatorname{Var} \Big( \sum_k v_k C^k \Big) .

    It keeps the one pattern that most channels share and drops what varies in few of them, which often is noise. A
    component has no sign of its own; this one points as the sum does, so that what supports the target is positive. It
    is centred: 0 is the mean over the places, and neither the scale nor the zero of the base's map is kept. grad-cam's
    ``eigen_smooth`` is the same but for the sign, which it leaves to the solver. Cost: the base's; several such methods
    share a pass.

    Args:
        model: as for every method.
        layer: as for every method.
        base: the method that weighs the channels, a class or a name: one that reads gradients and sums channels.
        base_options: what the base's constructor takes.
        output: as for every method.
        fuse: as for every method.

    Raises:
        UsageError: a base that is no sum over channels.

    Source: common practice since grad-cam 1.3; the decomposition is that of Muhammad and Yeasin, "Eigen-CAM: Class
    Activation Map using Principal Components", IJCNN 2020, section III, there of the activations alone.
    """

    name = "principal"
    title = "Principal component"

    def __init__(
        self,
        model: nn.Module | LoadedModel,
        layer: LayerChoice = None,
        *,
        base: type[Method] | str = GradCAM,
        base_options: Mapping[str, Any] | None = None,
        output: How = None,
        fuse: str | None = None,
    ) -> None:
        super().__init__(model, layer, output=output, fuse=fuse)
        kind = base_class(base)
        if not issubclass(kind, GradientMethod) or kind.combine is not GradientMethod.combine:
            raise UsageError(
                f"{kind.title} is no sum of weighted channels, of which a principal component could be taken. Give a "
                "base such as GradCAM."
            )
        self.base = make_base(kind, model, layer, output, fuse, base_options)

    def weigh(self, activation: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """The base's contributions, (N, C, *grid)."""
        return self.base.weigh(activation, gradient)

    def combine(self, activation: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """Their first principal component, turned as their sum."""
        return first_component(self.weigh(activation, gradient))
