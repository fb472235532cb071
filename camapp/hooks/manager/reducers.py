"""Reducers: what is kept of a tensor instead of all of it, made on its device while the model runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import torch

from camapp.errors import UsageError, did_you_mean
from camapp.hooks.edits import precise, values_of

Reducer: TypeAlias = Callable[[torch.Tensor], Any]


class Histogram(NamedTuple):
    """How often values lie in each of several equal intervals.

    Args:
        counts: how many elements lie in each interval; those below or above count in the first or last.
        low: where the first interval begins.
        high: where the last one ends.
        nonfinite: how many elements are NaN or infinite, and in no interval.
    """

    counts: torch.Tensor
    low: torch.Tensor
    high: torch.Tensor
    nonfinite: torch.Tensor


def norm(tensor: torch.Tensor) -> torch.Tensor:
    """The Euclidean norm, in float32 or better."""
    return torch.linalg.vector_norm(values_of(tensor), dtype=precise(tensor.dtype))


def mean(tensor: torch.Tensor) -> torch.Tensor:
    """The mean, in float32 or better."""
    return tensor.mean(dtype=precise(tensor.dtype))


def abs_max(tensor: torch.Tensor) -> torch.Tensor:
    """The largest absolute value; 0 of a tensor without elements."""
    values = values_of(tensor)
    return torch.linalg.vector_norm(values, float("inf")) if values.numel() else values.new_zeros(())


def histogram(bins: int = 64, low: float | None = None, high: float | None = None) -> Reducer:
    """A reducer to a ``Histogram`` of ``bins`` equal intervals from ``low`` to ``high``.

    Args:
        bins: how many intervals.
        low: where the first begins; the lowest finite value of the tensor by default.
        high: where the last ends; the highest finite value of the tensor by default.

    Raises:
        UsageError: no whole number of bins from 1, or a range that is none.
    """
    if isinstance(bins, bool) or not isinstance(bins, int) or bins < 1:
        raise UsageError(f"bins is a whole number from 1, not {bins!r}.")
    if low is not None and high is not None and not low < high:
        raise UsageError(f"low lies below high; {low!r} and {high!r} were given.")

    def reduce(tensor: torch.Tensor) -> Histogram:
        values = tensor.reshape(-1).to(precise(tensor.dtype))
        finite = values.isfinite()
        lowest = _edge(values, finite, low, torch.amin, float("inf"))
        highest = _edge(values, finite, high, torch.amax, float("-inf"))
        # Halves, whose differences no finite values overflow.
        width = (highest / 2 - lowest / 2).clamp(min=torch.finfo(values.dtype).tiny)
        above = torch.where(finite, values, lowest) / 2 - lowest / 2
        places = (above / width * bins).clamp(0, bins - 1).long()
        counts = torch.zeros(bins, dtype=torch.long, device=values.device).scatter_add_(0, places, finite.long())
        return Histogram(counts, lowest, highest, (~finite).sum())

    return reduce


NAMED: dict[str, Reducer] = {"norm": norm, "mean": mean, "abs_max": abs_max, "histogram": histogram()}


def find_reducer(reduce: str | Reducer | None) -> Reducer | None:
    """The reducer meant: one of ``NAMED`` by its name, any function of a tensor, or None for none.

    Raises:
        UsageError: a name that means none.
    """
    if reduce is None or callable(reduce):
        return reduce
    if reduce not in NAMED:
        raise UsageError(
            f'No reducer "{reduce}".{did_you_mean(str(reduce), NAMED)} There are {", ".join(NAMED)}, or any function.'
        )
    return NAMED[reduce]


def _edge(
    values: torch.Tensor, finite: torch.Tensor, given: float | None, of: Callable[..., torch.Tensor], beyond: float
) -> torch.Tensor:
    """One end of the range; 0 where there is no finite value to take it from."""
    if given is not None:
        return torch.full((), given, dtype=values.dtype, device=values.device)
    if not values.numel():
        return values.new_zeros(())
    edge = of(torch.where(finite, values, beyond))
    return torch.where(edge.isfinite(), edge, torch.zeros_like(edge))
