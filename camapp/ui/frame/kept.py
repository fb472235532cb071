"""Kept: what one event made for another one, under a token that nobody guesses, for an hour."""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from camapp.errors import UsageError
from camapp.ui.environment import KEPT_SECONDS

T = TypeVar("T")

MOST_KEPT = 40
MOST_BYTES = 512 * 2**20


@dataclass(frozen=True)
class _Held(Generic[T]):
    thing: T
    owner: str
    since: float


class Kept(Generic[T]):
    """Things by token, until their time is over or there is no room for them.

    Where there is no room, whoever holds most gives up the oldest of theirs, so that one visitor does not drive out
    what everybody else keeps. The newest thing stays, however large it is.

    Args:
        gone: what is said of one that is no longer kept.
        size_of: the bytes that a thing takes, asked again whenever room is made.
        most: how many things may be kept; ``MOST_KEPT`` by default.
        most_bytes: that they may take together; ``MOST_BYTES`` by default.
        in_use: whether a thing must stay, whatever its time and the room.
        dropped: called with each thing that is given up.
    """

    def __init__(
        self,
        gone: str,
        *,
        size_of: Callable[[T], int] = lambda _: 0,
        most: int | None = None,
        most_bytes: int | None = None,
        in_use: Callable[[T], bool] = lambda _: False,
        dropped: Callable[[T], None] = lambda _: None,
    ) -> None:
        self._gone = gone
        self._size_of, self._in_use, self._dropped = size_of, in_use, dropped
        self._most = MOST_KEPT if most is None else most
        self._most_bytes = MOST_BYTES if most_bytes is None else most_bytes
        self._held: OrderedDict[str, _Held[T]] = OrderedDict()
        self._lock = threading.RLock()
        self._timer: threading.Timer | None = None

    def __len__(self) -> int:
        with self._lock:
            return len(self._held)

    def keep(self, thing: T, owner: str = "", *, token: str | None = None) -> str:
        """Keep a thing.

        Args:
            thing: what is kept.
            owner: whose it is, as ``owner_of`` says; things of nobody in particular each stand for themselves.
            token: under which it is kept, if it has one; nobody must be able to guess it.

        Returns:
            Its token.
        """
        token = secrets.token_urlsafe(16) if token is None else token
        with self._lock:
            self._held[token] = _Held(thing, owner or token, time.monotonic())
            self._make_room()
        return token

    def find(self, token: str) -> T:
        """The thing of a token.

        Raises:
            UsageError: it is no longer kept, or never was.
        """
        thing = self.get(token)
        if thing is None:
            raise UsageError(self._gone)
        return thing

    def get(self, token: str) -> T | None:
        """The thing of a token; None where it is no longer kept, or never was."""
        with self._lock:
            self._make_room()
            held = self._held.get(str(token))
        return None if held is None else held.thing

    def things(self) -> list[T]:
        """All that is kept, the oldest first."""
        with self._lock:
            self._make_room()
            return [held.thing for held in self._held.values()]

    def _make_room(self) -> None:
        now = time.monotonic()
        for token, held in list(self._held.items()):
            if now - held.since > KEPT_SECONDS and not self._in_use(held.thing):
                self._drop(token)
        while (surplus := self._one_too_many()) is not None:
            self._drop(surplus)
        if self._held and self._timer is None:
            self._timer = threading.Timer(KEPT_SECONDS / 60, self._sweep)
            self._timer.daemon = True
            self._timer.start()

    def _one_too_many(self) -> str | None:
        """The token of what goes next; None where there is room, or all that is left must stay."""
        sizes = {token: self._size_of(held.thing) for token, held in self._held.items()}
        if len(sizes) > self._most:
            sizes = dict.fromkeys(sizes, 1)  # then the number counts, not the bytes
        elif sum(sizes.values()) <= self._most_bytes:
            return None
        of_owner: defaultdict[str, int] = defaultdict(int)
        for token, size in sizes.items():
            of_owner[self._held[token].owner] += size
        older = list(self._held)[:-1]
        may_go = [token for token in older if not self._in_use(self._held[token].thing)]
        return max(may_go, key=lambda token: of_owner[self._held[token].owner], default=None)  # of equals the oldest

    def _drop(self, token: str) -> None:
        self._dropped(self._held.pop(token).thing)

    def _sweep(self) -> None:
        """Run every minute while anything is kept: its time ends also when nobody asks for anything any more."""
        with self._lock:
            self._timer = None
            self._make_room()
