"""Progress, deadline and cancel."""

from __future__ import annotations

import threading
import time

import pytest

from camapp.cam.watch import Watch
from camapp.errors import StoppedError, UsageError


def test_progress_counts_rows_done_and_rows_expected() -> None:
    seen: list[tuple[int, int]] = []
    watch = Watch(progress=lambda done, total: seen.append((done, total)))
    watch.expect(5)
    watch.step(2)
    watch.expect(3)
    watch.step(6)
    assert seen == [(2, 5), (8, 8)]


def test_cancel_stops_at_the_next_step_and_says_how_far_it_came() -> None:
    event = threading.Event()
    for cancel in (event, event.is_set):
        event.clear()
        watch = Watch(cancel=cancel)
        watch.expect(10)
        watch.step(4)
        event.set()
        with pytest.raises(StoppedError, match="after 5 of 10 runs"):
            watch.step(1)


def test_a_deadline_stops_and_says_what_to_do() -> None:
    watch = Watch(deadline=0.01)
    watch.expect(10)
    time.sleep(0.02)
    with pytest.raises(StoppedError, match=r"Not done within 0.01 s: 1 of 10 runs.*cheaper method"):
        watch.step(1)


def test_what_is_finished_is_not_thrown_away() -> None:
    watch = Watch(deadline=0.01, cancel=lambda: True)
    with pytest.raises(StoppedError):
        watch.expect(3)
    late = Watch(deadline=0.01)
    late.expect(3)
    time.sleep(0.02)
    late.step(3)  # all there is


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"deadline": 0}, "no positive number"),
        ({"deadline": -1.0}, "no positive"),
        ({"deadline": "a"}, "no positive"),
        ({"cancel": 3}, "a int"),
        ({"progress": 3}, "progress is a int"),
    ],
)
def test_what_cannot_be_meant_is_refused(options: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Watch(**options)
