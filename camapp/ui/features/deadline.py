"""Deadline: how long one visitor's request may hold the slow lane, so that others get their turn on the day."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType

from camapp.errors import StoppedError, UsageError

# Seconds for what one request extracts and learns; the same as for a batch.
DEADLINE = 600.0


class Deadline:
    """A ``cancel`` that says so as well once the time is over; what is stopped by it is told in words.

    Args:
        cancelled: whether nobody waits any more.
        seconds: from now on; ``DEADLINE`` by default.

    Example:
        >>> with Deadline(task.cancelled) as cancel:
        ...     extract_features(model, pictures, cancel=cancel)
    """

    def __init__(self, cancelled: Callable[[], bool], seconds: float | None = None) -> None:
        self._cancelled = cancelled
        self._seconds = DEADLINE if seconds is None else seconds
        self._ends = time.monotonic() + self._seconds

    def __call__(self) -> bool:
        """Whether to stop."""
        return self._cancelled() or time.monotonic() >= self._ends

    def __enter__(self) -> Deadline:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, StoppedError) and not self._cancelled() and time.monotonic() >= self._ends:
            raise UsageError(
                f"It was stopped: one request may take {self._seconds:g} s. Send fewer pictures or layers, or use "
                "camapp on your own machine, which has no such limit (camapp features FOLDER OUT)."
            ) from error
