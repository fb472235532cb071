"""The facts about a network's patch tokens: their grid, how many tokens lie in front, and their order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import ceil, prod
from typing import Any

import torch
from torch import nn

# A token layer's leading tokens that are no patches: class, distillation and register tokens. No model has more.
MOST_PREFIX_TOKENS = 16


def grid_and_prefix(
    model: nn.Module, layer: str, tokens: int, size: tuple[int, ...]
) -> tuple[tuple[int, ...], int] | None:
    """The grid that ``tokens`` tokens of a layer lie on in a picture of ``size``, and how many lie in front of it.

    A stated grid, and in networks of several stages its halvings; without any statement the halvings of the first
    strided convolution's grid, and at last any grid of square patches that tiles the picture.
    """
    stated = stated_prefix(model, layer)
    grids: dict[tuple[int, ...], None] = {}
    for grid in stated_grids(model, layer, size):
        prefix = tokens - prod(grid)
        if 0 <= prefix <= MOST_PREFIX_TOKENS if stated is None else prefix in (0, stated):
            return grid, prefix
        grids[grid] = None
    if grids and not _has_stages(model):
        return None
    bases = [*grids, *_stem_grids(model, size)]
    strides_time = len(size) == 3 and _strides_first_axis_again(model)
    coarser = dict.fromkeys(grid for base in bases for grid in _coarser(base, strides_time))
    for prefix in (0, 1, 2):  # none, a class token, a class and a distillation token
        fitting = [grid for grid in coarser if 1 < prod(grid) == tokens - prefix and misfit(grid, size) <= 1]
        if len(fitting) > 1 and strides_time:
            return None  # 8 x 7 x 7 and 2 x 14 x 14 are as many tokens
        if fitting:
            return fitting[0], prefix
        exact = None if grids else _tiling(tokens - prefix, size)
        if exact:
            return exact, prefix
    return None


def stated_grids(model: nn.Module, layer: str, size: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The patch grids that the model's modules state, those around the layer first."""
    for owner in _owners(model, layer):
        facts = vars(owner)
        feat_size: Any = (
            getattr(owner, "dynamic_feat_size", None) if hasattr(type(owner), "dynamic_feat_size") else None
        )
        if feat_size and len(size) == 2:  # timm: knows of padding to whole patches
            rows, columns = feat_size(size)
            yield int(rows), int(columns)
        config = facts.get("config")
        for source in (facts, *_config_facts(config)):
            patch = _sides(source.get("patch_size"), len(size))
            if patch is None:
                continue
            yield tuple(extent // side for extent, side in zip(size, patch, strict=True))
            inner = _sides(source.get("img_size", source.get("image_size")), len(size))
            if inner:  # a model may resize pictures inside, as CrossViT does for one of its branches
                yield tuple(extent // side for extent, side in zip(inner, patch, strict=True))


def stated_prefix(model: nn.Module, layer: str) -> int | None:
    """The tokens in front of the patches, where the model states their number (timm)."""
    for owner in _owners(model, layer):
        stated = vars(owner).get("num_prefix_tokens")
        if isinstance(stated, int):
            return stated
    return None


def has_class_token(model: nn.Module, layer: str) -> bool:
    """Whether the first token in front of the patches is a class token, and not a register.

    Asked of the modules around the layer from the innermost out, then of all the others: the first that has class,
    distillation or register tokens at all answers. Where none has any, the tokens in front of the patches are taken for
    class tokens.
    """
    for owner in _owners(model, layer):
        facts = {**vars(owner), **owner._parameters}
        if any(facts.get(name) is not None for name in ("cls_token", "class_token", "class_embedding")):
            return True
        if any(facts.get(name) is not None for name in ("reg_token", "register_tokens", "storage_tokens")):
            return False
    return True


def order_of_unrolled(unroll: Any, grid: tuple[int, ...], prefix: int) -> tuple[int, ...] | None:
    """Where each place of the grid is among Hiera's tokens, which lie in the order in which they will be pooled.

    The tokens before any pooling are numbered, unrolled by the model's own module, and pooled as its blocks pool.
    """
    whole: list[int] = [int(side) for side in unroll.size]
    numbers = torch.arange(prod(whole), dtype=torch.float64).view(1, -1, 1)
    numbers = unroll(numbers).flatten().long()
    places = torch.stack([numbers // prod(whole[axis + 1 :]) % whole[axis] for axis in range(len(whole))])
    for strides in unroll.schedule:
        if places.shape[1] <= prod(grid):
            break
        places = places[:, : places.shape[1] // prod(strides)] // torch.tensor(strides)[:, None]
    if places.shape[1] != prod(grid) or prefix or len(whole) != len(grid):
        return None
    flat = torch.zeros(places.shape[1], dtype=torch.long)
    for axis, extent in enumerate(grid):
        flat = flat * extent + places[axis]
    return tuple(torch.argsort(flat).tolist())


def misfit(grid: tuple[int, ...], size: tuple[int, ...]) -> float:
    """By how many cells a grid misses the picture's aspect; up to 1 is the rounding of its own cells."""
    if len(grid) == 3:  # a clip's time, or a volume's slices, may be strided unlike the places
        if not 1 <= grid[0] <= size[0] + 1:
            return float("inf")
        grid, size = grid[1:], size[1:]
    stride = max(extent / cells for extent, cells in zip(size, grid, strict=True))
    return max(abs(extent / stride - cells) for extent, cells in zip(size, grid, strict=True))


def ancestors(model: nn.Module, layer: str) -> list[tuple[str, nn.Module]]:
    """The layer and the modules that hold it, each with its name, from the innermost out; the model is last."""
    found: list[tuple[str, nn.Module]] = [("", model)]
    name, module = "", model
    for part in layer.split("."):
        child = module._modules.get(part)
        if child is None:
            break
        name, module = f"{name}.{part}" if name else part, child
        found.append((name, module))
    return found[::-1]


def _config_facts(config: Any) -> Iterator[dict[str, Any]]:
    """What a Hugging Face configuration says, and what its vision part says."""
    for part in (config, *(getattr(config, name, None) for name in ("vision_config", "backbone_config"))):
        if part is not None and hasattr(part, "__dict__"):
            yield vars(part)


def _sides(value: Any, rank: int) -> tuple[int, ...] | None:
    sides = (value,) * rank if isinstance(value, int) else value
    if not isinstance(sides, tuple | list | torch.Size) or len(sides) != rank:
        return None
    return tuple(sides) if all(isinstance(side, int) and side > 0 for side in sides) else None


def _has_stages(model: nn.Module) -> bool:
    """Whether a network takes its map down in more than one step, so that a layer may hold fewer tokens."""
    steps = 0
    for module in model.modules():
        stride = vars(module).get("stride", 1)
        steps += max(stride if isinstance(stride, tuple | list) else (stride,), default=1, key=int) > 1 if stride else 0
        steps += 2 * ("merg" in type(module).__name__.lower())
    return steps > 1


def _stem_grids(model: nn.Module, size: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The grid of the network's first strided convolution, with and without the border that it may leave off."""
    kinds = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
    for module in model.modules():
        if isinstance(module, kinds[len(size) - 1]) and max(module.stride) > 1:
            strides = list(zip(size, module.stride, strict=True))
            yield tuple(ceil(extent / stride) for extent, stride in strides)
            yield tuple(extent // stride for extent, stride in strides)
            return


def _strides_first_axis_again(model: nn.Module) -> bool:
    """Whether a layer after the first strided one strides the time of a clip, or the slices of a volume, once more."""
    strides = (vars(module).get("stride", 1) for module in model.modules())
    strided = [
        stride for stride in strides if isinstance(stride, tuple | list) and len(stride) == 3 and max(stride) > 1
    ]
    return any(stride[0] > 1 for stride in strided[1:])


def _coarser(grid: tuple[int, ...], strides_time: bool) -> Iterator[tuple[int, ...]]:
    """A grid and its halvings; the first axis of a clip or volume may be halved less often than the others."""
    time, places = (grid[:-2], grid[-2:]) if len(grid) == 3 else ((), grid)
    for earlier, halvings in product(range(4 if strides_time else 1), range(7)):
        for whole in (True, False):
            shrunk = tuple(ceil(side / 2**halvings) if whole else side // 2**halvings for side in places)
            yield (*(ceil(side / 2**earlier) for side in time), *shrunk)


def _tiling(patches: int, size: tuple[int, ...]) -> tuple[int, ...] | None:
    """The grid of ``patches`` square patches that tiles the picture exactly, if there is one."""
    if len(size) != 2 or patches < 4:
        return None
    for rows in range(2, patches // 2 + 1):
        columns = patches // rows
        if rows * columns == patches and columns > 1 and size[0] * columns == size[1] * rows:
            return rows, columns
    return None


def _owners(model: nn.Module, layer: str) -> Iterator[nn.Module]:
    """The modules around the layer from the innermost out, then all the others."""
    around = [owner for _, owner in ancestors(model, layer)]
    yield from around
    yield from model.modules()
