"""The places whose features are wanted, in one forward: which layers, at which of their calls, and when it may stop."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import torch
from torch import nn

from camapp.backbones.recommend import last_map
from camapp.errors import LayerError
from camapp.hooks.layers import Layer, find_layer
from camapp.hooks.selection import Pattern, select_layers
from camapp.hooks.trace import Call, that_ran, trace_calls

ALIASES = {
    "penultimate": "what goes into the classifier",
    "last": "the last map or tokens before the pooling",
}

_CLASSIFIERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass(frozen=True)
class Places:
    """Where one forward is tapped.

    Args:
        named: by the name of the feature, the key of its place, whose call is named where the layer runs several times.
        keys: the places, none twice, in the order in which a forward reaches them.
    """

    named: dict[str, str]
    keys: tuple[str, ...]


def check_patterns(model: nn.Module, patterns: Pattern | Iterable[Pattern]) -> None:
    """Refuse names and patterns that mean no layer of the model, before it has run.

    Raises:
        LayerError: as ``select_layers``.
    """

    def some_layer() -> Layer:
        return Layer("", model)

    select_layers(model, patterns, dict.fromkeys(ALIASES, some_layer))


def find_places(model: nn.Module, patterns: Pattern | Iterable[Pattern], inputs: torch.Tensor) -> Places:
    """Where the features that patterns name are found; tells by a dry run on one row.

    Args:
        model: the network.
        patterns: as ``select_layers`` takes them, and the ``ALIASES``.
        inputs: (B, C, *size).

    Raises:
        LayerError: a pattern that means no layer, or a layer that does not run, or not as often as its ``@call`` says.
    """
    calls = trace_calls(model, inputs[:1])
    aliases: dict[str, Callable[[], Layer]] = {
        "penultimate": lambda: _penultimate(model, calls),
        "last": lambda: _last(model, inputs[:1], calls),
    }
    ends: dict[str, list[int]] = {}
    for index, call in enumerate(calls):
        ends.setdefault(call.name, []).append(index)
    named, order = {}, {}
    for name, layer in select_layers(model, patterns, aliases).items():
        placed = _placed(layer, ends.get(_traced_name(model, layer, ends), []), calls)
        named[name] = placed.key
        order[placed.key] = ends[_traced_name(model, layer, ends)][placed.call or 0]
    return Places(named, tuple(sorted(order, key=order.__getitem__)))


def _placed(layer: Layer, ends: list[int], calls: list[Call]) -> Layer:
    """The layer with its last call named, where it runs several times."""
    if not ends:
        raise LayerError(
            f'"{layer.key}" never ran in this forward: it is unused for this input, its .forward is called directly, '
            f"or a fused operation takes its place (as of attention). {that_ran(calls, layer.name)}"
        )
    if layer.call is not None and layer.call >= len(ends):
        raise LayerError(f'"{layer.name}" was called {len(ends)} time(s) in this forward, counted from @0.')
    if layer.call is not None or len(ends) == 1:
        return layer
    return replace(layer, call=len(ends) - 1)


def _traced_name(model: nn.Module, layer: Layer, ends: dict[str, list[int]]) -> str:
    """The name under which a dry run knows a module that has several."""
    if layer.name in ends:
        return layer.name
    return next((name for name, module in model.named_modules() if module is layer.module), layer.name)


def _penultimate(model: nn.Module, calls: list[Call]) -> Layer:
    """What goes into the classifier: the one that timm's ``get_classifier`` names, else the last layer with weights."""
    stated = _stated_classifiers(model)
    for call in calls:
        if any(call.module is module for module in stated):
            return Layer(call.name, call.module, input=True)
    leaves = [call for call in calls if _is_leaf_with_weights(call.module)]
    if not leaves or not isinstance(leaves[-1].module, _CLASSIFIERS):
        raise LayerError(
            f'This {type(model).__name__} ends in no classifier, so that no layer is its "penultimate". Its last map '
            'or tokens are "last".'
        )
    last = leaves[-1]
    number = sum(call.module is last.module for call in calls) - 1
    return Layer(last.name, last.module, number or None, input=True)


def _is_leaf_with_weights(module: nn.Module) -> bool:
    return not list(module.children()) and bool(list(module.parameters(recurse=False)))


def _stated_classifiers(model: nn.Module) -> list[nn.Module]:
    stated = getattr(model, "get_classifier", None)
    if not callable(stated):
        return []
    given = stated()
    return [one for one in (given if isinstance(given, tuple | list) else [given]) if isinstance(one, _CLASSIFIERS)]


def _last(model: nn.Module, inputs: torch.Tensor, calls: list[Call]) -> Layer:
    key = last_map(model, inputs, calls)
    if key is None:
        raise LayerError(f'No layer of this {type(model).__name__} gives a map or tokens: "last" means nothing here.')
    return find_layer(model, key)
