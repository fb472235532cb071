"""The tensors within what a module takes or gives: a tensor, or tuples, lists, mappings and dataclasses of them."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch


def tensors_in(value: Any) -> dict[str, torch.Tensor]:
    """Every tensor within ``value`` by its place, in order.

    A place is ``""`` where the value itself is a tensor, else the numbers and keys that lead to it, joined by dots:
    ``"0"``, ``"1.0"`` for the hidden state of an LSTM, ``"hidden_states.3"``. What holds no tensors, and objects of
    unknown classes, are passed over.
    """
    return dict(_walk(value, ""))


def with_tensors(value: Any, changed: Mapping[str, torch.Tensor]) -> Any:
    """``value`` with other tensors at some places; containers on the way are new ones of the same class, never changed.

    Args:
        value: a tensor or a structure of tensors.
        changed: the new tensors by the places that ``tensors_in`` names.
    """
    if not changed:
        return value
    if "" in changed:
        return changed[""]
    parts = dict(_parts(value))
    inner: dict[str, dict[str, torch.Tensor]] = {}
    for place, tensor in changed.items():
        # A key may itself have dots: the longest that fits is meant.
        first = max((name for name in parts if place == name or place.startswith(f"{name}.")), key=len)
        inner.setdefault(first, {})[place[len(first) + 1 :]] = tensor
    return _rebuilt(value, {name: with_tensors(parts[name], ones) for name, ones in inner.items()})


def _walk(value: Any, place: str) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield place, value
        return
    for name, part in _parts(value):
        yield from _walk(part, f"{place}.{name}" if place else name)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """What a container holds, by number or key; nothing for anything else."""
    if isinstance(value, Mapping):  # transformers' outputs are mappings and dataclasses at once
        yield from ((str(key), part) for key, part in value.items())
    elif isinstance(value, tuple | list):
        yield from ((str(number), part) for number, part in enumerate(value))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))


def _rebuilt(value: Any, parts: Mapping[str, Any]) -> Any:
    if isinstance(value, Mapping):
        return _rebuilt_mapping(value, {key: parts.get(str(key), part) for key, part in value.items()})
    if isinstance(value, tuple | list):
        held = [parts.get(str(number), part) for number, part in enumerate(value)]
        if hasattr(value, "_replace"):
            return type(value)(*held)  # a named tuple takes its parts one by one
        return type(value)(held)
    new = copy.copy(value)
    for name, part in parts.items():
        object.__setattr__(new, name, part)  # also of a frozen dataclass
    return new


def _rebuilt_mapping(value: Mapping[Any, Any], held: dict[Any, Any]) -> Any:
    if type(value) is dict:
        return held
    try:
        new = copy.copy(value)  # keeps what a class of its own holds beside its items, such as a default
        for key, part in held.items():
            new[key] = part  # type: ignore[index]
    except TypeError:  # it cannot be copied or written to
        return type(value)(held)  # type: ignore[call-arg]
    return new
