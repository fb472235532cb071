"""What is inside a backbone: its layers, how each one's output lies in the picture, and which one to explain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
from torch import nn

from camapp.errors import LayerError
from camapp.hooks.trace import Call, trace_calls

# A token layer's leading tokens that are no patches: class, distillation and register tokens. No model has more.
MOST_PREFIX_TOKENS = 16


@dataclass(frozen=True)
class Layout:
    """How a layer's output lies in the picture.

    Args:
        kind: ``"NCHW"``, ``"NHWC"`` or ``"NLC"`` (tokens).
        grid: rows and columns of the map.
        prefix: tokens in front of the patches, for ``"NLC"``.
    """

    kind: Literal["NCHW", "NHWC", "NLC"]
    grid: tuple[int, int]
    prefix: int = 0

    def to_maps(self, output: torch.Tensor) -> torch.Tensor:
        """The layer's output, or its gradient, as (B, C, h, w)."""
        if self.kind == "NCHW":
            return output
        if self.kind == "NHWC":
            return output.permute(0, 3, 1, 2)
        patches = output[:, self.prefix :]
        return patches.transpose(1, 2).reshape(len(output), -1, *self.grid)


@dataclass(frozen=True)
class LayerInfo:
    """One layer as ``camapp layers`` lists it.

    Args:
        name: dotted name.
        kind: class name of the module.
        shape: shape of its output for one picture, without the batch axis; None where the output is no tensor.
        calls: how often it runs in one forward; 0 for a layer that never runs.
        parameters: how many parameters it holds, those of its parts included.
        grid: rows and columns of its map; None where its output has no place in the picture.
        recommended: whether it is the layer to explain by default.
    """

    name: str
    kind: str
    shape: tuple[int, ...] | None
    calls: int
    parameters: int
    grid: tuple[int, int] | None
    recommended: bool


def find_layout(model: nn.Module, layer: str, shape: Sequence[int], inputs: Sequence[int]) -> Layout:
    """How an output of ``shape`` lies in inputs of shape (B, 3, H, W).

    A 4-D output is taken as channels-last where only that reading has the picture's aspect. The patch grid and the
    number of prefix tokens come from the model's own facts, and from the token count alone where it states none.

    Raises:
        LayerError: the output has no place in the picture.
    """
    layout = _layout(model, tuple(shape), (inputs[-2], inputs[-1]))
    if layout is None:
        raise LayerError(
            f'"{layer}" gives an output of shape {tuple(shape)}, which has no place in a picture of '
            f"{inputs[-2]}x{inputs[-1]}. Give a layer with a map (B, C, h, w) or (B, h, w, C), or one token a patch."
        )
    return layout


def list_layers(model: nn.Module, inputs: torch.Tensor, recommended: str | None = None) -> list[LayerInfo]:
    """Every layer of ``model``, with what it gives for ``inputs`` of shape (1, 3, H, W); found by one dry run."""
    calls = trace_calls(model, inputs)
    best = recommended or _recommend(model, calls, inputs)
    last = {call.name: call for call in calls}
    counts = {name: sum(call.name == name for call in calls) for name in last}
    size = (inputs.shape[-2], inputs.shape[-1])
    listed = []
    for name, module in model.named_modules():
        if not name:
            continue
        shape = last[name].outputs if name in last else None
        layout = _layout(model, shape, size) if shape else None
        listed.append(
            LayerInfo(
                name=name,
                kind=type(module).__name__,
                shape=shape[1:] if shape else None,
                calls=counts.get(name, 0),
                parameters=sum(parameter.numel() for parameter in module.parameters()),
                grid=layout.grid if layout and layout.grid != (1, 1) else None,
                recommended=name == best,
            )
        )
    return listed


_recommended: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()


