"""RefineCAM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from camapp.backbones.load import LoadedModel
from camapp.backbones.recommend import stages
from camapp.cam.engine import LayerChoice, Method
from camapp.cam.evidence import Evidence
from camapp.cam.methods.products import LayerCAM
from camapp.cam.methods.wrapper import Wrapper
from camapp.cam.passes import Passes
from camapp.cam.targets.output import How
from camapp.errors import UsageError


class RefineCAM(Wrapper):
    r"""RefineCAM: the product of several layers' maps, so that the later ones silence the noise of the finer ones.

    With :math:`M_l` the base's map at the layer :math:`l`, its positive part resized to the input,

    .. math:: L = \prod_l \frac{M_l - \min M_l}{\max M_l - \min M_l} .

    Without a layer named: the recommended one, and two before it (``camapp.backbones.recommend.stages``). The base is
    LayerCAM, which keeps to the object at finer layers too; grad-cam and torch-cam begin with Grad-CAM++. grad-cam
    normalises a copy and multiplies by what was not normalised again; here each map is stretched. A place that one
    layer holds for nothing is nothing in the product: the maps are small and sharp, and blank where a layer's is. Cost:
    the base's, which for methods that read a layer is one forward and one backward for all layers together.

    Args:
        model: as for every method.
        layer: two layers or more.
        base: the method asked at each layer, a class or a name.
        base_options: what the base's constructor takes.
        output: as for every method.
        fuse: "product", or another way to make one map of the layers'.

    Raises:
        UsageError: a single layer, or a base that looks at no layer.

    Source: the ``RefineCAM`` of grad-cam and of torch-cam, which name arXiv 2605.14641, "How to Evaluate and Refine
    your CAM"; the paper itself was not opened for this.
    """

    name = "refinecam"
    title = "RefineCAM"
    fuse = "product"

    def __init__(
        self,
        model: nn.Module | LoadedModel,
        layer: LayerChoice = None,
        *,
        base: type[Method] | str = LayerCAM,
        base_options: Mapping[str, Any] | None = None,
        output: How = None,
        fuse: str | None = None,
    ) -> None:
        fuse = self.fuse if fuse is None else fuse
        super().__init__(model, layer, base=base, base_options=base_options, output=output, fuse=fuse)
        if not self.base.takes_layer:
            raise UsageError(f"{self.base.title} looks at the whole network; RefineCAM multiplies maps of layers.")
        if len(self.layers) == 1:
            raise UsageError(
                f"layer={layer!r} is one layer; RefineCAM multiplies the maps of several. Name two or more, or none, "
                "which takes the recommended ones."
            )

    def default_layers(self, inputs: torch.Tensor) -> tuple[str, ...]:
        """The recommended layer and two finer or earlier ones."""
        found = stages(self.model, inputs)
        return found.fine, found.coarse, found.last

    def evidence(self, passes: Passes) -> Evidence:
        """The base's at all layers."""
        return self.base.evidence(passes)
