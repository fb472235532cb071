"""Which layers a pattern means: a name, a glob, an index, a regular expression, or an alias."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from torch import nn

from camapp.errors import LayerError, did_you_mean
from camapp.hooks.layers import PLACE, Layer, find_layer

Pattern: TypeAlias = str | nn.Module | type[nn.Module]
# An alias names a place that only a dry run tells, such as the last map.
Aliases: TypeAlias = Mapping[str, Callable[[], Layer]]

_INDEX = re.compile(r"(?P<name>[^\[\]]*)\[(?P<index>-?\d*(?::-?\d*){0,2})\](?P<rest>(?:\..+)?)")


def select_layers(model: nn.Module, patterns: Pattern | Iterable[Pattern], aliases: Aliases) -> dict[str, Layer]:
    r"""The places that patterns mean, by name, none twice; those of one pattern in the order of the model.

    Args:
        model: the network.
        patterns: one or several of

            - ``"layer4.0.conv1"``: a layer; ``"layer4.relu@0"`` its first call, ``"layer4:input"`` what goes into it,
              ``"lstm#1"`` or ``"encoder#hidden"`` a part of what it gives. The same may follow globs and numbers;
            - ``"blocks.*"``: a glob. ``*`` and ``?`` stay within one part of a dotted name, ``**.`` stands for any
              number of parts, none included;
            - ``"blocks[-4:]"``, ``"features[0].attn"``: parts of a container by number, as Python slices lists;
            - ``"re:blocks\.\d+"``: a regular expression for whole names;
            - an alias; a layer of that name comes first;
            - a module of the model;
            - a class of modules, such as ``nn.Conv2d``.

        aliases: by name, how the place is found.

    Returns:
        The places by their keys; those of aliases by the alias.

    Raises:
        LayerError: a pattern that means no layer of the model.
    """
    given = [patterns] if isinstance(patterns, str | nn.Module | type) else list(patterns)
    if not given:
        raise LayerError("No layer is named. Name one or more.")
    found: dict[str, Layer] = {}
    names = [name for name, _ in model.named_modules(remove_duplicate=False) if name]
    for pattern in given:
        if isinstance(pattern, str) and pattern in aliases and pattern not in names:
            found.setdefault(pattern, aliases[pattern]())
            continue
        for layer in _meant(model, pattern, names, aliases):
            found.setdefault(layer.key, layer)
    return found


def _meant(model: nn.Module, pattern: Pattern, names: list[str], aliases: Aliases) -> list[Layer]:
    if isinstance(pattern, type):
        return _of_class(model, pattern)
    if not isinstance(pattern, str):
        return [find_layer(model, pattern)]
    if pattern.startswith("re:"):
        return _matching(model, pattern, _expression(pattern[3:]), names)
    place = PLACE.fullmatch(pattern)
    assert place is not None, "PLACE matches any text on one line"
    name = place["name"]
    if "[" in name:
        layers = _indexed(model, pattern, name, names)
    elif "*" in name or "?" in name:
        layers = _matching(model, pattern, _glob(name), names)
    else:
        try:
            return [find_layer(model, pattern)]
        except LayerError as error:
            hint = f" Aliases: {', '.join(aliases)}." if aliases else ""
            raise LayerError(f"{error}{hint}") from None
    call = None if place["call"] is None else int(place["call"])
    return [replace(one, call=call, input=place["input"] is not None, output=place["output"]) for one in layers]


def _of_class(model: nn.Module, kind: type[nn.Module]) -> list[Layer]:
    hits = [Layer(name, module) for name, module in model.named_modules() if name and isinstance(module, kind)]
    if not hits:
        there = sorted({type(module).__name__ for name, module in model.named_modules() if name})
        raise LayerError(f"{type(model).__name__} has no {kind.__name__}. Its layers: {', '.join(there)}.")
    return hits


def _expression(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise LayerError(f'"re:{text}" is no regular expression: {error}.') from error


def _glob(text: str) -> re.Pattern[str]:
    parts = {"**.": r"(?:.*\.)?", "**": ".*", "*": "[^.]*", "?": "[^.]"}
    return re.compile("".join(parts.get(part, re.escape(part)) for part in re.split(r"(\*\*\.|\*\*|\*|\?)", text)))


def _matching(model: nn.Module, pattern: str, expression: re.Pattern[str], names: list[str]) -> list[Layer]:
    hits = [name for name in names if expression.fullmatch(name)]
    if not hits:
        like = did_you_mean(re.sub(r"^re:|[*?\\]", "", pattern), names)
        raise LayerError(f'No layer of {type(model).__name__} matches "{pattern}".{like} ({len(names)} layers in all.)')
    return [find_layer(model, name) for name in hits]


def _indexed(model: nn.Module, pattern: str, text: str, names: list[str]) -> list[Layer]:
    """The parts of a container by number, such as ``blocks[-4:]``, and perhaps a layer within each."""
    index = _INDEX.fullmatch(text)
    if index is None or index["index"] == "":
        raise LayerError(
            f'"{pattern}" cannot be read. Parts of a container are named as in "blocks[-4:]" or "blocks[0].attn".'
        )
    owner = find_layer(model, index["name"]).module if index["name"] else model
    children = [name for name, child in owner._modules.items() if child is not None]  # one may be there twice
    numbers = [int(part) if part else None for part in index["index"].split(":")]
    if len(numbers) == 1:
        number = numbers[0]
        assert number is not None, "an index without a colon has digits"
        chosen = children[number : number + 1 or None] if -len(children) <= number < len(children) else []
    else:
        chosen = children[slice(*numbers)] if 0 not in numbers[2:] else []
    if not chosen:
        raise LayerError(f'"{pattern}" means no layer: "{index["name"]}" has {len(children)} parts, counted from 0.')
    prefix = f"{index['name']}." if index["name"] else ""
    return [find_layer(model, f"{prefix}{child}{index['rest']}") for child in chosen]
