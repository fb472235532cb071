"""Hookable: refuses models and layers whose hooks torch would skip without a word."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from camapp.errors import ModelError
from camapp.hooks.layers import unwrap


def hookable(model: nn.Module) -> nn.Module:
    """The module that hooks go into while the user runs ``model``: itself, or the inside of a DistributedDataParallel.

    Raises:
        ModelError: no module, or a model that would run without the hooks: compiled, scripted, in a DataParallel.
    """
    inner = model
    while True:
        if isinstance(getattr(inner, "_orig_mod", None), nn.Module):
            raise ModelError(
                "A compiled model skips hooks that are added after its first call, without a word. Give the module it "
                "was made from and run that (compiled._orig_mod), or compile after the hooks are on, in a process that "
                "has not compiled it before (torch._dynamo.reset() forgets)."
            )
        if isinstance(inner, nn.DataParallel):
            raise ModelError(
                "nn.DataParallel runs copies of the model in other threads, where nothing is seen. Give model.module "
                "and run that, or use DistributedDataParallel, one process a GPU."
            )
        if not isinstance(inner, nn.parallel.DistributedDataParallel):
            return unwrap(inner)
        inner = inner.module


def check_layers(model: nn.Module, layers: Iterable[tuple[str, nn.Module]]) -> None:
    """Refuse layers whose hooks would not run.

    Args:
        model: the network.
        layers: names and modules.

    Raises:
        ModelError: a scripted or traced layer, or one within what was compiled in place.
    """
    compiled = [name for name, module in model.named_modules() if is_compiled(module)]
    for layer, module in layers:
        if isinstance(module, torch.jit.ScriptModule):
            raise ModelError(
                f'"{layer}" is scripted or traced, and runs no hooks. Put the nn.Module that it was made from in its '
                "place, or choose a layer around it."
            )
        around = [name for name in compiled if name == "" or layer == name or layer.startswith(f"{name}.")]
        if around:
            raise ModelError(
                f'"{layer}" lies in {around[0] or "a model"} that was compiled, which skips hooks added after its '
                "first call. Use a model that is not compiled, choose other layers, or hook first and compile then, in "
                "a process that has not compiled it before (torch._dynamo.reset() forgets)."
            )


def is_compiled(module: nn.Module) -> bool:
    """Whether a module was compiled, in place or by ``torch.compile``."""
    return module._compiled_call_impl is not None or isinstance(getattr(module, "_orig_mod", None), nn.Module)
