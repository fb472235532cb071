"""The queue: fair between visitors, quick beside slow, and nothing runs for nobody."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

from camapp.errors import StoppedError, UsageError
from camapp.ui.frame.scheduler import QueueFullError, ReplacedError, Scheduler, Task


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What the first task waits for, so that the others queue up behind it."""
    event = threading.Event()
    yield event
    event.set()


def start(scheduler: Scheduler, job: Callable[[Task[Any]], Any], owner: str, slow: bool = False) -> threading.Thread:
    """Run a job from a thread of its own, and wait until it is queued or runs."""
    before = waiting(scheduler)
    began = threading.Event()

    def told(task: Task[Any]) -> Any:
        began.set()
        return job(task)

    thread = threading.Thread(target=lambda: scheduler.run(told, owner=owner, slow=slow), daemon=True)
    thread.start()
    deadline = time.monotonic() + 5
    queues = scheduler._lanes[slow].running  # else it runs at once, and is queued for a moment only
    while not (began.is_set() or (queues and waiting(scheduler) > before)) and time.monotonic() < deadline:
        time.sleep(0.002)
    return thread


def result_of(follow: Generator[str, None, Any]) -> Any:
    """What a generator returns in the end."""

    def collect() -> Generator[str, None, None]:
        results.append((yield from follow))

    results: list[Any] = []
    list(collect())
    return results[0]


def waiting(scheduler: Scheduler) -> int:
    return sum(lane.waiting for lane in scheduler._lanes.values())


