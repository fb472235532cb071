"""The ray engine: lanes in actors of a Ray cluster, on any number of machines; one that dies is replaced.

Shards are given out here, one at a time to each actor, and not by Ray Data, which accounts for them less exactly (seen
with 2.60): a shard that ends its worker is tried again without end; shards begin before anyone asks for them, too late
for ``stop``; and an error arrives in a class of Ray's instead of its own. Ray still does what it is there for: it finds
room for the actors, keeps a GPU for each, sends the job once to each node, and says when one is gone.
"""

from __future__ import annotations

import os
import platform
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from camapp.batch.engines.cluster import Share
from camapp.batch.engines.orders import MOST_DEATHS, Orders, WorkersLost, sendable
from camapp.batch.jobs.job import Job
from camapp.batch.lane import Lane, Stop, Told
from camapp.batch.ledger.lock import PREFIX
from camapp.batch.ledger.shards import ShardHandle
from camapp.errors import UsageError
from camapp.version import versions

# How many inputs of a shard are tried for one whose file is there; those that are not fail by themselves.
_TRIED = 8


def run_ray(
    ray: Any,
    job: Job,
    shards: ShardHandle,
    out: Path,
    todo: Sequence[int],
    *,
    share: Share,
    told: Told,
    stop: Stop,
) -> None:
    """Run shards on a Ray cluster; returns when all are done, or soon after ``stop``.

    ``out``, the source and what the job names must be at the same absolute paths on every node, which is tried.

    Args:
        ray: Ray, connected, from ``joined``.
        job: what is done with each picture.
        shards: where inputs come from and rows go; its ledger is open.
        out: the folder of the export.
        todo: the numbers of the shards.
        share: how many workers, and what each gets.
        told: called with how many inputs of a shard were done and how many failed, shard by shard.
        stop: once it is set, shards that have begun are finished and no other begins.

    Raises:
        CamappError: what a worker ended with.
        OSError: a file that cannot be written.
        UsageError: a job that cannot be sent to other processes; a node that does not see the files, or has other
            versions of the libraries.
    """
    if not todo:
        return
    # Unlike pickle, this takes along the classes of a program's main file and of a notebook.
    orders = Orders.pack(job, shards, out, share.threads, ray.cloudpickle.dumps)
    try:
        _Crew(ray, Meeting.here(shards), orders, shards, list(todo), share, told, stop).run()
    finally:
        shards.close()


@dataclass(frozen=True)
class Meeting:
    """What a worker must find on its node, so that it is part of this run and gives the same bytes.

    Args:
        locks: the files of the run's lock, which no copy of the folder has.
        versions: of the libraries.
        environment: camapp's own variables.
    """

    locks: tuple[str, ...]
    versions: dict[str, str]
    environment: dict[str, str]

    @classmethod
    def here(cls, shards: ShardHandle) -> Meeting:
        """What this process has."""
        locks = tuple(str(path) for path in shards.folder.glob(f"{PREFIX}*"))
        return cls(locks, _versions(), {name: text for name, text in os.environ.items() if name.startswith("CAMAPP_")})

    def check(self, node: str) -> None:
        """Refuse a node that does not fit.

        Raises:
            UsageError: it does not.
        """
        unseen = [path for path in self.locks if not os.path.exists(path)]
        if unseen:
            folder = Path(unseen[0]).parent.parent
            raise UsageError(
                f"The node {node} does not see the export in {folder}. OUT must be a folder that every node has at the "
                "same path, such as a network file system."
            )
        mine = _versions()
        for name, version in self.versions.items():
            if mine[name] != version:
                raise UsageError(
                    f"The node {node} has {name} {mine[name]}, and the export runs with {version}: the files would "
                    "differ. Install the same versions on every node."
                )


def _versions() -> dict[str, str]:
    """Of what the bytes depend on, without the builds: the machine that gives out the work may have no GPU."""
    return {name: version.partition("+")[0] for name, version in versions().items() if name != "python"}


