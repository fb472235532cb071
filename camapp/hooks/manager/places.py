"""Places: what a pattern means to a manager, layers, parameters or a tensor at hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from itertools import count
from typing import TypeAlias

import torch
from torch import nn

from camapp.errors import LayerError, UsageError, did_you_mean
from camapp.hooks.hookable import check_layers
from camapp.hooks.layers import Layer
from camapp.hooks.selection import Pattern, select_layers

# What may be named: layers by name, glob, class or module; parameters by name or glob; a tensor itself.
Place: TypeAlias = Pattern | torch.Tensor


def find_places(model: nn.Module, place: Place | Iterable[Place]) -> tuple[list[Layer], dict[str, torch.Tensor]]:
    """The layers, and the parameters by name, that one or several patterns mean; none twice.

    Args:
        model: the network.
        place: what ``select_layers`` takes; a parameter's name, or a glob of names that fits no layer
            (``"layer4.*weight"``, where ``*`` also crosses dots); a parameter or another tensor. Parameters that a glob
            fits and that require no gradient are left out.

    Raises:
        LayerError: a pattern that means nothing.
        ModelError: a layer that is scripted, whose hooks would not run.
        UsageError: a parameter named that requires no gradient.
    """
    if not isinstance(place, str | nn.Module | type | torch.Tensor | Iterable):
        raise LayerError(f"A place is a name, a module, a class of modules or a tensor, not {type(place).__name__}.")
    given = [place] if isinstance(place, str | nn.Module | type | torch.Tensor) else list(place)
    if not given:
        raise LayerError("No layer is named. Name one or more.")
    parameters = dict(model.named_parameters(remove_duplicate=False))
    layers: dict[str, Layer] = {}
    found: dict[str, torch.Tensor] = {}
    for one in given:
        if isinstance(one, torch.Tensor):
            found[_name_of(one, parameters, found)] = one
        elif isinstance(one, str) and one in parameters:
            found[one] = parameters[one]
        else:
            try:
                layers.update(select_layers(model, one, {}))
            except LayerError as error:
                found.update(_fitting(one, parameters, error))
    once = {(id(one.module), one.call, one.input, one.output): key for key, one in reversed(layers.items())}
    layers = {key: one for key, one in layers.items() if key in once.values()}  # a module may have several names
    check_layers(model, [(layer.name, layer.module) for layer in layers.values()])
    for name, tensor in found.items():
        if not tensor.requires_grad:
            raise UsageError(
                f"{name} requires no gradient, so that none will come. Switch requires_grad on, or leave it out."
            )
    return list(layers.values()), _once_each(found)


def whole_layers(layers: Iterable[Layer], what: str) -> None:
    """Refuse a call, an input or a part of a layer where only whole layers are meant.

    Raises:
        UsageError: one of them.
    """
    for layer in layers:
        if layer.call is not None or layer.input or layer.output is not None:
            raise UsageError(f'{what} are for whole layers, at all their calls: "{layer.name}", not "{layer.key}".')


def _fitting(pattern: Pattern, parameters: Mapping[str, torch.Tensor], error: LayerError) -> dict[str, torch.Tensor]:
    if not isinstance(pattern, str):
        raise error
    hits = {name: one for name, one in parameters.items() if fnmatchcase(name, pattern)}
    learning = {name: one for name, one in hits.items() if one.requires_grad}
    if learning:
        return learning
    if hits:
        raise UsageError(f'"{pattern}" fits {len(hits)} parameters, none of which requires a gradient.')
    hint = did_you_mean(pattern, parameters) if "." in pattern else ""
    raise LayerError(f"{error}{f' Of the parameters:{hint}' if hint else ''}") from None


def _name_of(tensor: torch.Tensor, parameters: Mapping[str, torch.Tensor], taken: Mapping[str, torch.Tensor]) -> str:
    """The parameter's name; ``tensor``, ``tensor_2`` ... of others."""
    own = next((name for name, one in parameters.items() if one is tensor), None)
    names = ("tensor" if number == 1 else f"tensor_{number}" for number in count(1))
    return own or next(name for name in names if name not in taken)


def _once_each(found: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Without second names of one parameter, which would see each gradient twice."""
    firsts: dict[int, str] = {}
    for name, tensor in found.items():
        firsts.setdefault(id(tensor), name)
    return {name: tensor for name, tensor in found.items() if firsts[id(tensor)] == name}
