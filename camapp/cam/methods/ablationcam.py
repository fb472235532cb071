"""Ablation-CAM."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from camapp.backbones.load import LoadedModel
from camapp.cam.engine import LayerChoice, Method
from camapp.cam.evidence import Evidence
from camapp.cam.passes import Passes
from camapp.cam.replay import LayerReplay, checked_count, layer_maps, weighted_maps
from camapp.cam.shot import Shot
from camapp.hooks.attention import precise


class AblationCAM(Method):
    r"""Ablation-CAM: each channel of the layer, weighted by the share of the score that is lost without it.

    With the score :math:`y^c`, and :math:`y^c_k` what is left of it when channel :math:`k` is zero everywhere,

    .. math:: w^c_k = \frac{y^c - y^c_k}{|y^c|}, \qquad L^c = \sum_k w^c_k A^k .

    ``raw`` is :math:`L^c`, signed; ``maps`` are made of its positive part. A weight of 0.1 says that a tenth of the
    score is lost. Of a token layer the patches are ablated, not the class token: the map shows the patches.

    The paper divides by :math:`y^c`, which is the same for a positive score. For a negative one that would turn every
    sign, and the map would show what speaks *against* the class (grad-cam's does); a drop is a drop here, whatever the
    sign of the score. A score of exactly zero has no shares: the weights are then the drops themselves. (The paper
    defines the weight as the slope :math:`(y^c - y^c_k) / \lVert A^k \rVert` first, and puts :math:`y^c` in the place
    of the norm because the norm is much larger than the drop.) grad-cam ablates by zero as here only where the smallest
    activation of the layer is zero, as behind a ReLU; elsewhere it writes a large negative number, so that its weights
    differ.

    Cost: of a layer with C channels, C + 1 runs of the network *behind* the layer, all K targets from the same ones,
    in one batch where the copies fit into 256 MB; the network before the layer runs once a batch. Where the network
    cannot take the copies at the layer, C + 1 runs of all of it, with the same result.

    Args:
        model: as for every method.
        layer: as for every method.
        output: as for every method.
        fuse: as for every method.
        batch_size: how many copies run at once; by default as many as fit into 256 MB. The maps do not depend on it.

    Raises:
        UsageError: a batch size that is no positive whole number.

    Source: Desai and Ramaswamy, "Ablation-CAM: Visual Explanations for Deep Convolutional Network via Gradient-free
    Localization", WACV 2020, section 3.

    Example:
        >>> result = AblationCAM(model, "layer4")(inputs, targets=[[281, 285]])
    """

    name = "ablationcam"
    title = "Ablation-CAM"
    cost = "the network behind the layer again for each channel"
    runs_many = True

    def __init__(
        self,
        model: nn.Module | LoadedModel,
        layer: LayerChoice = None,
        *,
        output: Any = None,
        fuse: str | None = None,
        batch_size: int | None = None,
    ) -> None:
        super().__init__(model, layer, output=output, fuse=fuse)
        self.batch_size = None if batch_size is None else checked_count("batch_size", batch_size)

    def evidence(self, passes: Passes) -> Evidence:
        """The channels of each layer, weighted by what is lost without them."""
        shot = layer_maps(passes)
        layers = {layer: maps for layer, (maps,) in shot.read.items()}
        passes.watch.expect(sum(len(maps) * (maps.shape[1] + 1) for maps in layers.values()))
        raws, reached = {}, {}
        for layer, maps in layers.items():
            weights = self.weights(passes, shot, layer)
            raws[layer] = weighted_maps(weights, maps)
            reached[layer] = (weights != 0).any(2).flatten()
        return Evidence(raws, reached, shot)

    def weights(self, passes: Passes, shot: Shot, layer: str) -> torch.Tensor:
        """The weights (B, K, C) of a layer's channels."""
        rows, channels = shot.read[layer][0].shape[:2]
        replay = LayerReplay(passes, shot, layer, self.batch_size)
        # the first copy is whole: the drops are differences of scores from the same batch
        scores = torch.stack([replay.scores(row, channels + 1, _ablate) for row in range(rows)])
        return slope_weights(scores[:, 0], scores[:, 1:])


def slope_weights(whole: torch.Tensor, ablated: torch.Tensor) -> torch.Tensor:
    """The weights (B, K, C) from the scores with all channels (B, K) and without each of them (B, C, K)."""
    whole, ablated = (precise(scores) for scores in (whole, ablated))
    scale = whole.abs()[:, None]
    return ((whole[:, None] - ablated) / torch.where(scale == 0, 1.0, scale)).transpose(1, 2)


def _ablate(maps: torch.Tensor, numbers: torch.Tensor) -> None:
    """Set channel n - 1 of row n to zero; number 0 stays whole."""
    rows = numbers.nonzero().flatten()
    maps[rows, numbers[rows] - 1] = 0
