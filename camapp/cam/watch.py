"""Watch: progress, a deadline and a way to stop, for methods that run a model many times."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeAlias

from camapp.errors import StoppedError, UsageError

# Called with the forwards done and those expected, in rows.
Progress: TypeAlias = Callable[[int, int], None]


class Watch:
    """Counts the rows that a call has run, tells who asked, and stops it when it is time.

    Args:
        progress: called after each chunk with the rows done and the rows expected so far.
        deadline: seconds from now after which the call stops.
        cancel: anything with ``is_set()`` (a ``threading.Event``) or a function; stops the call once it is true.

    Raises:
        UsageError: a deadline that is no positive number, or a ``cancel`` of another kind.
    """

    def __init__(
        self, progress: Progress | None = None, deadline: float | None = None, cancel: Any | None = None
    ) -> None:
        if deadline is not None and not (isinstance(deadline, int | float) and deadline > 0):
            raise UsageError(f"deadline = {deadline!r} is no positive number of seconds.")
        if progress is not None and not callable(progress):
            raise UsageError(f"progress is a {type(progress).__name__}; needed is a function of two numbers.")
        self._asked: Callable[[], bool] | None = getattr(cancel, "is_set", cancel)
        if self._asked is not None and not callable(self._asked):
            raise UsageError(f"cancel is a {type(cancel).__name__}; needed is a threading.Event or a function.")
        self._progress = progress
        self._deadline = deadline
        self._ends = None if deadline is None else time.monotonic() + deadline
        self._done = self._total = 0

    @property
    def watched(self) -> bool:
        """Whether anybody wants to be told, or may stop the call."""
        return not (self._progress is None and self._asked is None and self._ends is None)

    def expect(self, rows: int) -> None:
        """Say that ``rows`` more are to come."""
        self._total += rows
        self._check()

    def step(self, rows: int) -> None:
        """Count ``rows`` as done.

        Raises:
            StoppedError: the deadline has passed, or ``cancel`` says so.
        """
        self._done += rows
        if self._progress is not None:
            self._progress(self._done, self._total)
        self._check()

    def _check(self) -> None:
        if self._done and self._done >= self._total:
            return  # what is finished is not thrown away
        if self._asked is not None and self._asked():
            raise StoppedError(f"Stopped as asked, after {self._done} of {self._total} runs. The model is as it was.")
        if self._ends is not None and time.monotonic() > self._ends:
            raise StoppedError(
                f"Not done within {self._deadline:g} s: {self._done} of {self._total} runs. The model is as it was. "
                "Give more time, fewer classes, or a cheaper method."
            )
