"""How a layer's output lies in the picture: which of its axes are places of the picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

import torch
from torch import nn

from camapp.backbones.tokens import (
    ancestors,
    grid_and_prefix,
    misfit,
    order_of_unrolled,
    stated_grids,
    stated_prefix,
)
from camapp.errors import LayerError
from camapp.hooks.layers import module_name

Kind = Literal["NCL", "NCHW", "NCDHW", "NLC", "NHWC", "NDHWC"]
_FIRST: dict[int, Kind] = {1: "NCL", 2: "NCHW", 3: "NCDHW"}
_LAST: dict[int, Kind] = {2: "NHWC", 3: "NDHWC"}


@dataclass(frozen=True)
class Layout:
    """How a layer's output lies in the picture, the clip or the volume.

    Args:
        kind: channels first (``"NCL"``, ``"NCHW"``, ``"NCDHW"``), channels last (``"NHWC"``, ``"NDHWC"``), or tokens
            (``"NLC"``).
        grid: the extent of the map, one number for each spatial axis of the inputs.
        prefix: tokens in front of the patches, for ``"NLC"``.
        order: which patch token is each place of the grid, read row by row, where the model has shuffled them.
    """

    kind: Kind
    grid: tuple[int, ...]
    prefix: int = 0
    order: tuple[int, ...] | None = None

    def to_maps(self, output: torch.Tensor) -> torch.Tensor:
        """The layer's output, or its gradient, as (B, C, and the grid)."""
        if self.kind == "NLC":
            patches = output[:, self.prefix :]
            if self.order is not None:
                patches = patches[:, list(self.order)]
            return patches.transpose(1, 2).reshape(len(output), -1, *self.grid)
        return output.movedim(-1, 1) if self.kind in ("NHWC", "NDHWC") else output

    def put_back(self, maps: torch.Tensor, output: torch.Tensor) -> None:
        """Write maps that ``to_maps`` made of ``output`` back into it, where they are not a view of it anyway."""
        if self.order is not None:
            places = torch.tensor(self.order, device=output.device) + self.prefix
            output[:, places] = maps.flatten(2).transpose(1, 2)


def find_layout(model: nn.Module, layer: str, shape: Sequence[int], inputs: Sequence[int]) -> Layout:
    """How an output of ``shape`` lies in inputs of shape (B, C, L), (B, C, H, W) or (B, C, D, H, W).

    An output with as many axes as the inputs is a map where its grid has the picture's aspect: channels first where
    that reading fits, else channels last. The first axis of a clip or volume may be strided on its own, as video
    networks do. One with fewer axes holds tokens: their grid and the number of tokens in front come from the facts that
    the model states (in the module nearest to the layer, else anywhere in it), and from the token count alone where it
    states none.

    Raises:
        LayerError: the output does not map onto the picture, or only seems to.
    """
    layout, fault = _read(model, module_name(layer), tuple(shape), tuple(inputs))
    if layout is None:
        size = "x".join(map(str, inputs[2:]))
        axes = ", ".join("dhw"[-len(inputs[2:]) :]) if len(inputs) > 3 else "l"
        last = f" or (B, {axes}, C)" if len(inputs) > 3 else ""
        advice = f"Choose a layer with a map (B, C, {axes}){last}, or one token a patch."
        why = f": {fault}" if fault else ""
        raise LayerError(
            f'"{layer}" gives an output of shape {tuple(shape)}, '
            f"which does not map onto a picture of {size}{why}. "
            f"{advice}"
        )
    return layout


def map_layout(model: nn.Module, layer: str, shape: Sequence[int] | None, inputs: Sequence[int]) -> Layout | None:
    """The layout of what a layer gave, where it is a map of more than one place; None otherwise."""
    layout = _read(model, module_name(layer), tuple(shape), tuple(inputs))[0] if shape else None
    return layout if layout and prod(layout.grid) > 1 else None


def within_attention(model: nn.Module, layer: str) -> nn.Module | None:
    """The innermost attention module that holds ``layer``, itself not counted."""
    return next((owner for name, owner in ancestors(model, layer)[1:] if is_attention(name, owner)), None)


def is_attention(name: str, module: nn.Module) -> bool:
    """Whether a module is an attention, by its class or by the name it has in its parent; a block around one is not."""
    kind = type(module).__name__.lower()
    attends = "attention" in kind or "attn" in kind
    blocks = "block" in kind or "layer" in kind or "stage" in kind
    return (attends and not blocks) or name.rpartition(".")[2] in ("attn", "attention")


