"""The maps of one forward in their order, and a coarse and a fine one before the last, for methods that fuse layers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from math import prod

import torch
from torch import nn

from camapp.backbones.layouts import Layout, map_layout, within_attention
from camapp.errors import LayerError
from camapp.hooks.trace import Call

# Classes whose modules only pass on what the layer before them gave.
PASSING_ON = ("Identity", "Dropout", "DropPath", "Dropout2d", "Dropout3d", "StochasticDepth", "DropBlock2d")

_GATES = ("sigmoid", "softmax")  # "Hardsigmoid" too: what they give weighs a map, and is none
_ACTIVATIONS = ("relu", "elu", "swish", "silu", "mish", "softplus")  # in "GELU", "ReLU6", "Hardswish", ...


@dataclass(frozen=True)
class Stages:
    """Three layers of one network, from the last to a finer one, each a name or ``name@call``.

    Args:
        last: the recommended layer.
        coarse: the last activated map at the resolution of ``last`` before it.
        fine: the last activated map at about twice that resolution. In a transformer, whose tokens have one
            resolution, ``coarse`` and ``fine`` lie at three quarters and at half of its depth. In a network with no
            other activated map at its last resolution, as one that ends with a pooling, both are one step finer.
    """

    last: str
    coarse: str
    fine: str


@dataclass(frozen=True)
class MapCall:
    """One call that gives a map: the name of that call, how it lies, and its place in the order of the calls."""

    key: str
    call: Call
    layout: Layout
    index: int


def maps_of(model: nn.Module, inputs: torch.Tensor, calls: list[Call]) -> Iterator[MapCall]:
    """The calls that give a map; those of a module that runs once by its name, others by ``name@call``."""
    totals: dict[str, int] = {}
    for call in calls:
        totals[call.name] = totals.get(call.name, 0) + 1
    seen: dict[str, int] = {}
    for index, call in enumerate(calls):
        number = seen.get(call.name, 0)
        seen[call.name] = number + 1
        layout = map_layout(model, call.name, call.outputs, inputs.shape)
        if layout:
            key = call.name if totals[call.name] == 1 else f"{call.name}@{number}"
            yield MapCall(key, call, layout, index)


def find_stages(model: nn.Module, maps: list[MapCall], last: str) -> Stages:
    """The stages of a network whose maps are ``maps``, with what they span, and whose recommended layer is ``last``.

    Raises:
        LayerError: there are no such maps.
    """
    end = next(one for one in reversed(maps) if last in (one.key, one.call.name))
    earlier = [one for one in maps if one.index < end.index]
    by_depth = _stages_by_depth(earlier, end)
    if by_depth and end.layout.kind == "NLC" and _has_one_resolution(earlier):
        return by_depth
    activated = _activated(model, earlier, end)
    grids = {one.layout.grid: one for one in activated if _is_finer(one.layout.grid, end.layout.grid)}
    finer = sorted(grids, key=prod)  # of each grid the last map
    coarse = next((one for one in reversed(activated) if one.layout.grid == end.layout.grid), None)
    if coarse is not None and finer:
        return Stages(last, coarse.key, grids[finer[0]].key)
    if coarse is None and len(finer) > 1:
        return Stages(last, grids[finer[0]].key, grids[finer[1]].key)
    if by_depth:
        return by_depth
    raise LayerError(
        f'This {type(model).__name__} has no two maps after an activation before "{last}" of {_text(end.layout.grid)}, '
        "at its resolution and at a finer one, and no stack of three blocks or more. Explain one layer instead."
    )


def _has_one_resolution(maps: list[MapCall]) -> bool:
    tokens = {one.layout.grid for one in maps if one.layout.kind == "NLC"}
    return len(tokens) == 1


def _stages_by_depth(earlier: list[MapCall], end: MapCall) -> Stages | None:
    """The same place in earlier blocks of a stack, at three quarters and at half of its depth."""
    keys = list(dict.fromkeys(one.key for one in earlier if one.layout.grid == end.layout.grid))
    alike = [key for key in keys if _pattern(key) == _pattern(end.key)]
    if len(alike) > 1:  # the norm of a block, say: the same norm of earlier blocks
        depth = len(alike) + 1
        coarse = min(round(0.75 * depth), depth - 2)
        fine = min(depth // 2, coarse - 1)
        return Stages(end.key, alike[coarse], alike[fine])
    stacks: dict[str, list[str]] = {}  # numbered modules beside each other
    for key in keys:
        if re.search(r"\d$", key):
            stacks.setdefault(re.sub(r"\d+$", "", key), []).append(key)
    blocks = max(stacks.values(), key=len, default=[])
    if len(blocks) < 3:
        return None
    coarse = min(round(0.75 * len(blocks)), len(blocks) - (blocks[-1] == end.key)) - 1
    fine = min(len(blocks) // 2, coarse) - 1
    return Stages(end.key, blocks[coarse], blocks[fine])


def _pattern(key: str) -> str:
    """A name without the numbers of the blocks it lies in."""
    return re.sub(r"\d+(?=\.)", "#", key)


def _activated(model: nn.Module, earlier: list[MapCall], end: MapCall) -> list[MapCall]:
    """The maps that come after an activation: by the kind of their modules, or as the dry run saw no value below zero.

    Of modules that hand on one tensor only the last is named. Maps straight after a depthwise convolution are left out
    where there are others: a block's own expansion, or its sum, holds the mixed features.
    """
    found: list[tuple[MapCall, bool]] = []
    outside = [one for one in earlier if within_attention(model, one.call.name) is None]
    for tensor, group in groupby(outside, key=lambda one: one.call.tensor):
        chain = list(group)
        kinds = [type(one.call.module).__name__.lower() for one in chain]
        if tensor == end.call.tensor or any(other in kind for kind in kinds for other in (*_GATES, "pool")):
            continue
        lowest, highest = chain[-1].call.span or (-1.0, 0.0)
        if not any(word in kind for kind in kinds for word in _ACTIVATIONS) and not (lowest >= 0 and highest > 0):
            continue
        makers = [one for one in chain if type(one.call.module).__name__ not in PASSING_ON]
        if not makers:  # a shortcut, say, of what was found before
            continue
        once = [one for one in makers if "@" not in one.key] or makers
        found.append((once[-1], _after_depthwise(earlier, chain[0])))
    mixed = [one for one, depthwise in found if not depthwise]
    return mixed or [one for one, _ in found]


def _after_depthwise(earlier: list[MapCall], one: MapCall) -> bool:
    """Whether the layer with weights that worked last at this resolution was a depthwise convolution."""
    for before in reversed([other for other in earlier if other.index < one.index]):
        if before.layout.grid != one.layout.grid:
            continue
        if isinstance(before.call.module, nn.Linear):
            return False
        if isinstance(before.call.module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
            return before.call.module.groups == before.call.module.out_channels > 1
    return False


def _is_finer(grid: tuple[int, ...], than: tuple[int, ...]) -> bool:
    return prod(grid) > prod(than) and all(one >= other for one, other in zip(grid, than, strict=True))


def _text(grid: tuple[int, ...]) -> str:
    return "x".join(map(str, grid))
