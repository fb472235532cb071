"""CAM, the original."""

from __future__ import annotations

import torch

from camapp.cam.evidence import Evidence
from camapp.cam.head import find_head
from camapp.cam.layer_method import LayerMethod, shoot
from camapp.cam.passes import Passes
from camapp.cam.shot import Shot
from camapp.cam.targets import ClassScore
from camapp.errors import OutputError, TargetError


class CAM(LayerMethod):
    r"""Class activation mapping: each channel of the last map, weighted by the linear head's own weight for the class.

    For a network that averages its last map :math:`A` over the places and sends the means through a linear head
    :math:`y^c = \sum_k w^c_k \overline{A^k} + b^c`,

    .. math:: L^c = \sum_k w^c_k A^k , \qquad \overline{L^c} + b^c = y^c .

    So the values are the class score itself, place by place. Grad-CAM, XGrad-CAM and HiResCAM give the same map of that
    layer, over the number of places. Whether the network is of this kind is checked on every call. Cost: one forward.

    Source: Zhou et al., "Learning Deep Features for Discriminative Localization", CVPR 2016, equations 1 and 2.
    """

    name = "cam"
    title = "CAM"
    cost = "one forward"
    selective = True
    needs = "activation"

    def read(
        self, activation: torch.Tensor, gradient: torch.Tensor | None, curvature: torch.Tensor | None
    ) -> torch.Tensor:
        """The activation (N, C, *grid) as it is: the weights are the head's."""
        return activation

    def evidence(self, passes: Passes) -> Evidence:
        """One forward, and the head's weights.

        Raises:
            LayerError: the layer is not what is averaged into a linear head, or there is no such head.
            OutputError: the model returns no vector of class scores.
            TargetError: a target that is not a class's score.
        """
        shot = shoot(passes, [self])
        scores, classes = _class_scores(shot), shot.aims.indices.flatten()
        per_row = passes.plan.per_row
        raws = {}
        grad_mode = torch.set_grad_enabled(passes.differentiable)
        with grad_mode, torch.autocast(passes.inputs.device.type, enabled=False):
            for layer, (activation, _) in shot.read.items():
                head = find_head(passes.model, layer, activation[::per_row], scores)
                weights = head.weight.float()[classes.to(head.weight.device)]
                raws[layer] = torch.einsum("nc,nc...->n...", weights, activation)
        return Evidence(raws, {}, shot)


def _class_scores(shot: Shot) -> torch.Tensor:
    """The model's class scores (B, classes).

    Raises:
        OutputError: it returns something else.
        TargetError: something else of them is explained.
    """
    if not isinstance(shot.output, torch.Tensor) or shot.output.dim() != 2:
        raise OutputError(
            "CAM explains the class scores (batch, classes) of a linear head, and this model returns something else. "
            "Say by output=... where its class scores are, or choose GradCAM."
        )
    for row in shot.aims.targets:
        for one in row:
            if type(one) is not ClassScore:
                raise TargetError(
                    f"CAM explains the score of a class alone, by the head's weights for it; asked for is {one!r}. "
                    "Give class indices, or choose GradCAM, which explains any target."
                )
    return shot.output
