"""Of a visitor's events about one topic only the newest is answered, wherever the others are."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any

import gradio as gr
import pytest

from camapp.errors import StoppedError, UsageError
from camapp.ui.frame.messages import status_bar
from camapp.ui.frame.scheduler import Scheduler, Task
from camapp.ui.frame.topic import End, Topic, Turn

ANN, BOB = (gr.Request(session_hash=name) for name in ("ann", "bob"))

Update = dict[Any, Any]
Steps = Callable[[Turn], Generator[Update, None, None]]


@pytest.fixture(scope="module")
def status() -> gr.HTML:
    with gr.Blocks():
        return status_bar("status")


@pytest.fixture
def topic(status: gr.HTML) -> Topic:
    return Topic(Scheduler(), status)


def two_steps(say: str, job: Callable[[Task[Any]], Any] = lambda task: None) -> Steps:
    """Two jobs, with an update before each and a result in the end."""

    def steps(turn: Turn) -> Generator[Update, None, None]:
        yield turn.telling(f"{say} 1")
        yield from turn.follow(lambda task: None)
        yield turn.telling(f"{say} 2")
        yield from turn.follow(job)
        yield {"view": say}

    return steps


def until_stopped(begun: threading.Event) -> Callable[[Task[Any]], None]:
    """A job that runs until nobody waits for it any more."""

    def job(task: Task[Any]) -> None:
        begun.set()
        while not task.cancelled():
            begun.wait(0.001)
        raise StoppedError("stopped")

    return job


def answer(topic: Topic, steps: Steps, request: gr.Request = ANN, **options: Any) -> Iterator[Update]:
    return topic.answer(request, steps, lambda message: {"view": {"error": message}}, **options)


def text(update: Update) -> str:
    (line,) = (value for value in update.values() if isinstance(value, dict) and "text" in value)
    return str(line["text"])


def test_an_answer_is_told_step_by_step_and_ends_in_its_result(topic: Topic) -> None:
    first, second, last = answer(topic, two_steps("map"))
    assert [text(first), text(second)] == ["map 1", "map 2"]
    assert last == {"view": "map"}


def test_a_newer_event_ends_the_one_before_it_without_a_word_and_not_those_of_others(
    topic: Topic, status: gr.HTML
) -> None:
    begun = threading.Event()
    old = answer(topic, two_steps("old", until_stopped(begun)))
    running = [text(next(old)) for _ in range(3)][-1]
    assert running.startswith("Running")
    theirs = answer(topic, two_steps("theirs"), BOB)
    next(theirs)
    assert list(answer(topic, two_steps("new")))[-1] == {"view": "new"}
    assert list(old) == [{status: gr.skip()}]
    assert list(theirs)[-1] == {"view": "theirs"}


@pytest.mark.parametrize("told", [1, 2], ids=["before_its_first_job", "between_two_jobs"])
def test_a_late_step_of_an_older_event_takes_no_newer_ones_place(topic: Topic, status: gr.HTML, told: int) -> None:
    old = answer(topic, two_steps("old"))
    for _ in range(told):
        next(old)
    begun = threading.Event()
    new = answer(topic, two_steps("new", until_stopped(begun)))
    assert [text(next(new)) for _ in range(2)] == ["new 1", "new 2"]
    assert list(old) == [{status: gr.skip()}]
    assert text(next(new)).startswith("Running"), "the newer one goes on"
    topic.stop(ANN)
    list(new)


@pytest.mark.parametrize("told", [1, 2, 3])
def test_stop_is_said_by_the_event_that_waits_wherever_it_is(topic: Topic, status: gr.HTML, told: int) -> None:
    begun = threading.Event()
    stopped = answer(topic, two_steps("map", until_stopped(begun)), stopped={"view": None})
    for _ in range(told):
        next(stopped)
    topic.stop(BOB)
    topic.stop(ANN)
    assert list(stopped) == [{"view": None, status: {"state": "ready", "text": "Stopped."}}]


def test_an_event_whose_matter_is_gone_says_nothing_more(topic: Topic, status: gr.HTML) -> None:
    dropped = answer(topic, two_steps("map"), stopped={"view": None})
    next(dropped)
    topic.drop(ANN)
    assert list(dropped) == [{status: gr.skip()}]
    topic.drop(ANN)
    topic.stop(ANN)
    assert list(answer(topic, two_steps("map")))[-1] == {"view": "map"}, "it ends what is under way, and nothing later"


def failing(turn: Turn) -> Generator[Update, None, None]:
    yield turn.telling("Trying…")
    raise UsageError("No picture <here>.")


def test_an_error_is_told_and_then_raised_in_words(topic: Topic, status: gr.HTML) -> None:
    steps = answer(topic, failing)
    next(steps)
    message = "No picture <here>."
    assert next(steps) == {"view": {"error": message}, status: {"state": "error", "text": message}}
    with pytest.raises(gr.Error) as shown:
        next(steps)
    assert shown.value.message == "No picture &lt;here&gt;."


def test_an_error_of_an_event_that_was_replaced_is_nobodys_business(topic: Topic, status: gr.HTML) -> None:
    old = answer(topic, failing)
    next(old)
    list(answer(topic, two_steps("new")))
    assert list(old) == [{status: gr.skip()}]


def test_a_visitor_who_leaves_takes_his_job_with_him(topic: Topic) -> None:
    begun, over = threading.Event(), threading.Event()

    def job(task: Task[Any]) -> None:
        try:
            until_stopped(begun)(task)
        finally:
            over.set()

    left = answer(topic, two_steps("map", job))
    for _ in range(3):
        next(left)
    left.close()  # type: ignore[attr-defined]
    assert over.wait(5)


def test_a_turn_knows_what_ended_it(topic: Topic) -> None:
    with topic.turn(ANN) as stopped:
        topic.stop(ANN)
        topic.drop(ANN)
    with topic.turn(ANN) as dropped:
        topic.drop(ANN)
    with topic.turn(ANN) as replaced:
        list(answer(topic, two_steps("new")))
    assert [turn.ended for turn in (stopped, dropped, replaced)] == [End.STOPPED, End.DROPPED, End.NEWER]
