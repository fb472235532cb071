"""What is inside a backbone: its layers, how each one's output lies in the picture, and which one to explain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
from torch import nn

from camapp.backbones.load import LoadedModel
from camapp.errors import LayerError, UsageError
from camapp.hooks.layers import unwrap
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

    @property
    def worth_explaining(self) -> bool:
        """Whether it has a map of its own; some layers only pass on what the layer before them gave."""
        return self.grid is not None and (self.recommended or self.kind not in _PASSING_ON)


_PASSING_ON = ("Identity", "Dropout", "DropPath", "Dropout2d")


def find_layout(model: nn.Module, layer: str, shape: Sequence[int], inputs: Sequence[int]) -> Layout:
    """How an output of ``shape`` lies in inputs of shape (B, 3, H, W).

    A 4-D output is taken as channels-last where only that reading has the picture's aspect, and refused where neither
    has, as an attention matrix. The patch grid and the
    number of prefix tokens come from the model's own facts, and from the token count alone where it states none.

    Raises:
        LayerError: the output does not map onto the picture.
    """
    layout = _layout(model, tuple(shape), (inputs[-2], inputs[-1]))
    if layout is None:
        raise LayerError(
            f'"{layer}" gives an output of shape {tuple(shape)}, which does not map onto a picture of '
            f"{inputs[-2]}x{inputs[-1]}. Choose a layer with a map (B, C, h, w) or (B, h, w, C), or one token a patch."
        )
    return layout


def list_layers(model: nn.Module | LoadedModel, inputs: torch.Tensor | None = None) -> list[LayerInfo]:
    """Every layer of a model, with what it gives for one picture; found by a dry run.

    Args:
        model: a network, or a ``LoadedModel``.
        inputs: (1, C, H, W) or more rows, of which the first is run; a ``LoadedModel`` needs none.

    Raises:
        UsageError: a plain network without inputs.
        ModelError: a network that cannot be hooked, or a ``LoadedModel`` that fails on its own input.
    """
    recommended = None
    if isinstance(model, LoadedModel):
        inputs = torch.zeros(1, 3, *model.card.input.size, device=model.device) if inputs is None else inputs
        recommended = model.card.layer
        with model.named_failures():
            calls = trace_calls(model.module, inputs[:1])
        network = model.module
    elif inputs is None:
        raise UsageError("A plain nn.Module does not say how large its pictures are: give inputs, such as one picture.")
    else:
        network = unwrap(model)
        calls = trace_calls(network, inputs[:1])
    best = recommended or _recommend(network, calls, (inputs.shape[-2], inputs.shape[-1]))
    return [_info(name, module, network, calls, inputs, best) for name, module in network.named_modules() if name]


def _info(
    name: str, module: nn.Module, model: nn.Module, calls: list[Call], inputs: torch.Tensor, best: str | None
) -> LayerInfo:
    shapes = [call.outputs for call in calls if call.name == name]
    shape = shapes[-1] if shapes else None
    layout = _map_layout(model, shape, (inputs.shape[-2], inputs.shape[-1]))
    return LayerInfo(
        name=name,
        kind=type(module).__name__,
        shape=shape[1:] if shape else None,
        calls=len(shapes),
        parameters=sum(parameter.numel() for parameter in module.parameters()),
        grid=layout.grid if layout else None,
        recommended=name == best,
    )


# By model and input size: at another size another layer may be the last with a map.
_recommended: WeakKeyDictionary[nn.Module, dict[tuple[int, int], str]] = WeakKeyDictionary()


def recommended_layer(model: nn.Module, inputs: torch.Tensor) -> str:
    """The layer to explain when none is named, found by one dry run and remembered.

    For networks that pool a map or patch tokens at their end: the last map before the pooling. For transformers with a
    class token, whose last patch tokens do not reach the output: the normalisation before the last attention.

    Raises:
        LayerError: no layer gives a map.
    """
    size = (inputs.shape[-2], inputs.shape[-1])
    known = _recommended.setdefault(model, {})
    if size not in known or known[size] not in dict(model.named_modules()):
        best = _recommend(model, trace_calls(model, inputs[:1]), size)
        if best is None:
            raise LayerError(f"No layer of this {type(model).__name__} gives a map. Name a layer with layer=...")
        known[size] = best
    return known[size]


def _recommend(model: nn.Module, calls: list[Call], size: tuple[int, int]) -> str | None:
    attentions = {name for name, module in model.named_modules() if _is_attention(name, module)}
    for call in reversed(calls):
        layout = _map_layout(model, call.outputs, size)
        pools = isinstance(call.module, nn.AdaptiveAvgPool2d | nn.AdaptiveMaxPool2d)
        if layout is None or pools or any(call.name.startswith(f"{name}.") for name in attentions):
            continue
        if layout.kind == "NLC" and layout.prefix:
            return _norm_before_last_attention(model, calls, size) or call.name
        return call.name
    return None


def _norm_before_last_attention(model: nn.Module, calls: list[Call], size: tuple[int, int]) -> str | None:
    last_norm: str | None = None
    best: str | None = None
    for call in calls:
        layout = _map_layout(model, call.outputs, size)
        if layout is None or layout.kind != "NLC":
            continue
        if "norm" in type(call.module).__name__.lower():
            last_norm = call.name
        elif _is_attention(call.name, call.module) and last_norm:
            best = last_norm
    return best


def _is_attention(name: str, module: nn.Module) -> bool:
    return "attention" in type(module).__name__.lower() or name.rpartition(".")[2] in ("attn", "attention")


def _map_layout(model: nn.Module, shape: tuple[int, ...] | None, size: tuple[int, int]) -> Layout | None:
    """The layout of what a layer gave for one picture, where it is a map of more than one place."""
    layout = _layout(model, shape, size) if shape and shape[0] == 1 else None
    return layout if layout and layout.grid != (1, 1) else None


def _layout(model: nn.Module, shape: tuple[int, ...], size: tuple[int, int]) -> Layout | None:
    if len(shape) == 3:
        return _token_layout(model, shape[1], size)
    if len(shape) != 4:
        return None
    first, last = (shape[2], shape[3]), (shape[1], shape[2])
    if _covers(first, size) and not _is_attention_matrix(model, first, size):
        return Layout("NCHW", first)
    return Layout("NHWC", last) if _covers(last, size) else None


def _covers(grid: tuple[int, int], size: tuple[int, int]) -> bool:
    """Whether a grid has the picture's aspect, up to the rounding of its own cells."""
    stride = max(size[0] / grid[0], size[1] / grid[1])
    return all(abs(size[axis] / stride - grid[axis]) <= 1 for axis in (0, 1))


