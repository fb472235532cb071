"""Run a model once and write down which layers were called, in which order, and what they gave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from camapp.errors import closest
from camapp.hooks.as_found import as_found, here
from camapp.hooks.handles import Handles


@dataclass(frozen=True)
class Call:
    """One call of one module.

    Args:
        name: the module's dotted name.
        module: the module.
        inputs: the shape of its first tensor argument, or None where it has none.
        outputs: the shape of its output tensor, or None where the output is no tensor.
        tensor: the number of the tensor that it gave. Calls that end one after the other with the same number passed on
            one tensor, as the last activation of a stage and the stage around it do.
        span: the lowest and the highest value of its output; None where they were not asked for, or where the output is
            no tensor of real numbers.
    """

    name: str
    module: nn.Module
    inputs: tuple[int, ...] | None
    outputs: tuple[int, ...] | None
    tensor: int = 0
    span: tuple[float, float] | None = None


def trace_calls(model: nn.Module, inputs: torch.Tensor, *, measure: bool = False) -> list[Call]:
    """Every module call of one forward, in the order in which the calls ended; the model is left as found.

    Args:
        model: the network.
        inputs: what it is called with.
        measure: also read the lowest and the highest value of each output.
    """
    with as_found(model), torch.no_grad(), Handles() as hooks:
        recorder = _Recorder(measure)
        for name, module in model.named_modules():
            if name:
                hooks.forward(module, recorder.hook(name))
        model(inputs.clone())  # a model may change its input in place
    return recorder.calls


def that_ran(calls: list[Call], layer: str) -> str:
    """A sentence that names the layers nearest to one that did not run, of those that did."""
    ran = list(dict.fromkeys(call.name for call in calls))
    parent = layer.rpartition(".")[0]
    beside = [name for name in ran if parent and (name == parent or name.startswith(f"{parent}."))]
    near = [*closest(layer, ran), *beside][:4] or ran[-4:]
    return f"Layers that ran: {', '.join(dict.fromkeys(near))}."


class _Recorder:
    """Writes calls down, and tells a tensor that is handed on from one that is new."""

    def __init__(self, measure: bool) -> None:
        self.calls: list[Call] = []
        self._measure = measure
        self._where = here()
        self._last: torch.Tensor | None = None  # held, so that no later tensor takes its place in memory
        self._mark: tuple[Any, ...] = ()
        self._number = 0

    def hook(self, name: str) -> Any:
        def on_forward(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            if here() != self._where:  # another thread's forward
                return
            tensor = _first_tensor(output)
            self._count(tensor)
            span = _span(tensor) if self._measure else None
            shape = None if tensor is None else tuple(tensor.shape)
            self.calls.append(Call(name, module, _shape(args), shape, self._number, span))

        return on_forward

    def _count(self, tensor: torch.Tensor | None) -> None:
        if tensor is None:
            mark: tuple[Any, ...] = (self._number,)
        else:  # an in-place operation gives the old memory new values, and a new version
            version = 0 if tensor.is_inference() else tensor._version
            mark = (tensor.data_ptr(), version, tensor.shape, tensor.stride())
        if self._last is None or mark != self._mark:
            self._number += 1
        self._last, self._mark = tensor, mark


def _span(tensor: torch.Tensor | None) -> tuple[float, float] | None:
    if tensor is None or not tensor.is_floating_point() or not tensor.numel():
        return None
    lowest, highest = tensor.detach().aminmax()
    return float(lowest), float(highest)


def _shape(value: Any) -> tuple[int, ...] | None:
    tensor = _first_tensor(value)
    return None if tensor is None else tuple(tensor.shape)


def _first_tensor(value: Any) -> torch.Tensor | None:
    if isinstance(value, tuple | list):
        value = next((item for item in value if isinstance(item, torch.Tensor)), None)
    return value if isinstance(value, torch.Tensor) else None