def _read(
    model: nn.Module, layer: str, shape: tuple[int, ...], inputs: tuple[int, ...]
) -> tuple[Layout | None, str | None]:
    """The layout of an output, or None and, where the shape alone does not tell it, why."""
    size = inputs[2:]
    if len(size) not in _FIRST or len(shape) < 3:
        return None, None
    if shape[0] != inputs[0]:
        return None, f"its first axis is not the batch of {inputs[0]} (windows or patches are folded into it)"
    if len(shape) == len(inputs):
        fault = _only_seems_a_map(model, layer, shape)
        return (None, fault) if fault else (_map_of(model, layer, shape, size), None)
    return _tokens_of(model, layer, shape[1], size) if len(shape) == 3 else (None, None)


def _only_seems_a_map(model: nn.Module, layer: str, shape: tuple[int, ...]) -> str | None:
    """What an output is that may have a map's shape by chance, such as an attention matrix over a square picture."""
    attention = within_attention(model, layer)
    heads = {getattr(attention, name, None) for name in ("num_heads", "heads", "n_heads", "num_attention_heads")}
    if attention is not None and len(shape) == 4 and shape[1] in heads:
        return f"it holds {shape[1]} attention heads, not channels"
    if any("patch_area" in vars(owner) for _, owner in ancestors(model, layer)[1:]):  # MobileViT: parts within a block
        unfolded = {"transformer", "norm"}.intersection(layer.split("."))
        return "it is unfolded into (places within a patch, patches)" if unfolded else None
    return None


def _map_of(model: nn.Module, layer: str, shape: tuple[int, ...], size: tuple[int, ...]) -> Layout | None:
    rank = len(size)
    first = Layout(_FIRST[rank], shape[2:])
    if rank == 1:
        tokens, _ = _tokens_of(model, layer, shape[1], size) if any(stated_grids(model, layer, size)) else (None, None)
        return tokens or first
    last = Layout(_LAST[rank], shape[1:-1])
    misfits = {layout: misfit(layout.grid, size) for layout in (first, last)}
    fitting = [layout for layout in (first, last) if misfits[layout] <= 1]
    if _is_attention_matrix(model, layer, first.grid, size):
        fitting = [layout for layout in fitting if layout is not first]
    if len(fitting) == 2:
        channels_last = _works_on_last_axis(model, layer, shape[-1])
        if channels_last is None:
            channels_last = misfits[last] < misfits[first]
        return last if channels_last else first
    return fitting[0] if fitting else None


def _works_on_last_axis(model: nn.Module, layer: str, channels: int) -> bool | None:
    """Whether the layer keeps its channels in the last axis, where its kind or a module around it says so."""
    for _, owner in ancestors(model, layer):
        if isinstance(owner, nn.LayerNorm) and not hasattr(owner, "data_format"):
            # A subclass may permute around the norm, as timm's LayerNorm2d does.
            return type(owner) is nn.LayerNorm and owner.normalized_shape == (channels,)
        if isinstance(owner, nn.Linear):
            return True
        if isinstance(owner, nn.Conv2d | nn.Conv3d | nn.BatchNorm2d | nn.BatchNorm3d):
            return False
        stated = getattr(owner, "output_fmt", None)
        if stated is not None:
            return str(getattr(stated, "value", stated)).endswith("C")
    return None


def _is_attention_matrix(model: nn.Module, layer: str, grid: tuple[int, ...], size: tuple[int, ...]) -> bool:
    """Whether a square of tokens by tokens only looks like a map of a square picture."""
    if len(grid) != 2 or grid[0] != grid[1]:
        return False
    own = ancestors(model, layer)[0][1]
    if own is not model and any(isinstance(part, nn.Conv2d) for part in own.modules()):
        return False  # spares most layers the search for what the model states
    extra = {0, 1, 2, stated_prefix(model, layer)}
    return any(grid[0] - prod(patches) in extra for patches in stated_grids(model, layer, size) if prod(patches) > 1)


def _tokens_of(model: nn.Module, layer: str, tokens: int, size: tuple[int, ...]) -> tuple[Layout | None, str | None]:
    """The layout of ``tokens`` tokens, or None and perhaps why."""
    if any("token" in part for part in layer.split(".")[:-1]) and "mix" in type(model).__name__.lower():
        return None, "it mixes the tokens of each channel: its second axis is channels"
    found = grid_and_prefix(model, layer, tokens, size)
    if found is None:
        return None, None
    unroll = next((module for _, module in model.named_modules() if type(module).__name__ == "Unroll"), None)
    if unroll is None or "patch_embed" in layer.split("."):
        return Layout("NLC", *found), None
    order = order_of_unrolled(unroll, *found)
    return (Layout("NLC", *found, order), None) if order else (None, "its tokens are not in the picture's order")