def _is_attention_matrix(model: nn.Module, grid: tuple[int, int], size: tuple[int, int]) -> bool:
    """Whether a square of tokens by tokens only looks like a map of a square picture."""
    patches = _patch_grid(model, size)
    if patches is None or grid[0] != grid[1]:
        return False
    return grid[0] - patches[0] * patches[1] in {0, 1, 2, _prefix_tokens(model)}


def _token_layout(model: nn.Module, tokens: int, size: tuple[int, int]) -> Layout | None:
    grid = _patch_grid(model, size)
    if grid:
        prefix, stated = tokens - grid[0] * grid[1], _prefix_tokens(model)
        fits = 0 <= prefix <= MOST_PREFIX_TOKENS if stated is None else prefix in (0, stated)
        return Layout("NLC", grid, prefix) if fits else None
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


def _patch_grid(model: nn.Module, size: tuple[int, int]) -> tuple[int, int] | None:
    """Rows and columns of the patches, by the model's own word: timm's, torchvision's, or a Hugging Face config's."""
    embedding = getattr(model, "patch_embed", None)
    feat_size = getattr(embedding, "dynamic_feat_size", None)
    if callable(feat_size):  # timm: knows whether the picture is padded to whole patches
        rows, columns = feat_size(size)
        return rows, columns
    for owner in (embedding, model, getattr(model, "config", None)):
        patch: Any = getattr(owner, "patch_size", None)
        if isinstance(patch, int):
            return size[0] // patch, size[1] // patch
        if isinstance(patch, tuple | list) and len(patch) == 2 and all(isinstance(side, int) for side in patch):
            return size[0] // patch[0], size[1] // patch[1]
    return None


def _prefix_tokens(model: nn.Module) -> int | None:
    """The tokens in front of the patches, where the model states their number (timm)."""
    stated = getattr(model, "num_prefix_tokens", None)
    return stated if isinstance(stated, int) else None
