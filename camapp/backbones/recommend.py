"""Which layers to explain when none is named: the last map on the way to the scores, and finer ones before it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from camapp.backbones.layouts import is_attention, map_layout, within_attention
from camapp.backbones.stages import PASSING_ON, MapCall, Stages, find_stages, maps_of
from camapp.errors import LayerError
from camapp.hooks.as_found import as_found
from camapp.hooks.capture import Capture, NoPath, Tap
from camapp.hooks.layers import module_name
from camapp.hooks.trace import Call, trace_calls

_POOLS = (
    *(nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d),
    *(nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d),
)
_MOST_TRIED = 48  # maps whose gradient is looked at, from the likeliest on


# By model and input size: at another size another layer may be the last with a map.
_recommended: WeakKeyDictionary[nn.Module, dict[tuple[int, ...], str]] = WeakKeyDictionary()
_stages: WeakKeyDictionary[nn.Module, dict[tuple[int, ...], Stages]] = WeakKeyDictionary()


def recommended_layer(model: nn.Module, inputs: torch.Tensor) -> str:
    """The layer to explain when none is named, found by a dry run on one picture and remembered.

    It is the last map whose places reach the output: before the pooling, for networks that pool a map or patch tokens;
    the normalisation before the last attention, for transformers that read a class token, whose last patch tokens do
    not reach the output. Where a network has attention, this is tried by one backward.

    Args:
        model: the network.
        inputs: (B, C, L), (B, C, H, W) or (B, C, D, H, W), of which one row is run.

    Returns:
        The layer's name, or ``name@call`` for one call of a module that runs several times.

    Raises:
        LayerError: no layer gives a map.
    """
    known = _recommended.setdefault(model, {})
    size = tuple(inputs.shape[2:])
    if size not in known or not _has(model, known[size]):
        best = best_layer(model, inputs[:1], trace_calls(model, inputs[:1]))
        if best is None:
            raise LayerError(f"No layer of this {type(model).__name__} gives a map. Name a layer with layer=...")
        known[size] = best
    return known[size]


def best_layer(model: nn.Module, inputs: torch.Tensor, calls: list[Call]) -> str | None:
    """``recommended_layer`` for a dry run that was made already; None where no layer gives a map."""
    maps = [one for one in maps_of(model, inputs, calls) if _may_be_explained(model, one.call)]
    if not maps:
        return None
    attends = any(is_attention(name, module) for name, module in model.named_modules())
    if not attends and maps[-1].layout.kind != "NLC":
        return maps[-1].key
    likely = list(dict.fromkeys(one.key for one in _likely(model, maps, calls)))[:_MOST_TRIED]
    reached = _that_reach_the_output(model, inputs, likely)
    # A head of zeros, as some networks begin with, lets no gradient through: then the structure alone decides.
    return next((key for key in likely if key in reached), likely[0])


def last_map(model: nn.Module, inputs: torch.Tensor, calls: list[Call]) -> str | None:
    """The last map or token layer before the pooling, whether or not its places reach the scores; None without any.

    Args:
        model: the network.
        inputs: the batch of the dry run.
        calls: what ``trace_calls`` found in it.
    """
    maps = [one for one in maps_of(model, inputs, calls) if _may_be_explained(model, one.call)]
    return maps[-1].key if maps else None


def stages(model: nn.Module, inputs: torch.Tensor) -> Stages:
    """The recommended layer and two before it, of finer resolution or lesser depth; for methods that combine layers.

    Args:
        model: the network.
        inputs: a batch, of which one row is run.

    Raises:
        LayerError: the network has no such maps, or no map at all.
    """
    known = _stages.setdefault(model, {})
    size = tuple(inputs.shape[2:])
    if size not in known or not all(_has(model, name) for name in vars(known[size]).values()):
        last = recommended_layer(model, inputs)
        maps = list(maps_of(model, inputs[:1], trace_calls(model, inputs[:1], measure=True)))
        known[size] = find_stages(model, maps, last)
    return known[size]


def _may_be_explained(model: nn.Module, call: Call) -> bool:
    passes_on = isinstance(call.module, _POOLS) or type(call.module).__name__ in PASSING_ON
    scores = isinstance(call.module, nn.Linear)  # of each token, as VOLO's auxiliary head gives; or a part of a block
    return not passes_on and not scores and within_attention(model, call.name) is None


def _likely(model: nn.Module, maps: list[MapCall], calls: list[Call]) -> Iterator[MapCall]:
    """The maps from the likeliest on: the last; for tokens, the norm before the last attention; then all, backwards."""
    tokens = maps[-1].layout.kind == "NLC"
    before = _norm_before_last_attention(maps, calls) if tokens else None
    if before is None or not maps[-1].layout.prefix:
        yield maps[-1]
        if before:
            yield before
    else:
        if _pools_tokens(model):
            yield maps[-1]
        yield before
    yield from reversed(maps[:-1])


def _pools_tokens(model: nn.Module) -> bool:
    """Whether a transformer says that it pools its patch tokens (timm) rather than reads its class token."""
    return any(str(vars(module).get("global_pool", "token")).startswith(("avg", "max")) for module in model.modules())


def _norm_before_last_attention(maps: list[MapCall], calls: list[Call]) -> MapCall | None:
    tokens = {one.index: one for one in maps if one.layout.kind == "NLC"}
    last_norm: MapCall | None = None
    best: MapCall | None = None
    for index, call in enumerate(calls):
        if index in tokens and "norm" in type(call.module).__name__.lower():
            last_norm = tokens[index]
        elif is_attention(call.name, call.module) and last_norm and call.outputs and len(call.outputs) == 3:
            best = last_norm
    return best


def _that_reach_the_output(model: nn.Module, inputs: torch.Tensor, layers: list[str]) -> set[str]:
    """The layers whose map a gradient of the output reaches: its places, not only a class token beside them."""
    for whole_graph in (False, True):  # the whole where the model runs the layers under a no_grad of its own
        with as_found(model):
            with Capture(model, layers, whole_graph=whole_graph) as capture:
                output = model(inputs.clone())
            with suppress(NoPath):  # of one layer; the others have their gradients
                capture.backward(_projected(output))
        reached = {layer for layer in layers if _shows_gradient(model, layer, capture[layer], inputs)}
        if reached:
            return reached
    return set()


def _shows_gradient(model: nn.Module, layer: str, tap: Tap, inputs: torch.Tensor) -> bool:
    layout = map_layout(model, layer, tap.activation.shape, inputs.shape)
    if layout is None or tap.gradient is None:
        return False
    gradient = layout.to_maps(tap.gradient)
    return bool(torch.isfinite(gradient).all() and (gradient != 0).any())


def _projected(output: Any) -> torch.Tensor:
    """One number that depends on all that a model returned, by weights that no symmetry of the output cancels."""
    total = torch.zeros((), device="cpu")
    for tensor in _tensors(output):
        flat = tensor.float().flatten()
        weights = torch.rand(len(flat), generator=torch.Generator().manual_seed(0), device="cpu").to(flat.device)
        total = total.to(flat.device) + (flat * weights).sum()
    return total


def _tensors(output: Any) -> Iterator[torch.Tensor]:
    if isinstance(output, torch.Tensor):
        if output.is_floating_point():
            yield output
        return
    parts = output.values() if isinstance(output, Mapping) else output if isinstance(output, tuple | list) else ()
    for part in parts or getattr(output, "__dict__", {}).values():
        yield from _tensors(part) if isinstance(part, torch.Tensor | Mapping | tuple | list) else ()


def _has(model: nn.Module, key: str) -> bool:
    return module_name(key) in dict(model.named_modules())
