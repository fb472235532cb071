"""The local engine: lanes in processes of this machine, one shard after the other; one that dies is replaced."""

from __future__ import annotations

import multiprocessing
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from camapp.batch.engines.orders import MOST_DEATHS, Orders, WorkersLost, one_thread, sendable
from camapp.batch.jobs.job import Job, ModelChoice
from camapp.batch.lane import Lane, Shards, Stop, Told
from camapp.sources.batches import default_workers, processors

# Seconds that workers are given to end by themselves.
_PATIENCE = 5.0
_NEVER_BEGAN = (
    "A worker could not begin; what it wrote above says why. What is exported is defined in the program's main file, "
    'which workers run again: export under `if __name__ == "__main__":`, define it in another file, or give '
    "RunOptions(workers=1)."
)


@dataclass(frozen=True)
class LocalShare:
    """What the local engine takes of this machine.

    Args:
        workers: how many processes.
        threads: of each, for decoding and writing beside the model.
        gpus: how many the workers are spread over; 0 where the job itself says which one.
    """

    workers: int
    threads: int
    gpus: int


def local_share(
    device: torch.device, choice: ModelChoice, workers: int | None, threads: int | None, per_gpu: int
) -> LocalShare:
    """How many workers there are on this machine, and what each gets.

    Args:
        device: that the model is on.
        choice: the model, as it was asked for.
        workers: how many are wanted; by default one for each processor, or ``per_gpu`` for each GPU.
        threads: of each; by default none where each has a processor, else its part of the processors.
        per_gpu: how many workers share a GPU.
    """
    if device.type == "cpu":
        workers = workers or processors()
        return LocalShare(workers, (default_workers() if workers == 1 else 0) if threads is None else threads, 0)
    # A model that was loaded, or "cuda:1", is where it is; any GPU will do for one that each worker loads.
    gpus = torch.cuda.device_count() if isinstance(choice.model, str) and choice.device in ("auto", "cuda") else 0
    workers = workers or max(1, gpus) * per_gpu
    shared = min(default_workers(), max(1, processors() // workers))
    return LocalShare(workers, shared if threads is None else threads, gpus)


def run_local(
    job: Job,
    shards: Shards,
    out: Path,
    todo: Sequence[int],
    *,
    share: LocalShare,
    told: Told,
    stop: Stop,
) -> None:
    """Run shards in this process (one worker) or in several; returns when all are done, or soon after ``stop``.

    Args:
        job: what is done with each picture.
        shards: where inputs come from and rows go; picklable for several workers.
        out: the folder of the export.
        todo: the numbers of the shards.
        share: what it takes of this machine.
        told: called with how many inputs were done and how many failed since the last time.
        stop: once it is set, shards that have begun are finished and no other begins.

    Raises:
        CamappError: what a worker ended with.
        OSError: a file that cannot be written.
        UsageError: a job that cannot be sent to other processes.
    """
    if share.workers <= 1 or len(todo) <= 1:
        with one_thread(), closing(Lane(job, shards, out, threads=share.threads)) as lane:
            for shard in todo:
                if stop.is_set():
                    return
                lane.run(shard, told)
        return
    _Crew(Orders.pack(job, shards, out, share.threads), list(todo), told, stop).run(share.workers, share.gpus)


class _Worker:
    """One process, and the shard that it has."""

    def __init__(self, context: Any, orders: Orders, gpu: int | None) -> None:
        self.gpu = gpu
        self.has_begun = False
        self.connection, theirs = context.Pipe()
        self.shard: int | None = None
        self.told = (0, 0)  # of its shard
        self.process = context.Process(target=_work, args=(theirs, gpu), daemon=True)
        with _deaf(), _without_main(orders):
            self.process.start()
        theirs.close()


def _end(workers: Sequence[_Worker]) -> None:
    """Let workers go, and end those that are not gone soon."""
    for worker in workers:
        worker.connection.close()
    deadline = time.monotonic() + _PATIENCE
    for worker in workers:
        worker.process.join(max(0.0, deadline - time.monotonic()))
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()


@contextmanager
def _without_main(orders: Orders) -> Iterator[None]:
    """Start processes that do not run the program's main file again, unless the job needs what is defined there.

    ``multiprocessing`` names that file to each process that it spawns (Python 3.11, ``get_preparation_data``), which is
    why programs must guard what they do by ``if __name__ == "__main__":``. Most need not.
    """
    main = sys.modules["__main__"]
    if b"__main__" in orders.packed:
        yield
        return
    kept = {name: getattr(main, name) for name in ("__spec__", "__file__") if hasattr(main, name)}
    main.__spec__ = None
    main.__dict__.pop("__file__", None)
    try:
        yield
    finally:
        main.__dict__.update(kept)


@contextmanager
def _deaf() -> Iterator[None]:
    """Start processes that signals to all of a terminal's do not reach before they can ignore them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # which would take the block away as it starts (Python 3.11)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Crew:
    """Hands shards to workers, and takes back those of workers that died."""

    def __init__(self, orders: Orders, todo: list[int], told: Told, stop: Stop) -> None:
        self._orders = orders
        self._todo = deque(todo)
        self._told = told
        self._stop = stop
        self._deaths: dict[int, int] = {}
        self._context = multiprocessing.get_context("spawn")
        self._workers: list[_Worker] = []

    def run(self, count: int, gpus: int) -> None:
        """Until all is done, or the shards under way once the export shall stop."""
        try:
            for number in range(min(count, len(self._todo))):
                self._hire(number % gpus if gpus else None)
            while any(worker.shard is not None for worker in self._workers):
                self._listen()
        finally:
            _end(self._workers)

    def _hire(self, gpu: int | None) -> None:
        """Start a worker for a shard, which it is sent with the job once it has begun.

        Arguments of a process will not do: one that dies before it has read a large job leaves ``start`` waiting for
        ever (Python 3.11).
        """
        self._workers.append(_Worker(self._context, self._orders, gpu))
        self._workers[-1].shard = self._todo.popleft()

    def _begin(self, worker: _Worker) -> None:
        worker.has_begun = True
        with suppress(OSError):  # it died: it is listened to, and replaced
            worker.connection.send(self._orders)
            worker.connection.send(worker.shard)

    def _give(self, worker: _Worker) -> None:
        worker.shard, worker.told = None, (0, 0)
        if self._todo and not self._stop.is_set():
            worker.shard = self._todo.popleft()
            with suppress(OSError):
                worker.connection.send(worker.shard)

    def _listen(self) -> None:
        if self._stop.is_set():
            for worker in self._workers:
                worker.shard = worker.shard if worker.has_begun else None  # it is not waited for
        busy = [worker for worker in self._workers if worker.shard is not None]
        ready = wait([worker.connection for worker in busy], timeout=1.0)
        for worker in busy:
            if worker.connection not in ready:
                continue
            try:
                kind, *rest = worker.connection.recv()
            except (EOFError, OSError):
                self._replace(worker)
                continue
            if kind == "began":
                self._begin(worker)
            elif kind == "told":
                worker.told = (worker.told[0] + rest[0], worker.told[1] + rest[1])
                self._told(*rest)
            elif kind == "done":
                self._give(worker)
            else:
                raise rest[0]

    def _replace(self, worker: _Worker) -> None:
        """A worker died: another one gets its shard."""
        shard = worker.shard
        assert shard is not None, "only workers with a shard are listened to"
        _end([worker])
        self._workers.remove(worker)
        self._told(-worker.told[0], -worker.told[1])  # they are done once more
        self._deaths[shard] = self._deaths.get(shard, 0) + 1
        if not worker.has_begun and worker.process.exitcode == 1:  # by an exception as it began: so will the next one
            raise WorkersLost(_NEVER_BEGAN)
        if self._deaths[shard] >= MOST_DEATHS:
            raise WorkersLost(
                f"{MOST_DEATHS} workers died on shard {shard} (exit code {worker.process.exitcode}), for lack of "
                "memory or by a fault of a library. What was done is kept. Resume with fewer workers or a smaller "
                "batch size."
            )
        self._todo.appendleft(shard)
        if self._stop.is_set():
            return
        self._hire(worker.gpu)


def _work(connection: Connection, gpu: int | None) -> None:
    """A worker's whole life: shards come, words go, until the other end is gone."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the parent says when to stop, or is gone, and the pipe with it
    try:
        connection.send(("began",))
        with closing(connection.recv().lane(gpu)) as lane:
            while True:
                lane.run(connection.recv(), _teller(connection))
                connection.send(("done",))
    except (EOFError, ConnectionError):
        return
    except Exception as error:  # handed to the parent, which raises it
        with suppress(OSError):
            connection.send(("error", sendable(error)))


def _teller(connection: Connection) -> Callable[[int, int], None]:
    def told(done: int, failed: int) -> None:
        connection.send(("told", done, failed))

    return told
