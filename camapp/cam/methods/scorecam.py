"""Score-CAM."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from camapp.backbones.load import LoadedModel
from camapp.cam.engine import LayerChoice, Method
from camapp.cam.evidence import Evidence
from camapp.cam.passes import Passes
from camapp.cam.replay import checked_count, layer_maps, picture_scores, weighted_maps
from camapp.cam.result import FLAT
from camapp.cam.shot import Shot

_LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}


class ScoreCAM(Method):
    r"""Score-CAM: each channel of the layer, weighted by the score of the picture as that channel masks it.

    With the picture :math:`X`, bilinear upsampling :math:`\mathrm{Up}` to its size and min-max scaling :math:`s` to
    [0, 1], the mask of channel :math:`k` is :math:`H^k = s(\mathrm{Up}(A^k))`, its increase of confidence over a
    baseline picture :math:`X_b` is :math:`C_k`, and

    .. math:: C_k = f^c(X \circ H^k) - f^c(X_b), \qquad
              \alpha^c_k = \frac{\exp C_k}{\sum_i \exp C_i}, \qquad
              L^c = \sum_k \alpha^c_k A^k .

    The baseline is the zero input, the mean picture of the training data. It never runs: it is the same number in every
    :math:`C_k`, and the softmax over the channels does not see it.

    A channel of one value everywhere masks nothing; it gets no mask, takes no part in the softmax and has the weight
    zero (grad-cam gives it the score of the zero input). grad-cam upsamples by the corners of the map instead of the
    centres of its cells (``align_corners=True``), torchcam scales to [0, 1] before it upsamples; both leave the rest
    as it is here. The score is that of the target, the logit of a class; ``ClassProbability`` gives the probability,
    as the paper's own code has it. All weights are positive, so that behind a ReLU the map is too.

    Cost: one run of the whole network for each channel, all K targets from the same ones.

    Args:
        model: as for every method.
        layer: as for every method.
        output: as for every method.
        fuse: as for every method.
        top_channels: run only the N channels of each picture that vary most over its places, by their variance: a mask
            is scaled to [0, 1], so that a channel of high mean and little variation would show mostly its noise.
        batch_size: how many masked pictures run at once; by default as many as fit into 5 MB, 8 of 3 x 224 x 224.
            The maps do not depend on it.
        align_corners: upsample the masks as grad-cam does.

    Raises:
        UsageError: a number of channels or a batch size that is no positive whole number.

    Source: Wang et al., "Score-CAM: Score-Weighted Visual Explanations for Convolutional Neural Networks", CVPR
    Workshops 2020, definitions 2 and 3 (increase of confidence), 4 (map), and algorithm 1 (softmax).

    Example:
        >>> result = ScoreCAM(model, top_channels=64)(inputs, progress=print)
        >>> result.notes
        ('top 64 of 1280 channels',)
    """

    name = "scorecam"
    title = "Score-CAM"
    cost = "a forward for each channel"
    runs_many = True

    def __init__(
        self,
        model: nn.Module | LoadedModel,
        layer: LayerChoice = None,
        *,
        output: Any = None,
        fuse: str | None = None,
        top_channels: int | None = None,
        batch_size: int | None = None,
        align_corners: bool = False,
    ) -> None:
        super().__init__(model, layer, output=output, fuse=fuse)
        self.top_channels = None if top_channels is None else checked_count("top_channels", top_channels)
        self.batch_size = None if batch_size is None else checked_count("batch_size", batch_size)
        self.align_corners = align_corners

    @property
    def versions(self) -> int:
        """How many masked pictures there are of each channel."""
        return 1

    def masked(self, picture: torch.Tensor, masks: torch.Tensor, versions: torch.Tensor) -> torch.Tensor:
        """The masked pictures (n, C, *size) of a picture (1, C, *size), its masks (n, 1, *size) and versions (n,)."""
        return picture * masks

    def evidence(self, passes: Passes) -> Evidence:
        """The channels of each layer, weighted by the scores of the picture as they mask it."""
        shot = layer_maps(passes)
        layers = {layer: maps for layer, (maps,) in shot.read.items()}
        chosen = {layer: self._chosen(maps) for layer, maps in layers.items()}
        passes.watch.expect(self.versions * sum(len(each) for rows in chosen.values() for each in rows))
        raws, notes = {}, []
        for layer, maps in layers.items():
            raws[layer] = weighted_maps(self.weights(passes, shot, layer, chosen[layer]), maps)
            if self.top_channels is not None and self.top_channels < maps.shape[1]:
                notes.append(f"top {self.top_channels} of {maps.shape[1]} channels")
        return Evidence(raws, {}, shot, tuple(dict.fromkeys(notes)))

    def weights(self, passes: Passes, shot: Shot, layer: str, chosen: list[torch.Tensor]) -> torch.Tensor:
        """The weights (B, K, C) of a layer's channels; zero but for those chosen for each picture."""
        maps = shot.read[layer][0]
        return torch.stack([self._of_row(passes, shot, row, maps[row], each) for row, each in enumerate(chosen)])

    def _chosen(self, maps: torch.Tensor) -> list[torch.Tensor]:
        """For each picture, the channels that get a mask."""
        flat = maps.flatten(2)
        low, high = flat.amin(2), flat.amax(2)
        varies = high - low > FLAT * torch.maximum(high, -low)
        spread = flat.var(2, correction=0).masked_fill(~varies, -1.0)
        order = spread.sort(dim=1, descending=True, stable=True).indices[:, : self.top_channels]
        return [row[has[row]].sort().values for row, has in zip(order, varies, strict=True)]

    def _of_row(self, passes: Passes, shot: Shot, row: int, maps: torch.Tensor, channels: torch.Tensor) -> torch.Tensor:
        """The weights (K, C) of one picture's channels."""
        weights = maps.new_zeros(passes.plan.per_row, len(maps))
        if len(channels) == 0:
            return weights

        def alter(picture: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
            masks = self._masks(maps[channels[numbers // self.versions]], tuple(picture.shape[2:]))
            return self.masked(picture, masks, numbers % self.versions)

        count = self.versions * len(channels)
        scores = picture_scores(passes, shot, row, count, alter, self.batch_size)
        weights[:, channels] = scores.float().unflatten(0, (len(channels), self.versions)).mean(1).softmax(0).T
        return weights

    def _masks(self, maps: torch.Tensor, size: tuple[int, ...]) -> torch.Tensor:
        """Channels (n, *grid) as masks (n, 1, *size) from 0 to 1."""
        mode = _LINEAR[len(size)]
        masks = F.interpolate(maps[:, None], size=size, mode=mode, align_corners=self.align_corners)
        axes = tuple(range(1, masks.dim()))
        low, high = masks.amin(axes, keepdim=True), masks.amax(axes, keepdim=True)
        return masks.sub_(low).div_(torch.where(high > low, high - low, 1.0))
