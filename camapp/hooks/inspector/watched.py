"""Which layers an inspection watches, and which models it can."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import nn

from camapp.errors import LayerError, ModelError, UsageError
from camapp.hooks.inspector.figures import Bounds
from camapp.hooks.inspector.kinds import bounds_of, channel_axes, zeros_mean_dead
from camapp.hooks.layers import Layer, unwrap
from camapp.hooks.selection import Pattern, select_layers

Choice: TypeAlias = Pattern | type[nn.Module]


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
    """

    name: str
    module: nn.Module
    places: frozenset[tuple[int | None, str | None]]
    dead: bool
    axis: int | None
    bounds: Bounds | None

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


def inspected(model: nn.Module, *, eager: bool = False) -> nn.Module:
    """The module that hooks are put into: ``model``, or the inside of a DistributedDataParallel.

    Args:
        model: the network as it was given.
        eager: whether the model is made to run eagerly while it is inspected.

    Raises:
        ModelError: a model that would run without the hooks.
    """
    if isinstance(getattr(model, "_orig_mod", None), nn.Module):
        raise ModelError(
            "This model is compiled: torch skips hooks that are added afterwards, without a word. Inspect the original "
            "module and run that, or make the Inspector before torch.compile."
        )
    if isinstance(model, nn.DataParallel):
        raise ModelError(
            "An nn.DataParallel runs copies of the model in other threads, which are not inspected. Inspect "
            "model.module and run that on one device, or use DistributedDataParallel."
        )
    inner = unwrap(model)
    if inner is not model:
        return inspected(inner, eager=eager)
    compiled = [name for name, module in model.named_modules() if module._compiled_call_impl is not None]
    if compiled and not eager:
        part = f'its part "{compiled[0]}"' if compiled[0] else "it"
        raise ModelError(
            f"This model was compiled in place ({part}, by .compile()): torch skips hooks that are added afterwards, "
            "without a word. Make the Inspector before that, or inspect a model that was not compiled."
        )
    return model


def watched_layers(model: nn.Module, choice: Choice | Iterable[Choice] | None) -> list[Watched]:
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
            bounds_of(module),
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


def _chosen(model: nn.Module, modules: dict[nn.Module, str], choice: Choice | Iterable[Choice]) -> Places:
    given = [choice] if isinstance(choice, str | nn.Module | type) else list(choice)
    if not given:
        raise UsageError("No layer is named. Name one or more, or leave layers= out for all.")
    found: Places = {}
    for one in given:
        if isinstance(one, type):
            hits = [module for module in modules if isinstance(module, one)]
            if not hits:
                raise LayerError(f"{type(model).__name__} has no layer of the class {one.__name__}.")
            for module in hits:
                found.setdefault(module, []).append((None, None))
            continue
        for layer in select_layers(model, one, {}).values():
            _refuse_input(layer)
            found.setdefault(layer.module, []).append((layer.call, layer.output))
    return found


def _refuse_input(layer: Layer) -> None:
    if layer.input:
        raise LayerError(f'"{layer.key}" is what goes into a layer: name the layer that it comes out of instead.')
