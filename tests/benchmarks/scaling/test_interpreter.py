"""What holds Python's interpreter, found by a thread that wants it all the time; right on a busy machine too."""

from __future__ import annotations

import time

from benchmarks.scaling.interpreter import _Counter


def test_python_holds_the_interpreter_for_all_that_it_computes() -> None:
    counter = _Counter()
    with counter:
        end = time.thread_time() + 0.3
        while time.thread_time() < end:
            pass
    assert 0.29 < counter.used < 0.4
    assert counter.missed > 0.9 * counter.used  # exactly that much on a machine that does nothing else


def test_what_waits_has_used_nothing_and_so_held_nothing() -> None:
    counter = _Counter()
    with counter:
        time.sleep(0.3)
    assert counter.used < 0.05
