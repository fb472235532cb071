"""Quantiles of many tensors at once, of a fixed sample of each, with one sort."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch.nn.utils.rnn import pad_sequence

PERCENTS = (50, 95, 99)
Quantiles: TypeAlias = tuple[float, float, float]


@dataclass(frozen=True)
class Sorted:
    """The elements between which the quantiles lie, still on their device.

    Args:
        parts: 1-D tensors, to be fetched and given to ``read`` as one list.
        rows: how many samples there are.
    """

    parts: list[torch.Tensor]
    rows: int

    def read(self, numbers: Sequence[float]) -> list[Quantiles]:
        """The quantiles of each sample, interpolated linearly as numpy does; NaN of one without finite elements."""
        each = len(PERCENTS)
        counts, rest = numbers[: self.rows], numbers[self.rows :]
        below, above = rest[: self.rows * each], rest[self.rows * each :]
        found = []
        for row, count in enumerate(counts):
            place = slice(row * each, row * each + each)
            p50, p95, p99 = (
                _between(int(count), percent, low, high)
                for percent, low, high in zip(PERCENTS, below[place], above[place], strict=True)
            )
            found.append((p50, p95, p99))
        return found


def sampled(flat: torch.Tensor, most: int) -> torch.Tensor:
    """The absolute values of at most ``most`` elements of a 1-D tensor; of the same places each time, as a copy."""
    if flat.numel() <= most:
        return flat.abs()
    return flat.index_select(0, _places(flat.numel(), most, flat.device)).abs_()


def quantiles(samples: Sequence[torch.Tensor]) -> Sorted:
    """Sort samples of one device, and pick out what their quantiles need; elements that are not finite do not count."""
    if not samples or not any(sample.numel() for sample in samples):
        return (
            Sorted([], 0)
            if not samples
            else Sorted([samples[0].new_zeros(len(samples) * (1 + 2 * len(PERCENTS)))], len(samples))
        )
    wide = torch.float64 if any(sample.dtype is torch.float64 for sample in samples) else torch.float32
    table = pad_sequence([sample.to(wide) for sample in samples], batch_first=True, padding_value=math.nan)
    table.masked_fill_(table == math.inf, math.nan)
    count = (table == table).sum(1)  # NaN differs from itself
    table = _sort(table)
    last = (count - 1).clamp(min=0)
    hundredths = torch.stack([last * percent for percent in PERCENTS], dim=1)  # whole numbers round nowhere
    below = table.gather(1, hundredths // 100)
    above = table.gather(1, (hundredths + 99) // 100)
    return Sorted([count.to(wide), below.flatten(), above.flatten()], len(samples))


@functools.lru_cache(maxsize=256)
def _places(count: int, most: int, device: torch.device) -> torch.Tensor:
    """``most`` places among ``count``: one in each of as many equal stretches, where in it by Fibonacci hashing.

    Places at equal distances would fall on one column of every map.
    """
    number = torch.arange(most, device=device)
    within = (number * 40503) & 0xFFFF  # 40503 is 2**16 over the golden ratio
    return (number * 0x10000 + within) * count // (most * 0x10000)


def _sort(table: torch.Tensor) -> torch.Tensor:
    """Each row in order, NaN last. On a CPU torch 2.14 takes 5 times as long as numpy, as it finds the order too."""
    if table.device.type == "cpu":
        rows = table.numpy()
        rows.sort(axis=1)
        return torch.from_numpy(rows)
    return table.sort(dim=1).values


def _between(count: int, percent: int, low: float, high: float) -> float:
    return low + (high - low) * ((count - 1) * percent % 100 / 100) if count else math.nan