def recommended_layer(model: nn.Module, inputs: torch.Tensor) -> str:
    """The layer to explain when none is named, found by one dry run and remembered for the model.

    For networks that pool a map at their end: the last map before the pooling. For transformers with a class token,
    whose last patch tokens do not reach the output: the normalisation before the last attention.

    Raises:
        LayerError: no layer gives a map.
    """
    if model not in _recommended:
        best = _recommend(model, trace_calls(model, inputs[:1]), inputs)
        if best is None:
            raise LayerError(f"No layer of this {type(model).__name__} gives a map. Name a layer with layer=...")
        _recommended[model] = best
    return _recommended[model]


def _recommend(model: nn.Module, calls: list[Call], inputs: torch.Tensor) -> str | None:
    size = (inputs.shape[-2], inputs.shape[-1])
    attention = _norm_before_last_attention(model, calls, size)
    if attention:
        return attention
    for call in reversed(calls):
        if isinstance(call.module, nn.AdaptiveAvgPool2d | nn.AdaptiveMaxPool2d) or call.outputs is None:
            continue
        layout = _layout(model, call.outputs, size)
        if layout and layout.grid != (1, 1) and layout.kind != "NLC":
            return call.name
    return None


def _norm_before_last_attention(model: nn.Module, calls: list[Call], size: tuple[int, int]) -> str | None:
    """For token models: the normalisation that feeds the last attention; None for models that pool a map."""
    last_norm: str | None = None
    best: str | None = None
    for call in calls:
        if call.outputs is None or not _is_tokens(model, call.outputs, size):
            continue
        if "norm" in type(call.module).__name__.lower():
            last_norm = call.name
        elif "attention" in type(call.module).__name__.lower() and last_norm:
            best = last_norm
    return best


def _is_tokens(model: nn.Module, shape: tuple[int, ...], size: tuple[int, int]) -> bool:
    layout = _layout(model, shape, size)
    return layout is not None and layout.kind == "NLC"


def _layout(model: nn.Module, shape: tuple[int, ...], size: tuple[int, int]) -> Layout | None:
    if len(shape) == 4:
        first, last = (shape[2], shape[3]), (shape[1], shape[2])
        if not _covers(first, size) and _covers(last, size):
            return Layout("NHWC", last)
        return Layout("NCHW", first)
    if len(shape) == 3:
        return _token_layout(model, shape[1], size)
    return None


def _covers(grid: tuple[int, int], size: tuple[int, int]) -> bool:
    """Whether a grid has the picture's aspect, up to the rounding of its own cells."""
    stride = size[0] / grid[0], size[1] / grid[1]
    return min(stride) >= 1 and all(abs(size[i] / max(stride) - grid[i]) <= 1 for i in (0, 1))


def _token_layout(model: nn.Module, tokens: int, size: tuple[int, int]) -> Layout | None:
    patch = _patch_size(model)
    if patch:
        grid = (size[0] // patch[0], size[1] // patch[1])
        prefix = tokens - grid[0] * grid[1]
        return Layout("NLC", grid, prefix) if 0 <= prefix <= MOST_PREFIX_TOKENS else None
    for prefix in range(3):  # none, a class token, a class and a distillation token
        found = _grid_of(tokens - prefix, size)
        if found:
            return Layout("NLC", found, prefix)
    return None


def _grid_of(patches: int, size: tuple[int, int]) -> tuple[int, int] | None:
    """The grid of ``patches`` square patches that tiles the picture exactly, if there is one."""
    for rows in range(2, patches // 2 + 1):
        columns = patches // rows
        if rows * columns == patches and columns > 1 and size[0] * columns == size[1] * rows:
            return rows, columns
    return None


def _patch_size(model: nn.Module) -> tuple[int, int] | None:
    """The model's own word for its patch size: timm's, torchvision's, or a Hugging Face config's."""
    for owner in (getattr(model, "patch_embed", None), model, getattr(model, "config", None)):
        patch: Any = getattr(owner, "patch_size", None)
        if isinstance(patch, int):
            return patch, patch
        if isinstance(patch, tuple | list) and len(patch) == 2 and all(isinstance(side, int) for side in patch):
            return patch[0], patch[1]
    return None
