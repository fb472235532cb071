"""Silence: which registered hooks never fired, and why."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode, resolve_name

from camapp.hooks.as_found import as_found
from camapp.hooks.handles import Handles
from camapp.hooks.hookable import is_compiled


@dataclass(frozen=True)
class Silent:
    """One thing that is registered and never fired.

    Args:
        name: the name under which it is registered.
        layer: the layer.
        why: the reason, in words.
    """

    name: str
    layer: str
    why: str

    def __str__(self) -> str:
        return f"{self.name}: {self.why}"


@dataclass(frozen=True)
class Waiting:
    """Something registered that has not fired so far.

    Args:
        name: the name under which it is registered.
        layer: the layer that it waits at.
        module: the layer's module.
        of: what it is done to; of a ``"gradient"`` it takes a backward.
        ran: how often the layer is known to have run.
    """

    name: str
    layer: str
    module: nn.Module
    of: str
    ran: int = 0


def find_silent(
    model: nn.Module,
    waiting: list[Waiting],
    forwards: int,
    inputs: tuple[tuple[Any, ...], Mapping[str, Any]] | None,
) -> list[Silent]:
    """Why each of several hooks never fired.

    Args:
        model: the network.
        waiting: the hooks.
        forwards: how many forwards of the model were seen.
        inputs: what to run the model with once more, to see; None to say what can be told without.
    """
    unknown = [one.module for one in waiting if not one.ran]
    seen = _run(model, unknown, *inputs) if inputs is not None and unknown else None
    found = []
    for one in waiting:
        if one.ran:
            why = _ran_reason(one)
        else:
            why = _plain_reason(model, one.module, forwards) if seen is None else _seen_reason(seen, one.module)
        found.append(Silent(one.name, one.layer, why))
    return found


def _ran_reason(waiting: Waiting) -> str:
    if waiting.of == "gradient":
        return (
            f"the layer ran {waiting.ran} time(s), but no gradient came back: no backward ran, its output requires no "
            "gradient or is not on the way to the loss, or no step of its schedule came"
        )
    return (
        f"the layer ran {waiting.ran} time(s), but never with the call or part named, a tensor of real numbers, at a "
        "step of its schedule, or in the thread that opened the manager"
    )


class _Seen:
    """What one forward showed of modules: their calls, direct calls of their forward, and who used their parameters."""

    def __init__(self) -> None:
        self.called: set[int] = set()
        self.direct: dict[int, str] = {}
        self.used_by: dict[int, str] = {}


def _seen_reason(seen: _Seen, module: nn.Module) -> str:
    if id(module) in seen.called:
        return "it ran in the forward tried just now: none ran since it was registered, or it fires only in a backward"
    if id(module) in seen.direct:
        return f"its .forward was called directly {seen.direct[id(module)]}, which passes all hooks by: call the module"
    if id(module) in seen.used_by:
        return f"it was never called: {seen.used_by[id(module)]} uses its parameters instead. Choose its parent"
    return "it was never called in the forward tried just now: it is unused for these inputs"


def _plain_reason(model: nn.Module, module: nn.Module, forwards: int) -> str:
    if not forwards:
        return "the model has not run since it was registered"
    if is_compiled(model) or is_compiled(module):
        return "it was compiled, and skips hooks added after its first call"
    attentions = [one for one in model.modules() if isinstance(one, nn.MultiheadAttention)]
    if any(one.out_proj is module for one in attentions):
        return "it was never called: nn.MultiheadAttention uses its parameters in a fused function. Choose that one"
    used = any(parameter.grad is not None for parameter in module.parameters())
    what = "it was never called in the forwards so far"
    if used:
        return (
            f"{what}, yet its parameters have gradients: its .forward is called directly, or a fused function uses "
            "them. hooks.silent(inputs) tells which"
        )
    return f"{what}: it is unused, or its .forward is called directly. hooks.silent(inputs) tells which"


def _run(model: nn.Module, modules: list[nn.Module], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Seen:
    seen = _Seen()
    before = sys.getprofile()
    with as_found(model, predict=False), torch.no_grad(), Handles() as hooks, _Uses(modules, seen):
        for module in modules:
            hooks.forward_pre(module, lambda module, args, kwargs: seen.called.add(id(module)))
        sys.setprofile(_direct_calls(modules, seen))
        try:
            model(*args, **kwargs)
        finally:
            sys.setprofile(before)
    return seen


def _direct_calls(modules: list[nn.Module], seen: _Seen) -> Callable[..., None]:
    """A profiler that sees when a module's ``forward`` runs, and from where it was called."""
    codes = {getattr(type(module).forward, "__code__", None) for module in modules}
    wanted = {id(module) for module in modules}

    def on_event(frame: Any, event: str, argument: Any) -> None:
        if event != "call" or frame.f_code not in codes:
            return
        module = frame.f_locals.get(frame.f_code.co_varnames[0])
        caller = frame.f_back
        if id(module) in wanted and caller is not None and caller.f_globals.get("__name__") != nn.Module.__module__:
            where = f"{Path(caller.f_code.co_filename).name}:{caller.f_lineno}"
            seen.direct.setdefault(id(module), f"by {caller.f_code.co_name} ({where})")

    return on_event


class _Uses(TorchFunctionMode):
    """Sees which of torch's functions are given parameters of the modules."""

    def __init__(self, modules: list[nn.Module], seen: _Seen) -> None:
        super().__init__()
        self._owners = {id(one): id(module) for module in modules for one in module.parameters()}
        self._seen = seen

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for value in (*args, *(kwargs or {}).values()):
            owner = self._owners.get(id(value)) if isinstance(value, torch.Tensor) else None
            name = resolve_name(func) or getattr(func, "__name__", str(func))
            if owner is not None and not name.endswith(("__get__", "__set__")):
                self._seen.used_by.setdefault(owner, name)
        return func(*args, **(kwargs or {}))
