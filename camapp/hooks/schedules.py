"""Schedules: at which steps something is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from camapp.errors import UsageError

Active: TypeAlias = Callable[[int], bool]


def schedule(every: int | Active) -> Active:
    """Whether something is done at a step: every so many from the first on, or what a function of its number says.

    Raises:
        UsageError: no whole number from 1, and no function.
    """
    if callable(every):
        return every
    if isinstance(every, bool) or not isinstance(every, int) or every < 1:
        raise UsageError(f"every is a whole number of steps from 1, or a function of the step, not {every!r}.")
    steps = every
    return lambda step: step % steps == 0
