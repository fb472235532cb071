"""Which modules run, and how much each multiplies: one forward watched operation by operation, told as figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry, sdpa_flop_count

from camapp.hooks.as_found import as_found, here
from camapp.hooks.handles import Handles
from camapp.hooks.structures import tensors_in


@dataclass
class Work:
    """What one module did in one forward, those of its parts included.

    Args:
        calls: how often it ran.
        macs: multiply-accumulates of all calls.
        shape: of the first tensor that its last call gave, the batch axis included; None where there is none.
    """

    calls: int = 0
    macs: int = 0
    shape: tuple[int, ...] | None = None


def count_work(model: nn.Module, inputs: torch.Tensor) -> dict[str, Work]:
    """What every module of a network does in one forward; the network is left as found.

    Convolutions, matrix products and attention are counted, wherever they are called: a functional one counts for the
    module whose forward calls it. What only adds, scales, compares or moves numbers counts nothing.

    Args:
        model: the network; it predicts, without gradients.
        inputs: what it is called with; the figures are of all its rows.

    Returns:
        By dotted name, ``""`` for the network itself; a module under several names has its first.
    """
    work = {name: Work() for name, _ in model.named_modules()}
    with as_found(model), torch.no_grad(), Handles() as hooks:
        running = _Running(work)
        for name, module in model.named_modules():
            hooks.forward_pre(module, running.begins(name), first=True)
            hooks.forward(module, running.ends(name), always=True)
        with _Counting(running):
            model(inputs.clone())  # a model may change its input in place
    return work


class _Running:
    """The modules whose forward is going on, outermost first."""

    def __init__(self, work: dict[str, Work]) -> None:
        self._work = work
        self._names: list[str] = []
        self._where = here()

    def begins(self, name: str) -> Callable[..., None]:
        def on_begin(module: nn.Module, args: Any, kwargs: Any) -> None:
            if here() == self._where:  # not another thread's forward
                self._names.append(name)

        return on_begin

    def ends(self, name: str) -> Callable[..., None]:
        def on_end(module: nn.Module, args: Any, output: Any) -> None:
            if here() != self._where or not self._names:
                return
            self._names.pop()
            done = self._work[name]
            done.calls += 1
            done.shape = next((tuple(tensor.shape) for tensor in tensors_in(output).values()), None)

        return on_end

    def add(self, macs: int) -> None:
        """Count for every module that runs, once for one that runs within itself."""
        for name in set(self._names):
            self._work[name].macs += macs


class _Counting(TorchDispatchMode):
    """Sees every operation of this thread.

    ``torch.utils.flop_counter.FlopCounterMode`` has the same formulas, but finds the modules by hooks on all modules of
    the process, which the forwards of other threads would call too (torch 2.14).
    """

    def __init__(self, running: _Running) -> None:
        super().__init__()
        self._running = running

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        formula = _FORMULAS.get(func._overloadpacket)
        if formula is not None:
            self._running.add(formula(*args, **(kwargs or {}), out_val=output) // 2)  # a multiplication and an addition
        return output


def _attention_on_cpu(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any) -> int:
    return int(sdpa_flop_count(query.shape, key.shape, value.shape))


# torch 2.14 has no formula for the attention that it takes on a CPU.
_FORMULAS: dict[Any, Callable[..., int]] = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention_on_cpu,
    **flop_registry,
}
