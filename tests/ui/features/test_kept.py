"""Kept things: found by their token, for an hour, the newest always."""

from __future__ import annotations

import pytest

from camapp.errors import UsageError
from camapp.ui.features import kept
from camapp.ui.features.kept import Kept


def test_a_thing_is_found_by_its_token_alone() -> None:
    held: Kept[str] = Kept("It is gone. Make it again.")
    token = held.keep("this")
    assert held.find(token) == "this"
    assert held.keep("that") != token
    for other in ("", "no token", token[:-1]):
        with pytest.raises(UsageError, match="It is gone"):
            held.find(other)


def test_the_oldest_makes_room_and_the_newest_stays_however_large() -> None:
    held: Kept[int] = Kept("gone")
    first, second = held.keep(1, kept.MOST_BYTES // 2), held.keep(2, kept.MOST_BYTES // 2)
    assert (held.find(first), held.find(second)) == (1, 2)
    third = held.keep(3, 2 * kept.MOST_BYTES)
    assert held.find(third) == 3
    for token in (first, second):
        with pytest.raises(UsageError, match="gone"):
            held.find(token)


def test_an_hour_later_it_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    held: Kept[int] = Kept("gone")
    token = held.keep(1)
    now = kept.time.monotonic()
    monkeypatch.setattr(kept.time, "monotonic", lambda: now + kept.KEPT_SECONDS - 5)
    assert held.find(token) == 1
    monkeypatch.setattr(kept.time, "monotonic", lambda: now + kept.KEPT_SECONDS + 5)
    with pytest.raises(UsageError, match="gone"):
        held.find(token)
