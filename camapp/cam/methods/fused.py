"""Fused: Grad-CAM at the last map and LayerCAM at finer ones, of the picture and its mirror image."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from camapp.backbones.recommend import stages
from camapp.cam.engine import Method
from camapp.cam.evidence import Evidence
from camapp.cam.layer_method import shoot
from camapp.cam.methods.gradcam import GradCAM
from camapp.cam.methods.products import LayerCAM
from camapp.cam.methods.smooth import NOT_MIRRORED, has_no_places
from camapp.cam.passes import Passes
from camapp.cam.shot import Shot
from camapp.cam.targets.output import Output
from camapp.cam.targets.plan import Aims, Plan


class Fused(Method):
    r"""A sharper map: where Grad-CAM at the last map and LayerCAM at finer ones agree, seen from both sides.

    With the layers :math:`l_1` (the last map), :math:`l_2, \dots, l_n`, and :math:`\bar{M}` the mean of the raw map of
    the picture and of its mirror image, mirrored back,

    .. math:: L = \Big( N(\bar{M}^{GradCAM}_{l_1}) \, \prod_{i=2}^{n} N(\bar{M}^{LayerCAM}_{l_i}) \Big)^{1/n} ,

    where :math:`N` takes the positive part, resizes it to the input and stretches it to [0, 1]. Without layers named:
    the recommended one, then the activated map before it at its resolution, and the last at a finer one
    (``camapp.backbones.recommend.stages``). A single layer is read both ways.

    What it is: a composition found by trying, that follows the outline of an object better than each of its parts; the
    last map says which object, the finer ones where it ends. What it is not: a method with axioms or a paper, nor any
    truer than its parts. A place where one of the maps is nothing is nothing here, its values add up to no score, and
    of several objects the weaker ones may fade. For what speaks against the class (``sign="negative"``) LayerCAM takes
    the negative part of the gradients.

    Only pictures (B, C, H, W) are mirrored, left for right, and only where the model gives a vector for each, such as
    class scores; otherwise the parts are those of the input alone, and a note says so. Cost: one forward of 2B
    pictures, and one backward behind the finest layer; for other inputs of B.

    Args:
        model: as for every method.
        layer: the last layer, then finer ones.
        output: as for every method.
        fuse: "geometric", or another way to make one map of the parts.

    Source: none; its parts are Selvaraju et al., ICCV 2017, and Jiang et al., IEEE TIP 2021.
    """

    name = "fused"
    title = "Sharper (fused)"
    cost = "one forward and one backward, of two pictures"
    differentiable = True
    fuse = "geometric"

    def default_layers(self, inputs: torch.Tensor) -> tuple[str, ...]:
        """The recommended layer, and a coarse and a fine one before it."""
        found = stages(self.model, inputs)
        return found.last, found.coarse, found.fine

    def evidence(self, passes: Passes) -> Evidence:
        """One pass over the pictures and their mirror images together; over the pictures alone where that cannot be."""
        if passes.inputs.dim() != 4:
            return self._read(passes, shoot(passes, self._readers()), NOT_MIRRORED)
        both = passes.on(torch.cat([passes.inputs, passes.inputs.flip(-1)]))
        try:
            shot = shoot(replace(both, plan=_Mirrored(**vars(passes.plan))), self._readers())
        except _HasPlaces:
            return self._read(passes, shoot(passes, self._readers()), NOT_MIRRORED)
        return self._read(passes, _mirrored_back(shot))

    def _readers(self) -> list[GradCAM | LayerCAM]:
        return [GradCAM(self.model), LayerCAM(self.model), _AgainstLayerCAM(self.model)]

    def _read(self, passes: Passes, shot: Shot, *notes: str) -> Evidence:
        """The parts: Grad-CAM of the first layer, LayerCAM of the others (of the only one), for and against."""
        last, *finer = passes.layers
        coarse = {f"{GradCAM.name}:{last}": shot.read[last][0]}
        supports, opposes = dict(coarse), dict(coarse)
        for layer in finer or (last,):
            _, supports[f"{LayerCAM.name}:{layer}"], opposes[f"{LayerCAM.name}:{layer}"], _ = shot.read[layer]
        return Evidence(supports, {last: shot.read[last][-1]}, shot, notes, opposes)


class _AgainstLayerCAM(LayerCAM):
    """What LayerCAM shows of the negated score, negative."""

    def weigh(self, activation: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        return -super().weigh(activation, -gradient)


class _HasPlaces(Exception):  # noqa: N818 - a signal to this room
    """What the model returns has places, which would have to be mirrored with the picture."""


@dataclass(frozen=True)
class _Mirrored(Plan):
    """A plan for pictures and then their mirror images, explained for the same things."""

    def settle(self, output: Output) -> Aims:
        pictures = output[: len(output) // 2]
        if not has_no_places(pictures):
            raise _HasPlaces
        return Aims(super().settle(pictures).targets * 2)


def _mirrored_back(shot: Shot) -> Shot:
    """The shot of 2B pictures as one of B, whose readings are the mean with the mirror image's mirrored back."""
    rows = len(shot.output) // 2
    half = rows * shot.scores.shape[1]
    read = {}
    for layer, (*raws, reached) in shot.read.items():
        means = [(raw[:half] + raw[half:].flip(-1)) / 2 for raw in raws]
        read[layer] = (*means, reached[:half] | reached[half:])
    return replace(
        shot, read=read, aims=Aims(shot.aims.targets[:rows]), scores=shot.scores[:rows], output=shot.output[:rows]
    )