def test_a_job_gives_its_result_and_raises_its_error() -> None:
    scheduler = Scheduler()
    assert scheduler.run(lambda task: 7, owner="a") == 7
    with pytest.raises(ZeroDivisionError):
        scheduler.run(lambda task: 1 // 0, owner="a")
    assert scheduler.run(lambda task: 8, owner="a") == 8


def test_visitors_take_turns_however_many_tasks_one_of_them_has(gate: threading.Event) -> None:
    scheduler, order = Scheduler(), []
    threads = [start(scheduler, lambda task: gate.wait(5), "first")]
    for name in ("a0", "a1", "a2", "b0", "c0"):
        threads.append(start(scheduler, lambda task, name=name: order.append(name), name[0]))  # noqa: PERF401 - in order
    gate.set()
    for thread in threads:
        thread.join(5)
    assert order == ["a0", "b0", "c0", "a1", "a2"]


def test_places_in_the_queue_are_those_in_which_tasks_run(gate: threading.Event) -> None:
    scheduler = Scheduler()
    follows = []
    start(scheduler, lambda task: gate.wait(5), "first")
    for owner in ("a", "a", "b"):
        follow = scheduler.follow(lambda task: None, lambda text: text, owner=owner)
        follows.append(follow)
    told = [next(follow) for follow in follows]
    assert told == [
        "Waiting: 1 request is before this one.",
        "Waiting: 2 requests are before this one.",
        "Waiting: 2 requests are before this one.",
    ]
    assert next(follows[1]) == "Waiting: 3 requests are before this one."  # b came in between
    for follow in follows:
        follow.close()


def test_a_quick_task_does_not_wait_for_a_slow_one(gate: threading.Event) -> None:
    scheduler = Scheduler()
    start(scheduler, lambda task: gate.wait(5), "a", slow=True)
    began = time.monotonic()
    assert scheduler.run(lambda task: "quick", owner="b") == "quick"
    assert time.monotonic() - began < 2


def test_a_slow_task_gives_way_to_quick_ones_between_its_steps(gate: threading.Event) -> None:
    scheduler, order = Scheduler(), []
    at_step = threading.Event()

    def slow(task: Task[None]) -> None:
        at_step.wait(5)
        task.progress(1, 2)  # the quick one runs here
        order.append("slow")

    threads = [start(scheduler, slow, "a", slow=True)]

    def quick(task: Task[None]) -> None:
        at_step.set()
        time.sleep(0.2)
        order.append("quick")

    threads.append(start(scheduler, quick, "b"))
    for thread in threads:
        thread.join(5)
    assert order == ["quick", "slow"]


def test_a_full_queue_refuses_with_its_length(gate: threading.Event) -> None:
    scheduler = Scheduler(most_waiting=2)
    for owner in ("a", "b", "c"):  # one runs, two wait
        start(scheduler, lambda task: gate.wait(5), owner)
    with pytest.raises(UsageError, match="The queue is full: 2 requests are waiting"):
        scheduler.run(lambda task: None, owner="d")


def test_a_visitor_who_leaves_the_queue_makes_room_and_his_task_never_runs(gate: threading.Event) -> None:
    scheduler, ran = Scheduler(most_waiting=1), []
    start(scheduler, lambda task: gate.wait(5), "a")
    follow = scheduler.follow(lambda task: ran.append("b"), lambda text: text, owner="b")
    next(follow)
    follow.close()
    thread = start(scheduler, lambda task: ran.append("c"), "c")
    gate.set()
    thread.join(5)
    assert ran == ["c"]


def test_a_task_that_runs_is_told_that_nobody_waits_any_more() -> None:
    scheduler, ended = Scheduler(), threading.Event()

    def job(task: Task[None]) -> None:
        while not task.cancelled():
            time.sleep(0.01)
        ended.set()
        raise StoppedError("stopped")

    follow = scheduler.follow(job, lambda text: text, owner="a", slow=True)
    next(follow)
    follow.close()
    assert ended.wait(5)
    assert scheduler.run(lambda task: "next", owner="a", slow=True) == "next"


def test_a_newer_task_of_the_same_topic_takes_the_place_of_one_that_runs() -> None:
    scheduler, ended = Scheduler(), threading.Event()

    def job(task: Task[str]) -> str:
        while not task.cancelled():
            time.sleep(0.01)
        ended.set()
        return "old"

    old = scheduler.follow(job, lambda text: text, owner="a", slow=True, topic="map")
    next(old)
    new = scheduler.follow(lambda task: "new", lambda text: text, owner="a", topic="map")
    assert result_of(new) == "new"
    assert ended.wait(5)
    with pytest.raises(ReplacedError) as told:
        result_of(old)
    assert not told.value.stopped


def test_a_request_that_a_full_queue_refuses_stops_nothing_of_its_visitor(gate: threading.Event) -> None:
    scheduler = Scheduler(most_waiting=1)
    running = scheduler.follow(lambda _: gate.wait(10) and "done", str, owner="anna", topic="map", every=0.01)
    assert next(running).startswith("Running")
    start(scheduler, lambda _: None, "ben")  # waits, and fills the queue
    with pytest.raises(QueueFullError, match="The queue is full: 1 requests are waiting"):
        list(scheduler.follow(lambda _: None, str, owner="anna", topic="map"))
    gate.set()
    assert result_of(running) == "done"


def test_a_newer_task_takes_no_place_of_another_visitor_or_topic(gate: threading.Event) -> None:
    scheduler = Scheduler()
    start(scheduler, lambda task: gate.wait(5), "first")
    follows = [
        scheduler.follow(lambda task: "done", lambda text: text, owner=owner, topic=topic)
        for owner, topic in (("a", "map"), ("b", "map"), ("a", "check"), ("a", ""), ("a", ""))
    ]
    for follow in follows:
        next(follow)
    gate.set()
    assert [result_of(follow) for follow in follows] == ["done"] * 5


def test_a_task_whose_topic_is_left_never_runs(gate: threading.Event) -> None:
    scheduler, ran = Scheduler(), []
    start(scheduler, lambda task: gate.wait(5), "first")
    follow = scheduler.follow(lambda task: ran.append(1), lambda text: text, owner="a", topic="check")
    next(follow)
    scheduler.replace("a", "check", stopped=True)
    gate.set()
    with pytest.raises(ReplacedError) as told:
        result_of(follow)
    assert told.value.stopped
    assert scheduler.run(lambda task: "next", owner="b") == "next"
    assert ran == []


def test_steps_and_seconds_are_told_while_a_task_runs() -> None:
    scheduler, told_on = Scheduler(), threading.Event()

    def job(task: Task[str]) -> str:
        task.progress(1200, 2400)
        told_on.wait(5)
        return "result"

    follow = scheduler.follow(job, lambda text: text, owner="a")
    text = next(follow)
    told_on.set()
    assert text.startswith("Running… step 1,200 of 2,400, ")
    assert result_of(follow) == "result"
