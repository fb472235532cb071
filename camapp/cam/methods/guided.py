"""Guided backpropagation, and Guided Grad-CAM."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import nn

from camapp.backbones.load import LoadedModel
from camapp.cam.engine import LayerChoice, Method
from camapp.cam.evidence import Evidence
from camapp.cam.from_input import any_gradient, backward_each, from_input
from camapp.cam.layer_method import read_evidence, shoot
from camapp.cam.methods.gradcam import GradCAM
from camapp.cam.passes import Passes
from camapp.cam.result import resize
from camapp.cam.shot import Shot
from camapp.cam.targets.output import How
from camapp.cam.targets.plan import Targets
from camapp.cam.watch import Watch
from camapp.hooks.as_found import as_found
from camapp.hooks.guided import SMOOTH, Guided


class _GuidedMethod(Method):
    """What the two methods share: a gradient in colour, of which the map is the sum over the channels."""

    def gradients(self, inputs: torch.Tensor, targets: Targets | None = None) -> torch.Tensor:
        """The picture that papers show: signed values for each channel of the input, as they are.

        Args:
            inputs: as for calls.
            targets: as for calls.

        Returns:
            (B, C, *size) float32, or (B, K, C, *size) where there are several targets a picture.

        Raises:
            UsageError, TargetError, LayerError, OutputError: as calls.
        """
        ready = self.ready(inputs, targets, False, Watch())
        with as_found(self.model):
            passes = ready()
            colours = next(iter(self._colours(passes)[0].values())).float()
        return colours if passes.plan.single else colours.unflatten(0, (len(passes.inputs), passes.plan.per_row))

    def evidence(self, passes: Passes) -> Evidence:
        """The channels' sums."""
        colours, reached, shot, notes = self._colours(passes)
        return Evidence({key: one.sum(1).float() for key, one in colours.items()}, reached, shot, notes)

    @abstractmethod
    def _colours(
        self, passes: Passes
    ) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor], Shot, tuple[str, ...]]:
        """By layer the signed values (N, C, *size) and which of the N any gradient reaches; the shot, and notes."""


class GuidedBackprop(_GuidedMethod):
    r"""Guided backpropagation: the gradient of the score in the picture, passing rectifiers only where it is positive.

    At each ReLU :math:`y = \max(x, 0)` what flows back, :math:`R_y`, goes on as

    .. math:: R_x = [x > 0] \; [R_y > 0] \; R_y .

    Of rectifiers with a derivative :math:`f'` of their own (GELU, SiLU, leaky ReLU, ...), which the paper does not
    treat, what comes from above loses its negative part and then meets the activation's own derivative,
    :math:`R_x = f'(x) \, [R_y > 0] \, R_y`; a note says so. ReLUs are found in every form: modules, functions, methods
    of tensors, in place or not, ReLU6 and hard tanh among them; written by ``clamp`` or ``maximum`` they are not.

    ``raw`` is the sum over the colour channels, signed, at the input's size; ``gradients`` gives the channels. These
    pictures are sharp because they follow the picture's edges: they change little when the classifier's weights are
    drawn anew (Adebayo et al., "Sanity Checks for Saliency Maps", NeurIPS 2018). Cost: one forward, and for each target
    one backward through the whole network.

    Source: Springenberg et al., "Striving for Simplicity: The All Convolutional Net", ICLR workshop 2015, section 3.4.

    Example:
        >>> colours = camapp.cam.GuidedBackprop(model).gradients(inputs, targets=281)
        >>> colours.shape
        torch.Size([1, 3, 224, 224])
    """

    name = "guidedbackprop"
    title = "Guided Backpropagation"
    cost = "one forward, and one backward through the whole network"
    takes_layer = False

    def _colours(
        self, passes: Passes
    ) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor], Shot, tuple[str, ...]]:
        guided, shot, notes = _guided_gradients(passes)
        return {"": guided}, {"": any_gradient(guided)}, shot, notes


class GuidedGradCAM(_GuidedMethod):
    r"""Guided Grad-CAM: the guided gradient of the picture, times the positive part of a layer's Grad-CAM map.

    With the guided gradient :math:`R` and the Grad-CAM map :math:`L^c` of the layer, made as large as the picture,

    .. math:: R \odot \mathrm{upsample}(\max(L^c, 0)) .

    ``raw`` is the sum over the colour channels, signed, at the input's size; ``gradients`` gives the channels (of the
    first layer, where there are several). Cost: Grad-CAM's and guided backpropagation's together: two forwards, and for
    each target a backward through the whole network.

    Source: Selvaraju et al., "Grad-CAM: Visual Explanations from Deep Networks via Gradient-based Localization",
    ICCV 2017, section 3.2 (by bilinear interpolation, as there; captum's default is the nearest cell).

    Example:
        >>> result = camapp.cam.GuidedGradCAM(model, "layer4")(inputs, targets=281)
    """

    name = "guidedgradcam"
    title = "Guided Grad-CAM"
    cost = "two forwards, and two backwards, one of them through the whole network"

    def __init__(
        self, model: nn.Module | LoadedModel, layer: LayerChoice = None, *, output: How = None, fuse: str | None = None
    ) -> None:
        super().__init__(model, layer, output=output, fuse=fuse)
        self._gradcam = GradCAM(model)

    def _colours(
        self, passes: Passes
    ) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor], Shot, tuple[str, ...]]:
        cam = read_evidence(shoot(passes, [self._gradcam]), 0)
        guided, _, notes = _guided_gradients(passes.aiming(cam.shot.aims))
        size = tuple(passes.inputs.shape[2:])
        colours = {layer: guided * resize(raw.relu(), size)[:, None] for layer, raw in cam.raws.items()}
        reached = {layer: one & any_gradient(guided) for layer, one in cam.reached.items()}
        return colours, reached, cam.shot, notes


def _guided_gradients(passes: Passes) -> tuple[torch.Tensor, Shot, tuple[str, ...]]:
    """The guided gradients of the inputs (N, C, *size), the shot, and what a user should know about them."""
    with Guided() as guided:
        run = from_input(passes)
        # Within: a model that runs parts of its forward again during the backward is guided there too.
        each = [_first(found) for found in backward_each(run.scores, [run.inputs])]
    return torch.stack(each, dim=1).flatten(0, 1), run.shot, _notes(guided.seen)


def _first(found: list[Any]) -> torch.Tensor:
    (gradient,) = found
    return gradient


def _notes(seen: dict[str, int]) -> tuple[str, ...]:
    if not seen:
        return ("no ReLU or its like was seen in this network, so there was nothing to guide: its plain gradient",)
    smooth = sorted(kind for kind in seen if kind in SMOOTH)
    if not smooth:
        return ()
    return (
        f"guided backpropagation is made for ReLU; at {', '.join(smooth)} the negative part of what comes from above "
        "is removed, and the rest passes by the activation's own derivative",
    )
