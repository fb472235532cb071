"""The places whose features are wanted, in one forward: which layers, at which of their calls, and when it may stop."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import nn

from camapp.backbones.recommend import last_map
from camapp.errors import LayerError
from camapp.hooks.as_found import as_found
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
        named: by the name of the feature, the key of its place.
        keys: the places, none twice, in the order in which a forward reaches them.
        end: the place after which nothing more is needed; None where that is the last call of a layer that runs several
            times, for another picture may take it there more often.
    """

    named: dict[str, str]
    keys: tuple[str, ...]
    end: str | None


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
        "penultimate": lambda: _penultimate(model, inputs[:1], calls),
        "last": lambda: _last(model, inputs[:1], calls),
    }
    ends: dict[str, list[int]] = {}
    for index, call in enumerate(calls):
        ends.setdefault(call.name, []).append(index)
    named, order, repeated = {}, {}, set()
    for name, layer in select_layers(model, patterns, aliases).items():
        own = ends.get(_traced_name(model, layer, ends), [])
        _check_ran(layer, own, calls)
        named[name] = layer.key
        order[layer.key] = own[-1 if layer.call is None else layer.call]
        if layer.call is None and len(own) > 1:
            repeated.add(layer.key)
    keys = tuple(sorted(order, key=order.__getitem__))
    return Places(named, keys, None if keys[-1] in repeated else keys[-1])


def _check_ran(layer: Layer, ends: list[int], calls: list[Call]) -> None:
    if not ends:
        raise LayerError(
            f'"{layer.key}" never ran in this forward: it is unused for this input, its .forward is called directly, '
            f"or a fused operation takes its place (as of attention). {that_ran(calls, layer.name)}"
        )
    if layer.call is not None and layer.call >= len(ends):
        raise LayerError(f'"{layer.name}" was called {len(ends)} time(s) in this forward, counted from @0.')


def _traced_name(model: nn.Module, layer: Layer, ends: dict[str, list[int]]) -> str:
    """The name under which a dry run knows a module that has several."""
    if layer.name in ends:
        return layer.name
    return next((name for name, module in model.named_modules() if module is layer.module), layer.name)


def _penultimate(model: nn.Module, inputs: torch.Tensor, calls: list[Call]) -> Layer:
    """What goes into the classifier: the one that the network names, else a last layer with weights that gives scores.

    timm's networks name it by ``get_classifier``; of several heads the first is taken, where each has an input alike.
    """
    stated = getattr(model, "get_classifier", None)
    classifier = stated() if callable(stated) else None
    if isinstance(classifier, tuple | list):
        classifier = classifier[0]  # beside it the head of a distilled network
    if isinstance(classifier, nn.ModuleList):
        heads = [call.name for call in calls if any(call.module is head for head in classifier)]
        if len(heads) > 1:
            names = ", ".join(f'"{name}:input"' for name in heads)
            raise LayerError(f'This {type(model).__name__} has several heads: "penultimate" is {names}. Name them.')
    if isinstance(classifier, nn.Module):
        found = [call for call in calls if call.module is classifier and not isinstance(classifier, nn.Identity)]
    else:
        found = [call for call in _with_weights(calls)[-1:] if _gives_scores(call, model, inputs)]
    if not found:
        raise LayerError(
            f'This {type(model).__name__} ends in no classifier, so that no layer is its "penultimate". Its last map '
            'or tokens are "last".'
        )
    number = sum(call.module is found[-1].module for call in calls) - 1
    return Layer(found[-1].name, found[-1].module, number or None, input=True)


def _with_weights(calls: list[Call]) -> list[Call]:
    """The calls of modules that have weights of their own, not only those of their parts."""
    return [call for call in calls if list(call.module.parameters(recurse=False))]


def _gives_scores(call: Call, model: nn.Module, inputs: torch.Tensor) -> bool:
    """Whether a call is of a linear or convolutional classifier, whose scores are at most pooled behind it."""
    if not isinstance(call.module, _CLASSIFIERS) or call.outputs is None:
        return False
    with as_found(model), torch.no_grad():
        output = model(inputs.clone())
    scores = getattr(output, "logits", output[0] if isinstance(output, tuple | list) else output)
    axis = -1 if isinstance(call.module, nn.Linear) else 1
    return isinstance(scores, torch.Tensor) and scores.dim() == 2 and scores.shape[1] == call.outputs[axis]


def _last(model: nn.Module, inputs: torch.Tensor, calls: list[Call]) -> Layer:
    key = last_map(model, inputs, calls)
    if key is None:
        raise LayerError(f'No layer of this {type(model).__name__} gives a map or tokens: "last" means nothing here.')
    return find_layer(model, key)
