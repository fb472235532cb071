"""A topic: what some of a tab's views tell. Of a visitor's events about it only the newest is answered."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Generator, Iterator
from enum import Enum
from typing import Any, TypeVar

import gradio as gr

from camapp.ui.frame.messages import STOPPED, owner_of, status_line, told
from camapp.ui.frame.scheduler import ReplacedError, Scheduler, Task

T = TypeVar("T")
Update = dict[Any, Any]

_numbers = itertools.count()


class End(Enum):
    """What ended a turn before its time."""

    NEWER = "a newer event about the same topic"
    DROPPED = "what it is about is gone"
    STOPPED = "the visitor pressed Stop"


class Turn:
    """An event's turn to answer, until it is ended.

    Args:
        work: runs whatever needs a model.
        owner: who waits for the answer.
        status: the status bar that says how far it is.
    """

    def __init__(self, work: Scheduler, owner: str, status: gr.HTML) -> None:
        self._work = work
        self.owner = owner
        self._status = status
        # its own, so that a late step of a turn that is over takes no task's place
        self._topic = f"turn {next(_numbers)}"
        self.ended: End | None = None

    def telling(self, text: str) -> Update:
        """An update that says how far it is."""
        return {self._status: status_line("running", text)}

    def follow(self, job: Callable[[Task[T]], T], *, slow: bool = False) -> Generator[Update, None, T]:
        """Run a job by way of the queue, telling how far it is; see ``Scheduler.follow``.

        Raises:
            UsageError: the queue is full.
            ReplacedError: the turn is over.
            Exception: what the job raises.
        """
        self.check()
        result = yield from self._work.follow(job, self.telling, owner=self.owner, slow=slow, topic=self._topic)
        self.check()
        return result

    def check(self) -> None:
        """Go no further where the turn is over.

        Raises:
            ReplacedError: it is.
        """
        if self.ended is not None:
            raise ReplacedError(stopped=self.ended is End.STOPPED)

    def end(self, why: End) -> None:
        """End it, and what the queue does for it."""
        self.ended = self.ended or why
        self._work.replace(self.owner, self._topic, stopped=why is End.STOPPED)


class Topic:
    """Answers each visitor's newest event about something; the ones before it end without a word.

    Gradio 6.31 lets the requests of one event wait for each other at best, and knows nothing of those of other events:
    a slow result would come over the quick one that was asked for after it. Its ``cancels`` waits for the step that
    runs, and what that step tells comes after whatever the event that cancels says. So an event that Stop ends says so
    itself, as its last word.

    Args:
        work: runs whatever needs a model.
        status: the status bar that says how far an answer is.
    """

    def __init__(self, work: Scheduler, status: gr.HTML) -> None:
        self._work = work
        self._status = status
        self._turns: dict[str, Turn] = {}
        self._lock = threading.Lock()

    def answer(
        self,
        request: gr.Request,
        steps: Callable[[Turn], Generator[Update, None, None]],
        failed: Callable[[str], Update] = lambda message: {},
        stopped: Update | None = None,
    ) -> Iterator[Update]:
        """What an event shows on the way to its answer, and at the end.

        Args:
            request: who asks.
            steps: makes the updates, in the turn that it is given.
            failed: what an error, as a sentence, makes of views; the status line says it anyway.
            stopped: what Stop makes of views.

        Raises:
            gr.Error: an error, after it was told.
        """
        with self.turn(request) as turn:
            yield from told(self._status, self._updates(turn, steps(turn), stopped or {}), failed)

    @contextlib.contextmanager
    def turn(self, request: gr.Request) -> Iterator[Turn]:
        """A turn, which ends the one before it."""
        owner = owner_of(request)
        turn = Turn(self._work, owner, self._status)
        with self._lock:
            before, self._turns[owner] = self._turns.get(owner), turn
        if before is not None:
            before.end(End.NEWER)
        try:
            yield turn
        finally:
            with self._lock:
                if self._turns.get(owner) is turn:
                    del self._turns[owner]

    def drop(self, request: gr.Request) -> None:
        """End the visitor's turn without a word: what it would tell is of no use any more."""
        self._end(request, End.DROPPED)

    def stop(self, request: gr.Request) -> None:
        """End the visitor's turn as he asks; the event that waits says so."""
        self._end(request, End.STOPPED)

    def _end(self, request: gr.Request, why: End) -> None:
        with self._lock:
            turn = self._turns.get(owner_of(request))
        if turn is not None:
            turn.end(why)

    def _updates(self, turn: Turn, steps: Generator[Update, None, None], stopped: Update) -> Iterator[Update]:
        try:
            with contextlib.closing(steps):  # a task that they follow is cancelled
                for update in steps:
                    turn.check()
                    yield update
        except Exception:
            if turn.ended is None:
                raise
            if turn.ended is End.STOPPED:
                yield {**stopped, self._status: status_line("ready", STOPPED)}
            else:  # Gradio 6.31 sends the last update again when an event ends: it must be one that says nothing late
                yield {self._status: gr.skip()}
