"""Simulated time: processes that take places of servers, let time pass, and wait for each other."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TypeAlias


class Server:
    """What several processes share: so many places, given in the order in which they are asked for.

    Args:
        places: how many processes can hold it at one time.
    """

    def __init__(self, places: int = 1) -> None:
        if places < 1:
            raise ValueError(f"A server needs a place, not {places}.")
        self.places = places
        self._taken = 0
        self._since = 0.0
        self._busy = 0.0
        self._waiting: deque[Task] = deque()

    def load(self, until: float) -> float:
        """The share of its places' time that was taken, from 0 to 1.

        Args:
            until: the seconds that have passed.
        """
        busy = self._busy + self._taken * (until - self._since)
        return busy / (until * self.places) if until else 0.0

    def change(self, by: int, now: float) -> None:
        """So many places more are taken from now on."""
        self._busy += self._taken * (now - self._since)
        self._taken += by
        self._since = now

    def asked(self, task: Task, now: float) -> bool:
        """Take a place for a task, or let it stand in line; whether it has one."""
        if self._taken >= self.places:
            self._waiting.append(task)
            return False
        self.change(1, now)
        return True

    def given(self, now: float) -> Task | None:
        """A place is free: the task that has it now, if one stood in line."""
        if self._waiting:
            return self._waiting.popleft()
        self.change(-1, now)
        return None


@dataclass(frozen=True)
class Take:
    """Go on once there is a place."""

    server: Server


@dataclass(frozen=True)
class Give:
    """Give the place back."""

    server: Server


@dataclass(frozen=True)
class Pass:
    """Let time pass.

    Args:
        seconds: 0 or more.
    """

    seconds: float


@dataclass(frozen=True)
class Join:
    """Go on once another process has ended."""

    task: Task


Command: TypeAlias = Take | Give | Pass | Join
Process: TypeAlias = Generator[Command, None, None]


@dataclass(eq=False)
class Task:
    """A process on its way."""

    process: Process
    ended: bool = False
    waiters: list[Task] = field(default_factory=list)


class Simulation:
    """Runs processes in simulated seconds.

    Example:
        simulation, server = Simulation(), Server()
        for _ in range(3):
            simulation.start(use(server, seconds=2.0))
        simulation.run()  # 6.0
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Task]] = []
        self._count = 0  # what is due at one time happens in the order in which it was decided
        self._alive = 0

    def start(self, process: Process) -> Task:
        """Begin a process now; it goes on beside the one that begins it."""
        task = Task(process)
        self._alive += 1
        self._due(task, 0.0)
        return task

    def run(self) -> float:
        """Until every process has ended; the seconds that passed.

        Raises:
            RuntimeError: processes wait for each other for ever.
        """
        while self._events:
            self.now, _, task = heapq.heappop(self._events)
            self._advance(task)
        if self._alive:
            raise RuntimeError(f"{self._alive} processes wait for what never comes.")
        return self.now

    def _due(self, task: Task, seconds: float) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now + seconds, self._count, task))

    def _advance(self, task: Task) -> None:
        """As far as it comes without waiting."""
        for command in task.process:
            if isinstance(command, Take):
                if not command.server.asked(task, self.now):
                    return
            elif isinstance(command, Give):
                following = command.server.given(self.now)
                if following is not None:
                    self._due(following, 0.0)
            elif isinstance(command, Pass):
                self._due(task, command.seconds)
                return
            elif not command.task.ended:
                command.task.waiters.append(task)
                return
        task.ended = True
        self._alive -= 1
        for waiter in task.waiters:
            self._due(waiter, 0.0)


def use(server: Server, seconds: float) -> Process:
    """Hold a place for so long; for ``yield from`` too."""
    yield Take(server)
    yield Pass(seconds)
    yield Give(server)
