"""Time contenders side by side, and count what autograd keeps."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import torch
from torch import nn

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


def interleave(contenders: dict[str, Contender], rounds: int) -> dict[str, list[float]]:
    """Seconds of each contender in each round; every round runs all of them, each time starting with another.

    The first two rounds warm up and are not counted. Garbage is collected between rounds, not within.
    """
    names = list(contenders)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds + 2):
        gc.collect()
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            start = time.perf_counter()
            contenders[name]()
            took = time.perf_counter() - start
            if number >= 2:
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
