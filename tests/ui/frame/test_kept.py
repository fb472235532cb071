"""Kept things: found by their token, for an hour, the newest always; nobody's share drives out everybody else's."""

from __future__ import annotations

import time

import pytest

from camapp.errors import UsageError
from camapp.ui.frame import kept
from camapp.ui.frame.kept import Kept


def kept_numbers(**options: int) -> Kept[int]:
    """A store of numbers, each of as many bytes as it says."""
    return Kept("gone", size_of=lambda number: number, **options)


def left(held: Kept[int], tokens: list[str]) -> list[bool]:
    return [held.get(token) is not None for token in tokens]


def test_a_thing_is_found_by_its_token_alone() -> None:
    held: Kept[str] = Kept("It is gone. Make it again.")
    token = held.keep("this")
    assert held.find(token) == "this"
    assert held.keep("that") != token
    for other in ("", "no token", token[:-1]):
        assert held.get(other) is None
        with pytest.raises(UsageError, match="It is gone"):
            held.find(other)
    assert held.keep("named", token="a name") == "a name"
    assert held.things() == ["this", "that", "named"]


def test_the_oldest_makes_room_and_the_newest_stays_however_large() -> None:
    held = kept_numbers(most_bytes=100)
    first, second = held.keep(50), held.keep(50)
    assert left(held, [first, second]) == [True, True]
    third = held.keep(50)
    assert left(held, [first, second, third]) == [False, True, True]
    huge = held.keep(200)
    assert left(held, [second, third, huge]) == [False, False, True]


@pytest.mark.parametrize("limit", [{"most_bytes": 100}, {"most": 10}])
def test_who_holds_most_gives_up_the_oldest_of_theirs(limit: dict[str, int]) -> None:
    held = kept_numbers(**limit)
    early = [held.keep(10, "early"), held.keep(10, "early")]
    greedy = [held.keep(10, "greedy") for _ in range(30)]
    assert left(held, early) == [True, True]
    assert left(held, greedy) == [False] * 22 + [True] * 8
    newcomer = held.keep(10, "newcomer")
    assert left(held, [newcomer, *early, *greedy[-8:]]) == [True, True, True, False] + [True] * 7


def test_what_is_in_use_stays_whatever_its_time_and_the_room(monkeypatch: pytest.MonkeyPatch) -> None:
    running, dropped = {1, 2}, []
    held: Kept[int] = Kept("gone", most=2, in_use=running.__contains__, dropped=dropped.append)
    tokens = [held.keep(number) for number in (1, 2, 3, 4)]
    assert left(held, tokens) == [True, True, False, True]
    now = time.monotonic()
    monkeypatch.setattr(kept.time, "monotonic", lambda: now + kept.KEPT_SECONDS + 5)
    assert left(held, tokens) == [True, True, False, False]
    running.clear()
    assert held.things() == []
    assert dropped == [3, 4, 1, 2]


def test_an_hour_later_it_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    held: Kept[int] = Kept("gone")
    token = held.keep(1)
    now = kept.time.monotonic()
    monkeypatch.setattr(kept.time, "monotonic", lambda: now + kept.KEPT_SECONDS - 5)
    assert held.find(token) == 1
    monkeypatch.setattr(kept.time, "monotonic", lambda: now + kept.KEPT_SECONDS + 5)
    with pytest.raises(UsageError, match="gone"):
        held.find(token)


def test_things_go_when_their_time_is_over_even_if_nobody_asks_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "KEPT_SECONDS", 0.6)
    dropped: list[int] = []
    held: Kept[int] = Kept("gone", dropped=dropped.append)
    held.keep(7)
    assert len(held) == 1
    deadline = time.monotonic() + 10
    while not dropped and time.monotonic() < deadline:
        time.sleep(0.02)
    assert dropped == [7]
    assert len(held) == 0
