"""Counts NaN and infinities of many tensors where they lie, and brings all counts over at once."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from camapp.hooks.nonfinite.check import real_values


@dataclass(frozen=True)
class Counts:
    """What the elements of a tensor are.

    Args:
        nan: how many are NaN.
        plus: how many are +Inf.
        minus: how many are -Inf.
        largest: the largest magnitude of those that are finite, from 0.
    """

    nan: int = 0
    plus: int = 0
    minus: int = 0
    largest: float = 0.0

    @property
    def bad(self) -> bool:
        """Whether any element is not finite."""
        return bool(self.nan or self.plus or self.minus)

    @property
    def only_minus(self) -> bool:
        """Whether all elements that are not finite are -Inf, as in an attention mask, and there are some."""
        return bool(self.minus) and not (self.nan or self.plus)


class Measures:
    """Takes tensors, and tells later how many of their elements were NaN or infinite when they were given.

    On a CPU, where looking costs no waiting, a tensor without such elements is read once. On other devices everything
    is counted there, and ``read`` makes the one transfer of each.
    """

    def __init__(self) -> None:
        self._known: dict[int, Counts] = {}
        self._waiting: dict[torch.device, list[tuple[int, torch.Tensor]]] = {}
        self._number = 0

    def add(self, tensor: torch.Tensor) -> int:
        """Measure ``tensor`` as it is now, and return the number under which ``read`` has its counts."""
        number, self._number = self._number, self._number + 1
        with torch.no_grad():
            values = real_values(tensor)
            if values is None:
                self._known[number] = Counts()
            elif values.device.type == "cpu":
                self._known[number] = _counted_at_once(values)
            else:
                self._waiting.setdefault(values.device, []).append((number, _counted(values)))
        return number

    def read(self) -> dict[int, Counts]:
        """The counts of all tensors so far by their numbers."""
        for waiting in self._waiting.values():
            rows = torch.stack([row for _, row in waiting]).tolist()
            for (number, _), (nan, plus, minus, largest) in zip(waiting, rows, strict=True):
                self._known[number] = Counts(int(nan), int(plus), int(minus), largest)
        self._waiting.clear()
        return self._known


def _counted_at_once(values: torch.Tensor) -> Counts:
    lowest, highest = (float(extreme) for extreme in values.aminmax())
    largest = max(-lowest, highest)
    if largest - largest == 0 and lowest == lowest:  # neither infinite nor NaN
        return Counts(largest=largest)
    nan, plus, minus, largest = _counted(values).tolist()
    return Counts(int(nan), int(plus), int(minus), largest)


def _counted(values: torch.Tensor) -> torch.Tensor:
    """The four figures of ``Counts`` as one tensor. Counts are exact up to 2**53 elements (on MPS 2**24)."""
    exact = torch.float32 if values.device.type == "mps" else torch.float64
    largest = values.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).abs().amax()
    counts = [values.isnan().sum(), values.isposinf().sum(), values.isneginf().sum()]
    return torch.stack([figure.to(exact) for figure in (*counts, largest)])
