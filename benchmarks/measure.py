"""Time contenders side by side, and count what autograd keeps and how much lives at once."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

Contender = Callable[[], Any]


@dataclass(frozen=True)
class Row:
    """One ratio.

    Args:
        what: what is compared.
        ratio: the median over the rounds of the ratio within each round.
        bound: what was promised, such as ``"<= 1.08"``; None where nothing was.
        figures: the medians behind it, for people.
    """

    what: str
    ratio: float
    bound: str | None
    figures: str

    @property
    def met(self) -> bool | None:
        """Whether the ratio keeps its bound; None without one."""
        if self.bound is None:
            return None
        sign, value = self.bound.split()
        return self.ratio <= float(value) if sign == "<=" else self.ratio >= float(value)

    def to_dict(self) -> dict[str, Any]:
        """The row for ``--json``."""
        return {**asdict(self), "met": self.met}


def interleave(contenders: dict[str, Contender], rounds: int, warm: int = 2) -> dict[str, list[float]]:
    """Seconds of each contender in each round; every round runs all of them, each time starting with another.

    The first ``warm`` rounds are not counted. Garbage is collected between rounds, not within.
    """
    names = list(contenders)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds + warm):
        gc.collect()
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            start = time.perf_counter()
            contenders[name]()
            took = time.perf_counter() - start
            if number >= warm:
                seconds[name].append(took)
    return seconds


def ratio_row(what: str, seconds: dict[str, list[float]], above: str, below: str, bound: str | None = None) -> Row:
    """The ratio of two contenders, round by round."""
    ratio = median(a / b for a, b in zip(seconds[above], seconds[below], strict=True))
    figures = f"{above} {median(seconds[above]) * 1e3:.1f} ms, {below} {median(seconds[below]) * 1e3:.1f} ms"
    return Row(what, ratio, bound, figures)


def saved_bytes(model: nn.Module, call: Contender) -> int:
    """Bytes that autograd keeps for the backward during ``call``, the model's own parameters and buffers left out."""
    own = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        call()
    return sum(kept.values())


def peak_bytes(call: Contender) -> int:
    """The most bytes that the tensors made during ``call`` take at one time; what NumPy makes is not seen."""
    gc.collect()
    with _LiveTensors() as live:
        call()
    return live.peak


class _LiveTensors(TorchDispatchMode):
    """Follows the storages that operations make, from their birth to their end."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0
        self._live: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {_storage(leaf)._cdata for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)}
        output = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(output):
            if isinstance(leaf, torch.Tensor) and _storage(leaf)._cdata not in given:
                self._follow(_storage(leaf))
        return output

    def _follow(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key in self._live:
            return
        self._live[key] = storage.nbytes()
        self.peak = max(self.peak, sum(self._live.values()))
        weakref.finalize(storage, self._live.pop, key, None)


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage:
    return tensor.untyped_storage()