class Worker:
    """An actor: one lane in a process somewhere in the cluster.

    It answers with what happened and raises nothing, since Ray would wrap what it raises.
    """

    def __init__(self) -> None:
        self._lane: Lane | None = None
        self._node = platform.node()

    def open(self, orders: Orders, meeting: Meeting) -> tuple[Any, ...]:
        """Load the model: ``("opened",)`` or ``("error", error)``."""
        try:
            meeting.check(self._node)
            os.environ.update(meeting.environment)
            self._lane = orders.lane()
        except Exception as error:
            return "error", sendable(error)
        return ("opened",)

    def run(self, shard: int, witness: str | None) -> tuple[Any, ...]:
        """Do a shard, if a file of its inputs is seen: ``("done", done, failed)`` or ``("error", error)``."""
        done = failed = 0

        def told(some: int, others: int) -> None:
            nonlocal done, failed
            done, failed = done + some, failed + others

        try:
            if witness is not None and not os.path.exists(witness):
                raise UsageError(
                    f"The node {self._node} does not see {witness}. Every node must have the source at the same path, "
                    "such as a network file system."
                )
            assert self._lane is not None, "a worker is opened first"
            self._lane.run(shard, told)
        except Exception as error:
            return "error", sendable(error)
        return "done", done, failed


@dataclass
class _Hand:
    """An actor, and the shard that it has; None while it opens."""

    actor: Any
    shard: int | None = None


class _Crew:
    """Hands shards to actors, and takes back those of actors that died."""

    def __init__(
        self,
        ray: Any,
        meeting: Meeting,
        orders: Orders,
        shards: ShardHandle,
        todo: list[int],
        share: Share,
        told: Told,
        stop: Stop,
    ) -> None:
        self._ray = ray
        self._share = share
        self._shards = shards
        self._todo = deque(todo)
        self._told = told
        self._stop = stop
        self._deaths: dict[int | None, int] = {}  # by shard, or None while they opened
        # A dead actor is replaced here and not by Ray, which would not count.
        self._new = ray.remote(num_cpus=1, num_gpus=share.gpus, max_restarts=0, max_task_retries=0)(Worker)
        self._sent = ray.put(orders), ray.put(meeting)
        self._hands: dict[Any, _Hand] = {}  # by what each will answer

    def run(self) -> None:
        """Until all is done, or the shards under way once the export shall stop."""
        try:
            for _ in range(min(self._share.workers, len(self._todo))):
                self._hire()
            while self._under_way or (self._todo and not self._stop.is_set()):
                self._listen()
        finally:
            for hand in self._hands.values():
                self._ray.kill(hand.actor)

    @property
    def _under_way(self) -> bool:
        return any(hand.shard is not None for hand in self._hands.values())

    def _hire(self) -> None:
        """Ask for an actor; it may take long until the cluster has room for it."""
        actor = self._new.remote()
        self._hands[actor.open.remote(*self._sent)] = _Hand(actor)

    def _give(self, actor: Any) -> None:
        if not self._todo or self._stop.is_set():
            self._ray.kill(actor)
            return
        shard = self._todo.popleft()
        self._hands[actor.run.remote(shard, self._witness(shard))] = _Hand(actor, shard)

    def _witness(self, shard: int) -> str | None:
        """A file of the shard's that is there, and so must be for its worker."""
        paths = (item.path for _, item, _ in self._shards.items(shard)[:_TRIED])
        return next((path for path in paths if os.path.exists(path)), None)

    def _listen(self) -> None:
        ready, _ = self._ray.wait(list(self._hands), timeout=1.0)
        for answer in ready:
            try:
                kind, *rest = self._ray.get(answer)
            except self._ray.exceptions.RayError as error:
                self._replace(self._hands.pop(answer), error)
                continue
            if kind == "error":
                raise rest[0]
            if kind == "done":
                self._told(*rest)
            hand = self._hands.pop(answer)
            self._deaths.pop(hand.shard, None)
            self._give(hand.actor)

    def _replace(self, hand: _Hand, error: Exception) -> None:
        """A worker died, or its node did: another one gets its shard."""
        self._ray.kill(hand.actor)  # which may only be out of reach, and go on
        if hand.shard is not None:
            self._todo.appendleft(hand.shard)
        self._deaths[hand.shard] = self._deaths.get(hand.shard, 0) + 1
        if self._deaths[hand.shard] >= MOST_DEATHS:
            at = "while they loaded the model" if hand.shard is None else f"on shard {hand.shard}"
            raise WorkersLost(
                f"{MOST_DEATHS} workers died {at}, for lack of memory, by a fault of a library or with their nodes. "
                f"What was done is kept. Resume with fewer workers or a smaller batch size. Ray says: {_briefly(error)}"
            )
        if self._todo and not self._stop.is_set():
            self._hire()


def _briefly(error: Exception) -> str:
    """The last line of what Ray says, which names the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
