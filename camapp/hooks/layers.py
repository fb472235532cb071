"""Name the layers of a model, and find the one a user means."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn

from camapp.errors import LayerError, ModelError, did_you_mean

PLACE = re.compile(r"(?P<name>.*?)(?:@(?P<call>\d+))?(?P<input>:input)?(?:#(?P<output>[^#]+))?", re.DOTALL)


@dataclass(frozen=True)
class Layer:
    """One place of a model: a layer, which of its calls within a forward, and which of its outputs or its input.

    Args:
        name: the module's dotted name.
        module: the module.
        call: the number of the call, from 0; None for the last one.
        input: whether what goes into the layer is meant, instead of what comes out.
        output: which part of what comes out or goes in, where that is a tuple, a list or a mapping; None for the first
            tensor.
    """

    name: str
    module: nn.Module
    call: int | None = None
    input: bool = False
    output: str | None = None

    @property
    def key(self) -> str:
        """The text that names this place: ``layer4``, ``layer4.relu@0`` for a call, ``layer4:input``, ``lstm#1.0``."""
        call = "" if self.call is None else f"@{self.call}"
        return f"{self.name}{call}{':input' if self.input else ''}" + ("" if self.output is None else f"#{self.output}")


def module_name(key: str) -> str:
    """The module's name in the name of a place: without ``@call``, ``:input`` and ``#part``."""
    place = PLACE.fullmatch(key)
    return place["name"] if place else key


def find_layer(model: nn.Module, layer: str | nn.Module) -> Layer:
    """The layer of ``model`` meant by ``name``, ``name@call``, ``name:input``, ``name#part``, or the module itself.

    Raises:
        LayerError: the model has no such layer; the message names the closest ones.
    """
    if isinstance(layer, nn.Module):
        return Layer(_name_of(model, layer), layer)
    if not isinstance(layer, str):
        raise LayerError(f"A layer is a name or a module, not {type(layer).__name__}.")
    try:
        if layer:
            return Layer(layer, model.get_submodule(layer))
    except AttributeError:
        pass  # a call of a layer, or a name that the model does not have
    modules = dict(model.named_modules(remove_duplicate=False))
    modules.pop("", None)
    place = PLACE.fullmatch(layer)
    if place and place["name"] in modules:
        call = None if place["call"] is None else int(place["call"])
        return Layer(place["name"], modules[place["name"]], call, place["input"] is not None, place["output"])
    kind, name = type(model).__name__, place["name"] if place else layer
    raise LayerError(f'No layer "{layer}" in {kind}.{did_you_mean(name, modules)} ({len(modules)} layers in all.)')


def find_layers(model: nn.Module, layers: Iterable[str | nn.Module]) -> list[Layer]:
    """``find_layer`` for each of several layers, in the order given."""
    return [find_layer(model, layer) for layer in layers]


def unwrap(model: nn.Module) -> nn.Module:
    """The module that hooks can reach: the original of a compiled one, the inside of a DataParallel one.

    Raises:
        ModelError: not a module, or a scripted one, which runs no hooks registered later.
    """
    if not isinstance(model, nn.Module):
        raise ModelError(f"A model is a torch.nn.Module, not {type(model).__name__}.")
    if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        return unwrap(model.module)
    original = getattr(model, "_orig_mod", None)
    if isinstance(original, nn.Module):  # of torch.compile, which skips hooks added after its first call silently
        return unwrap(original)
    if isinstance(model, torch.jit.ScriptModule):
        raise ModelError("A scripted or traced model runs without hooks. Give the nn.Module that it was made from.")
    if any(isinstance(parameter, nn.UninitializedParameter) for parameter in model.parameters()):
        raise ModelError("This model has lazy layers whose shapes are not known yet. Run it once on an input first.")
    if any(parameter.is_inference() for parameter in model.parameters()):
        raise ModelError(
            "This model was built under torch.inference_mode(), so that autograd cannot use its parameters. Build "
            "or load it outside of that."
        )
    return model


def _name_of(model: nn.Module, module: nn.Module) -> str:
    for name, candidate in model.named_modules():
        if candidate is module and name:
            return name
    if module is model:
        raise LayerError("The model itself cannot be its own target layer. Give one of its layers.")
    raise LayerError(f"The {type(module).__name__} given as layer is not part of this {type(model).__name__}.")
