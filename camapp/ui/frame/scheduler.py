"""The queue of everything that runs a model: fair to visitors, with a lane of its own for what takes long."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

from camapp.errors import StoppedError, UsageError

T = TypeVar("T")
Update = TypeVar("Update")

MOST_WAITING = 16

# Seconds between two messages about a task that runs or waits: to a page, and to a program, which only has to be found
# gone when it is.
TOLD_EVERY = 0.3
PROGRAMS_TOLD_EVERY = 2.0

# Seconds before the first message: most quick tasks are done by then, and a message costs the page a redraw.
_FIRST_TOLD = 0.4

# Seconds that a step of a slow task gives way to quick ones at most, so that it gets on whatever comes.
_MOST_GIVEN_WAY = 1.0


class QueueFullError(UsageError):
    """So many requests wait that another one would wait too long."""


class ReplacedError(Exception):
    """A newer request of the same visitor took a task's place: whoever follows it has nothing more to show.

    Args:
        stopped: whether there is no newer request: the visitor pressed Stop.
    """

    def __init__(self, *, stopped: bool = False) -> None:
        super().__init__("Stopped." if stopped else "A newer request took its place.")
        self.stopped = stopped


class Task(Generic[T]):
    """A call of a function, from the moment that somebody waits for it.

    Args:
        job: called with the task, in a thread of the scheduler's.
        owner: who waits.
        topic: of an owner's tasks of one topic only the newest counts; "" for tasks that all count.
    """

    def __init__(self, job: Callable[[Task[T]], T], owner: str, topic: str = "") -> None:
        self._job = job
        self.owner = owner
        self.topic = topic
        self.replaced: ReplacedError | None = None
        self._given_way: Callable[[], None] = lambda: None
        self._steps: tuple[int, int] | None = None
        self._began: float | None = None
        self._stop = threading.Event()
        self._over = threading.Event()
        self._result: list[T] = []
        self._error: BaseException | None = None

    def progress(self, done: int, total: int) -> None:
        """Tell how far the job is; where a quick task wants to run, it is let through."""
        self._steps = (done, total)
        self._given_way()

    def cancelled(self) -> bool:
        """Whether nobody waits for it any more."""
        return self._stop.is_set()

    def cancel(self) -> None:
        """Ask it to stop, at its next step."""
        self._stop.set()

    def told(self) -> str:
        """How far it is, in words."""
        if self._began is None:
            return "Starting…"
        seconds = f"{time.monotonic() - self._began:.0f} s"
        if self._steps is None:
            return f"Running… {seconds}"
        done, total = self._steps
        return f"Running… step {done:,} of {total:,}, {seconds}"

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it is over, at most so long; whether it is."""
        return self._over.wait(seconds)

    def result(self) -> T:
        """What the job returned, once it is over; raises what it raised."""
        self._over.wait()
        if self._error is not None:
            raise self._error
        return self._result[0]

    def run(self, give_way: Callable[[], None]) -> None:
        """Do the job; called by the scheduler."""
        self._given_way, self._began = give_way, time.monotonic()
        try:
            if self.cancelled():
                raise StoppedError("The request was withdrawn before its turn came.")
            self._result.append(self._job(self))
        except BaseException as error:
            self._error = error
        finally:
            self._over.set()


