"""One machine at work: its lanes as processes that share processors, interpreters, GPUs and the way to the store."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from functools import lru_cache

from benchmarks.scaling.events import Command, Give, Join, Pass, Process, Server, Simulation, Take, Task, use
from benchmarks.scaling.figures import Stages
from benchmarks.scaling.published import TO_GPU

# Shards of each worker that are simulated: after the first one they have fallen out of step.
SHARDS = 2
# Seconds until a processor goes to the next one that waits for it.
TURN = 0.01


@dataclass(frozen=True)
class Machine:
    """What an export runs on.

    Args:
        processors: as the operating system counts them, each as fast as the one that was measured.
        gpus: 0 to run the model on the processors.
        gpu_rate: pictures a second that one GPU takes through the features' forward when it never waits.
        store: bytes a second to and from where the pictures lie, each way; None for a local disk that never waits.
        latency: seconds until the first byte of a picture comes.
    """

    processors: int
    gpus: int = 0
    gpu_rate: float = 0.0
    store: float | None = None
    latency: float = 0.0


@dataclass(frozen=True)
class Layout:
    """How an export is laid out on a machine.

    Args:
        workers: processes of the machine; each GPU has its share of them.
        threads: of each, beside the model; 0 to do all in turn.
        shard: pictures in a shard.
    """

    workers: int
    threads: int
    shard: int = 256


@dataclass(frozen=True)
class Pace:
    """How fast a machine is.

    Args:
        shard_seconds: of one worker for one shard, while all of them work.
        rate: pictures a second of the machine.
        loads: the share of the time that each server is taken, from 0 to 1.
        stages: what each stage takes of its server's capacity at this rate; those on one server add up.
    """

    shard_seconds: float
    rate: float
    loads: dict[str, float]
    stages: dict[str, float]

    @property
    def saturated(self) -> str:
        """The server that is taken most, with the stage that takes most of it; or that all wait for each other."""
        server, load = max(self.loads.items(), key=lambda pair: pair[1])
        if load < 0.75:
            return f"none (most: {server}, {load:.0%})"
        stages = {name: share for name, share in self.stages.items() if SERVERS.get(name, server) == server}
        most = max(stages, key=lambda name: stages[name]) if server == "processors" and stages else ""
        return f"{server} {load:.0%}" + (f", mostly {most}" if most else "")


# On which server a stage runs, where it is not the processors.
SERVERS = {"GPU": "GPU", "reading": "store, read", "sending": "store, written", "transfer": "transfer"}


@lru_cache(maxsize=256)
def pace(machine: Machine, layout: Layout, stages: Stages) -> Pace:
    """Simulate a few shards of every worker of a machine.

    A machine of several GPUs is as many of one GPU each, where its parts can be shared out evenly.
    """
    parts = machine.gpus
    if parts > 1 and layout.workers % parts == 0 and machine.processors % parts == 0:
        store = machine.store / parts if machine.store else None
        part = replace(machine, gpus=1, processors=machine.processors // parts, store=store)
        one = pace(part, replace(layout, workers=layout.workers // parts), stages)
        return replace(one, rate=one.rate * parts)
    return _Run(machine, layout, stages).pace()


class _Run:
    """The simulation of one machine."""

    def __init__(self, machine: Machine, layout: Layout, stages: Stages) -> None:
        self._machine, self._layout, self._stages = machine, layout, stages
        self._simulation = Simulation()
        self._processors = Server(machine.processors)
        self._gpus = [Server() for _ in range(machine.gpus)]
        self._transfers = [Server() for _ in range(machine.gpus)]
        self._read, self._written = Server(), Server()
        self._interpreters = [Server() for _ in range(layout.workers)]

    def pace(self) -> Pace:
        for number in range(self._layout.workers):
            self._simulation.start(_Lane(self, number).run(SHARDS))
        seconds = self._simulation.run()
        pictures = self._layout.workers * SHARDS * self._layout.shard
        rate = pictures / seconds
        return Pace(seconds / SHARDS, rate, self._loads(seconds), self._shares(rate))

    def in_turns(self, seconds: float) -> Process:
        """Hold a processor for long, and let others have it in between, as an operating system does."""
        alone = not self._layout.threads and self._layout.workers <= self._machine.processors
        turns = 1 if alone else max(1, math.ceil(seconds / TURN))
        for _ in range(turns):
            yield from use(self._processors, seconds / turns)

    def _loads(self, seconds: float) -> dict[str, float]:
        servers = {"processors": [self._processors], "interpreters": self._interpreters}
        if not self._layout.threads and not self._machine.gpus:
            del servers["interpreters"]  # each has one thread, which never waits for it
        if self._machine.gpus:
            servers |= {"GPU": self._gpus, "transfer": self._transfers}
        if self._machine.store:
            servers |= {"store, read": [self._read], "store, written": [self._written]}
        return {name: sum(one.load(seconds) for one in some) / len(some) for name, some in servers.items()}

    def _shares(self, rate: float) -> dict[str, float]:
        one, machine = self._stages, self._machine
        cpu = rate / machine.processors
        shares = {
            "decode": (one.read + one.decode) * cpu,
            "write": one.write * cpu,
            "shards": one.shard / self._layout.shard * cpu,
        }
        if machine.gpus:
            shares["launch"] = (one.launch / one.batch + one.launch_picture) * cpu
            shares["GPU"] = rate / (machine.gpus * machine.gpu_rate)
            shares["transfer"] = rate * one.input_bytes / TO_GPU / machine.gpus
        else:
            shares["model"] = one.model * cpu
        if machine.store:
            shares["reading"] = rate * one.read_bytes / machine.store
            shares["sending"] = rate * one.written_bytes / machine.store
        return shares


class _Lane:
    """One worker: what ``camapp.batch.lane.Lane`` does, with seconds in place of work."""

    def __init__(self, run: _Run, number: int) -> None:
        self._run = run
        self._stages = run._stages
        self._threads = run._layout.threads
        self._hands = Server(max(1, self._threads))
        self._interpreter = run._interpreters[number]
        self._gpu = run._gpus[number % len(run._gpus)] if run._gpus else None
        self._transfer = run._transfers[number % len(run._gpus)] if run._gpus else None

    def run(self, shards: int) -> Process:
        for _ in range(shards):
            yield from self._shard()
            yield from use(self._run._processors, self._stages.shard)

    def _shard(self) -> Process:
        """Two batches read ahead of the model, and two written behind it, as in a real lane."""
        size, batch = self._run._layout.shard, self._stages.batch
        chunks = [min(batch, size - start) for start in range(0, size, batch)]
        ahead, reading, writing = iter(chunks), deque[tuple[int, list[Task]]](), deque[list[Task]]()
        for _ in chunks:
            while len(reading) < 2 and (chunk := next(ahead, None)) is not None:
                reading.append((chunk, (yield from self._handed(self._prepare, chunk))))
            chunk, tasks = reading.popleft()
            yield from _joined(tasks)
            yield from self._model(chunk)
            writing.append((yield from self._handed(self._write, chunk)))
            if len(writing) > 2:
                yield from _joined(writing.popleft())
        while writing:
            yield from _joined(writing.popleft())

    def _handed(self, work: Callable[[], Process], count: int) -> Generator[Command, None, list[Task]]:
        """So many pictures handed to the threads; without any, they are done before it goes on."""
        if self._threads:
            return [self._run._simulation.start(self._in_thread(work())) for _ in range(count)]
        for _ in range(count):
            yield from work()
        return []

    def _in_thread(self, work: Process) -> Process:
        yield Take(self._hands)
        yield from work
        yield Give(self._hands)

    def _prepare(self) -> Process:
        machine = self._run._machine
        if machine.latency:
            yield Pass(machine.latency)
        if machine.store:
            yield from use(self._run._read, self._stages.read_bytes / machine.store)
        yield from self._computed(self._stages.read + self._stages.decode)

    def _write(self) -> Process:
        yield from self._computed(self._stages.write)
        if store := self._run._machine.store:
            yield from use(self._run._written, self._stages.written_bytes / store)

    def _model(self, pictures: int) -> Process:
        one = self._stages
        host = one.launch + pictures * one.launch_picture
        if self._gpu is None or self._transfer is None:
            held = min(host, pictures * one.model) if self._threads else 0.0
            yield from self._held(held)
            yield from self._run.in_turns(pictures * one.model - held)
            return
        yield from use(self._transfer, pictures * one.input_bytes / TO_GPU)
        # Work is sent to the GPU faster or slower than it does it: both at once.
        kernels = self._run._simulation.start(use(self._gpu, pictures / self._run._machine.gpu_rate))
        yield from self._held(host)
        yield Join(kernels)

    def _computed(self, seconds: float) -> Process:
        """Of decoding and writing a part holds the interpreter, which matters where there are other threads."""
        one = self._stages
        both = one.read + one.decode + one.write
        held = seconds * min(1.0, one.held / both) if self._threads and both else 0.0
        yield from self._held(held)
        yield from use(self._run._processors, seconds - held)

    def _held(self, seconds: float) -> Process:
        if seconds:
            yield Take(self._interpreter)
            yield from use(self._run._processors, seconds)
            yield Give(self._interpreter)


def _joined(tasks: list[Task]) -> Process:
    for task in tasks:
        yield Join(task)
