"""How alike maps are: Pearson, Spearman, overlap of the hottest, SSIM, correlation of histograms of gradients."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F


def pearson(first: Tensor, second: Tensor) -> Tensor:
    """The correlation of each pair of maps, both (B, H, W): (B,) float64 in [-1, 1], NaN where one is constant."""
    one, other = (maps.double().flatten(1) for maps in (first, second))
    constant = (one == one[:, :1]).all(1) | (other == other[:, :1]).all(1)
    one, other = one - one.mean(1, keepdim=True), other - other.mean(1, keepdim=True)
    correlation = (one * other).sum(1) / (one.norm(dim=1) * other.norm(dim=1))
    return torch.where(constant, torch.nan, correlation.clamp(-1, 1))


def spearman(first: Tensor, second: Tensor) -> Tensor:
    """The correlation of the ranks of each pair of maps, both (B, H, W): (B,) float64, NaN where one is constant.

    Equal values share the mean of their ranks.
    """
    return pearson(_ranks(first), _ranks(second))


def spearman_matrix(maps: Tensor) -> Tensor:
    """``spearman`` of each of N maps (N, H, W) with each: (N, N) float64, NaN where one is constant.

    The ranks are found once a map, which takes far longer than to correlate them.
    """
    ranks = _ranks(maps)
    return torch.stack([pearson(one.expand_as(ranks), ranks) for one in ranks])


def overlap_matrix(maps: Tensor, share: float = 0.2) -> Tensor:
    """How far the hottest parts of N maps agree: the intersection over union of each with each.

    A map's hottest part is the ``share`` of its pixels of the highest values. What is as hot as the last of them is in
    too; what is 0 or less is not hot, so that a map which is 0 nearly everywhere has a smaller part.

    Args:
        maps: (N, H, W).
        share: of the pixels, above 0 and at most 1.

    Returns:
        (N, N) float64 in [0, 1], NaN where a map is constant or nowhere above 0.
    """
    values = maps.flatten(1)
    count = max(1, round(share * values.shape[1]))
    edge = values.topk(count).values[:, -1:]
    hot = ((values >= edge) & (values > 0)).double()
    hot[(values == values[:, :1]).all(1)] = 0
    inside = hot.sum(1)
    both = hot @ hot.T
    union = inside[:, None] + inside - both
    known = (inside > 0)[:, None] & (inside > 0)
    return torch.where(known, both / union, torch.nan)


def ssim(first: Tensor, second: Tensor, *, window: int = 11, sigma: float = 1.5, value_range: float = 1.0) -> Tensor:
    """The structural similarity of each pair of maps, both (B, H, W): (B,) float64 in [-1, 1].

    Means, variances and covariance under a Gaussian window, wherever it lies inside the map; the mean over all places.

    Source: Wang et al., "Image Quality Assessment: From Error Visibility to Structural Similarity", 2004, equation 13,
    with its constants 0.01 and 0.03.

    Args:
        first: one map each.
        second: the other.
        window: side of the window in pixels; no more than the map's shorter side.
        sigma: its standard deviation in pixels.
        value_range: what the maps' values can span.
    """
    side = min(window, *first.shape[-2:])
    places = torch.arange(side, dtype=torch.float64, device=first.device) - (side - 1) / 2
    line = torch.exp(-0.5 * (places / sigma) ** 2)
    kernel = (line[:, None] * line / line.sum() ** 2)[None, None]
    one, other = (maps.double()[:, None] for maps in (first, second))
    mean_one, mean_other, square_one, square_other, product = (
        F.conv2d(part, kernel) for part in (one, other, one * one, other * other, one * other)
    )
    variances = square_one - mean_one**2 + square_other - mean_other**2
    covariance = product - mean_one * mean_other
    low, high = (0.01 * value_range) ** 2, (0.03 * value_range) ** 2
    quality = (2 * mean_one * mean_other + low) * (2 * covariance + high)
    return (quality / ((mean_one**2 + mean_other**2 + low) * (variances + high))).mean((1, 2, 3))


def hog_pearson(first: Tensor, second: Tensor, *, cell: int = 16) -> Tensor:
    """The Pearson correlation of ``gradient_histograms`` of each pair of maps: (B,) float64, NaN where one has no edge.

    Source: Adebayo et al., "Sanity Checks for Saliency Maps", NeurIPS 2018, section 3 (which does not give the sizes).
    """
    one, other = (gradient_histograms(maps, cell=cell) for maps in (first, second))
    return pearson(one[:, None], other[:, None])


def gradient_histograms(maps: Tensor, *, cell: int = 16, bins: int = 9, block: int = 3) -> Tensor:
    """Histograms of oriented gradients: (B, features) float64.

    Central differences; in each cell the sum of the gradients' lengths by their direction, without regard to sign;
    blocks of cells, one cell apart, normalised to length 1, cut at 0.2 and normalised again.

    Source: Dalal and Triggs, "Histograms of Oriented Gradients for Human Detection", CVPR 2005.

    Args:
        maps: (B, H, W).
        cell: side of a cell in pixels; smaller where fewer than ``block`` would fit into a map's side.
        bins: directions from 0 to 180 degrees.
        block: side of a block in cells; fewer where a map has no more.
    """
    shortest = min(maps.shape[-2:])
    cell = max(1, min(cell, shortest // block))
    block = min(block, shortest // cell)
    down, right = torch.gradient(maps.double(), dim=(1, 2))
    # An edge kept off the bins' borders, where rounding would decide: 0 and 90 degrees lie in the middle of a bin.
    angle = torch.atan2(down, right) * (bins / math.pi)
    direction = (angle.round().long() % bins)[:, None]
    lengths = torch.zeros(len(maps), bins, *maps.shape[1:], dtype=torch.float64, device=maps.device)
    lengths.scatter_(1, direction, torch.hypot(down, right)[:, None])
    cells = F.avg_pool2d(lengths, cell)
    blocks = cells.unfold(2, block, 1).unfold(3, block, 1).permute(0, 2, 3, 1, 4, 5).flatten(3)
    cut = _unit(blocks).clamp(max=0.2)
    return _unit(cut).flatten(1)


def _unit(vectors: Tensor) -> Tensor:
    return vectors / vectors.norm(dim=-1, keepdim=True).clamp(min=1e-12)


def _ranks(maps: Tensor) -> Tensor:
    """Each value's place among those of its map, from 1; equal values share the mean of their places."""
    ranks = []
    for values in maps.flatten(1):
        _, place, counts = values.unique(return_inverse=True, return_counts=True)
        last = counts.cumsum(0).double()
        ranks.append((last - (counts - 1) / 2)[place])
    return torch.stack(ranks).view(maps.shape)
