"""Run a model once and write down which layers were called, in which order, and what they gave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from camapp.hooks.as_found import as_found, here
from camapp.hooks.manager import HookManager


@dataclass(frozen=True)
class Call:
    """One call of one module.

    Args:
        name: the module's dotted name.
        module: the module.
        inputs: the shape of its first tensor argument, or None where it has none.
        outputs: the shape of its output tensor, or None where the output is no tensor.
    """

    name: str
    module: nn.Module
    inputs: tuple[int, ...] | None
    outputs: tuple[int, ...] | None


def trace_calls(model: nn.Module, inputs: torch.Tensor) -> list[Call]:
    """Every module call of one forward, in the order in which the calls ended; the model is left as found."""
    calls: list[Call] = []
    with as_found(model), torch.no_grad(), HookManager() as hooks:
        for name, module in model.named_modules():
            if name:
                hooks.forward(module, _recorder(name, calls))
        model(inputs.clone())  # a model may change its input in place
    return calls


def _recorder(name: str, calls: list[Call]) -> Any:
    where = here()

    def on_forward(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if here() == where:  # not another thread's forward
            calls.append(Call(name, module, _shape(args), _shape(output)))

    return on_forward


def _shape(value: Any) -> tuple[int, ...] | None:
    if isinstance(value, tuple | list):
        value = next((item for item in value if isinstance(item, torch.Tensor)), None)
    return tuple(value.shape) if isinstance(value, torch.Tensor) else None
