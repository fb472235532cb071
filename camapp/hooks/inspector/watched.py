"""Which layers an inspection watches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import nn

from camapp.errors import LayerError, UsageError
from camapp.hooks.inspector.figures import Bounds
from camapp.hooks.inspector.kinds import bounds_of, channel_axes, zeros_mean_dead
from camapp.hooks.layers import Layer
from camapp.hooks.selection import Pattern, select_layers


@dataclass(frozen=True)
class Watched:
    """One layer that is watched.

    Args:
        name: its dotted name.
        module: the module.
        places: which calls and parts of them are meant; None stands for all.
        dead: whether zeros are counted as dead units.
        axis: of the channels, as far as the layers before this one tell.
        bounds: its limits, of a bounded activation function.
        named: whether the user named it; else it is left out where it hands on what the layer before gave.
    """

    name: str
    module: nn.Module
    places: frozenset[tuple[int | None, str | None]]
    dead: bool
    axis: int | None
    bounds: Bounds | None
    named: bool = True

    @property
    def kind(self) -> str:
        """The class of the layer."""
        return type(self.module).__name__

    def meant(self, call: int, part: str) -> bool:
        """Whether a part of what a call gave is watched."""
        return any(
            asked_call in (None, call) and (asked is None or part == asked or part.startswith(f"{asked}."))
            for asked_call, asked in self.places
        )

    def key(self, call: int, part: str) -> str:
        """The name of a part of what a call gave: ``relu``, ``relu@1`` for the second call, ``lstm#1.0`` for a part."""
        return self.name + (f"@{call}" if call else "") + (f"#{part}" if part else "")


def watched_layers(model: nn.Module, choice: Pattern | Iterable[Pattern] | None) -> list[Watched]:
    """The layers that a user means, in the order of the model.

    Args:
        model: the network.
        choice: patterns as ``select_layers`` reads them, modules, or classes of modules; None for all layers without
            layers inside.

    Raises:
        LayerError: a pattern or a class that the model has no layer of; an input of a layer.
        UsageError: no layer at all.
    """
    modules = {module: name for name, module in model.named_modules()}
    axes = channel_axes(modules)
    places = _leaves(modules) if choice is None else _chosen(model, modules, choice)
    return [
        Watched(
            name or type(model).__name__, module, frozenset(places[module]), zeros_mean_dead(module), axes[module],
            bounds_of(module), choice is not None,
        )
        for module, name in modules.items()
        if module in places
    ]  # fmt: skip


Places: TypeAlias = dict[nn.Module, list[tuple[int | None, str | None]]]


def _leaves(modules: dict[nn.Module, str]) -> Places:
    """Layers without layers inside that run; those within these two kinds do not, or give weights."""
    whole = [
        name for module, name in modules.items()
        if isinstance(module, nn.MultiheadAttention) or "parametrizations" in module._modules
    ]  # fmt: skip
    inside = tuple(f"{name}." if name else "" for name in whole)
    return {
        module: [(None, None)]
        for module, name in modules.items()
        if (name in whole or not module._modules)
        and not (inside and name not in whole and name.startswith(inside))
        and not isinstance(module, torch.jit.ScriptModule)
    }


def _chosen(model: nn.Module, modules: dict[nn.Module, str], choice: Pattern | Iterable[Pattern]) -> Places:
    given = [choice] if isinstance(choice, str | nn.Module | type) else list(choice)
    if not given:
        raise UsageError("No layer is named. Name one or more, or leave layers= out for all.")
    found: Places = {}
    for one in given:
        for layer in select_layers(model, one, {}).values():
            _refuse_input(layer)
            found.setdefault(layer.module, []).append((layer.call, layer.output))
    return found


def _refuse_input(layer: Layer) -> None:
    if layer.input:
        raise LayerError(f'"{layer.key}" is what goes into a layer: name the layer that it comes out of instead.')
