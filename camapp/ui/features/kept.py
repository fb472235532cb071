"""Kept: what one event made for the next one, under a token that nobody guesses, for an hour."""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from typing import Generic, TypeVar

from camapp.errors import UsageError
from camapp.ui.environment import KEPT_SECONDS

T = TypeVar("T")

MOST_KEPT = 40
MOST_BYTES = 512 * 2**20


class Kept(Generic[T]):
    """Things by token; the oldest make room for new ones.

    Args:
        gone: what is said of one that is no longer kept.
    """

    def __init__(self, gone: str) -> None:
        self._gone = gone
        self._held: OrderedDict[str, tuple[T, int, float]] = OrderedDict()
        self._lock = threading.Lock()

    def keep(self, thing: T, size: int = 0) -> str:
        """Keep a thing of ``size`` bytes; its token."""
        token = secrets.token_urlsafe(16)
        with self._lock:
            self._held[token] = (thing, size, time.monotonic())
            self._make_room()
        return token

    def find(self, token: str) -> T:
        """The thing of a token.

        Raises:
            UsageError: it is no longer kept, or never was.
        """
        with self._lock:
            self._make_room()
            held = self._held.get(str(token))
        if held is None:
            raise UsageError(self._gone)
        return held[0]

    def _make_room(self) -> None:
        total = sum(size for _, size, _ in self._held.values())
        while self._held:
            _, size, since = next(iter(self._held.values()))
            too_old = time.monotonic() - since > KEPT_SECONDS
            too_many = len(self._held) > 1 and (len(self._held) > MOST_KEPT or total > MOST_BYTES)
            if not (too_old or too_many):
                return
            self._held.popitem(last=False)
            total -= size
