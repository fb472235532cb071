"""Many changed copies of each picture, scored in chunks; and which pixels are changed first."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from camapp.cam.metrics.sample import Sample

Write: TypeAlias = Callable[[Tensor, int, int, int], None]
"""(out (n, C, H, W), row, first, last): write the n variants first to last - 1 of picture ``row`` into ``out``."""


def score_variants(sample: Sample, variants: int, write: Write, batch_size: int) -> Tensor:
    """Score ``variants`` changed copies of each picture, never more than ``batch_size`` of them in memory.

    Args:
        sample: B pictures. The copies are laid out as they are: channels last spares a model that wants them so a copy.
        variants: how many copies of each there are.
        write: makes them, in place: the memory is the same for all chunks.
        batch_size: pictures in one call of the score; the copies of several pictures share one.

    Returns:
        (B, variants) float32, on the sample's device.
    """
    inputs, total = sample.inputs, len(sample) * variants
    scores = torch.empty(total, device=inputs.device)
    rows = torch.arange(len(sample), device=inputs.device).repeat_interleave(variants)
    layout = torch.contiguous_format if inputs.is_contiguous() else torch.channels_last
    memory = torch.empty_like(inputs[:1].expand(min(batch_size, total), -1, -1, -1), memory_format=layout)
    for start in range(0, total, batch_size):
        stop = min(start + batch_size, total)
        for row in range(start // variants, (stop - 1) // variants + 1):
            first, last = max(start, row * variants), min(stop, (row + 1) * variants)
            write(memory[first - start : last - start], row, first - row * variants, last - row * variants)
        scores[start:stop] = sample.scored(memory[: stop - start], sample.targets[rows[start:stop]])
    return scores.view(len(sample), variants)


def pixel_ranks(maps: Tensor, seed: int = 0) -> Tensor:
    """Each pixel's place in the order of falling relevance: 0 for the most relevant.

    Pixels of the same value, of which maps have many where they are zero, come in a pseudo-random order that depends on
    the seed and the map's size only. In the order of memory they would go from top to bottom, and a map without any
    information would be rewarded wherever objects lie at the top.

    Args:
        maps: (B, H, W).
        seed: of the order of equal pixels.

    Returns:
        (B, H, W) int64.
    """
    pixels = maps[0].numel()
    shuffled = torch.from_numpy(np.random.default_rng(seed).permutation(pixels)).to(maps.device)
    by_relevance = maps.flatten(1)[:, shuffled].sort(dim=1, descending=True, stable=True).indices
    order = shuffled[by_relevance]
    places = torch.arange(pixels, device=maps.device).expand_as(order)
    return torch.empty_like(order).scatter_(1, order, places).view(maps.shape)