class Scheduler:
    """Runs tasks in two lanes, quick and slow, one at a time in each; in a lane the visitors take turns.

    A visitor with ten tasks waits for one task of each other between two of his own. A slow task gives way to quick
    ones between its steps.

    Args:
        most_waiting: tasks that may wait in both lanes together.
    """

    def __init__(self, most_waiting: int = MOST_WAITING) -> None:
        self._most_waiting = most_waiting
        self._changed = threading.Condition()
        self._lanes = {False: _Lane(), True: _Lane()}
        self._newest: dict[tuple[str, str], Task[Any]] = {}

    def follow(
        self,
        job: Callable[[Task[T]], T],
        say: Callable[[str], Update],
        *,
        owner: str,
        slow: bool = False,
        topic: str = "",
        every: float = TOLD_EVERY,
    ) -> Generator[Update, None, T]:
        """Run a job in its turn, telling the visitor how far it is: ``result = yield from scheduler.follow(...)``.

        Where the generator is closed, as Gradio does when the visitor leaves or presses Stop, the task is cancelled.

        Args:
            job: called with its task, whose ``progress`` and ``cancelled`` it may hand on.
            say: makes what is yielded of a sentence.
            owner: who waits; see ``owner_of``.
            slow: whether it takes over a second or so.
            topic: what it is about: a newer task of the same owner and topic takes its place, wherever it is.
            every: seconds between two messages.

        Raises:
            QueueFullError: so many requests wait.
            ReplacedError: a newer task took its place.
            Exception: what the job raises.
        """
        task = self._submit(job, owner, slow, topic)
        try:
            pause = max(_FIRST_TOLD, every)
            while not task.wait(pause):
                if task.replaced:
                    break
                place = self._lanes[slow].place(task, self._changed)
                yield say(task.told() if place is None else f"Waiting: {_before(place)} before this one.")
                pause = every
            if task.replaced:
                raise task.replaced
            return task.result()
        finally:
            self._withdraw(task, slow)

    def run(self, job: Callable[[Task[T]], T], *, owner: str, slow: bool = False) -> T:
        """Run a job in its turn and wait for it.

        Raises:
            QueueFullError: so many requests wait.
            Exception: what the job raises.
        """
        task = self._submit(job, owner, slow)
        try:
            return task.result()
        finally:
            self._withdraw(task, slow)

    def replace(self, owner: str, topic: str, *, stopped: bool = False) -> None:
        """Take an owner's task of a topic out of the queue, or stop it where it runs.

        Args:
            owner: whose.
            topic: of what.
            stopped: whether the visitor asked for it; told to whoever follows the task.
        """
        with self._changed:
            task = self._newest.pop((owner, topic), None)
            if task is None:
                return
            task.replaced = ReplacedError(stopped=stopped)
            task.cancel()
            for lane in self._lanes.values():
                lane.remove(task)

    def _submit(self, job: Callable[[Task[T]], T], owner: str, slow: bool, topic: str = "") -> Task[T]:
        task = Task(job, owner, topic)
        with self._changed:
            waiting = sum(lane.waiting for lane in self._lanes.values())
            if waiting >= self._most_waiting:
                raise QueueFullError(f"The queue is full: {waiting} requests are waiting. Try again in a moment.")
            if topic:
                self.replace(owner, topic)
            lane = self._lanes[slow]
            lane.add(task)
            if topic:
                self._newest[owner, topic] = task
            if not lane.worker:
                lane.worker = True
                name = "camapp slow lane" if slow else "camapp quick lane"
                threading.Thread(target=self._work, args=(slow,), name=name, daemon=True).start()
            self._changed.notify_all()
        return task

    def _withdraw(self, task: Task[Any], slow: bool) -> None:
        with self._changed:
            task.cancel()
            self._lanes[slow].remove(task)
            if self._newest.get((task.owner, task.topic)) is task:
                del self._newest[task.owner, task.topic]

    def _work(self, slow: bool) -> None:
        lane = self._lanes[slow]
        give_way = self._give_way if slow else lambda: None
        while True:
            with self._changed:
                while not lane.waiting:
                    self._changed.wait()
                task = lane.next()
                lane.running = True
            task.run(give_way)
            with self._changed:
                lane.running = False
                self._changed.notify_all()
            del task  # and with it what the job holds, while the lane waits for the next

    def _give_way(self) -> None:
        quick = self._lanes[False]
        until = time.monotonic() + _MOST_GIVEN_WAY
        with self._changed:
            while (quick.running or quick.waiting) and (left := until - time.monotonic()) > 0:
                self._changed.wait(left)


class _Lane:
    """Tasks that wait, by owner: the owner at the front is next, and goes to the end then."""

    def __init__(self) -> None:
        self._queues: OrderedDict[str, deque[Task[Any]]] = OrderedDict()
        self.waiting = 0
        self.running = False
        self.worker = False

    def add(self, task: Task[Any]) -> None:
        self._queues.setdefault(task.owner, deque()).append(task)
        self.waiting += 1

    def next(self) -> Task[Any]:
        owner, queue = self._queues.popitem(last=False)
        task = queue.popleft()
        if queue:
            self._queues[owner] = queue
        self.waiting -= 1
        return task

    def remove(self, task: Task[Any]) -> None:
        queue = self._queues.get(task.owner)
        if queue is None or task not in queue:
            return
        queue.remove(task)
        self.waiting -= 1
        if not queue:
            del self._queues[task.owner]

    def place(self, task: Task[Any], lock: threading.Condition) -> int | None:
        """How many tasks run before it; None for one that runs already or is over."""
        with lock:
            own = self._queues.get(task.owner, deque())
            if task not in own:
                return None
            rank = own.index(task)
            owners = list(self._queues)
            earlier = owners[: owners.index(task.owner)]
            before = sum(min(len(queue), rank + (owner in earlier)) for owner, queue in self._queues.items())
            return before + self.running


def _before(place: int) -> str:
    return "1 request is" if place == 1 else f"{place} requests are"
