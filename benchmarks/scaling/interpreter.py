"""What an export does in Python itself: which no other thread of a worker can do meanwhile."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median

import torch
from timm.models.efficientnet import _gen_efficientnet_lite

from benchmarks.scaling.work import MODEL, job_of, work_of
from benchmarks.stages import one_thread
from camapp.backbones.wrap import wrap_model

# A side of pictures whose arithmetic hardly counts beside what a batch costs whatever its size.
TINY = 32


def launch(kind: str, pictures: Sequence[Path], out: Path) -> tuple[float, float]:
    """Seconds of the model's thread for a batch, and for each picture of it, with next to no arithmetic.

    They come from a network of as many layers as the real one that are only a few channels wide, on tiny pictures. What
    a picture more costs the bare network is arithmetic that is still in it.
    """
    thin = _gen_efficientnet_lite(MODEL, channel_multiplier=0.01, depth_multiplier=1.0).eval()
    job = job_of(kind, wrap_model(thin, size=TINY))
    with one_thread(), torch.inference_mode():
        job.open(out)
        ready = [job.prepare(path.read_bytes(), work_of(path)) for path in pictures[: job.batch_size]]
        few, many = 1, len(ready)
        bare = [_median_cpu(partial(thin, torch.zeros(count, 3, TINY, TINY))) for count in (few, many)]
        both = [_median_cpu(partial(job.run, ready[:count])) for count in (few, many)]
    return both[0], max(0.0, (both[1] - both[0]) - (bare[1] - bare[0])) / (many - few)


def _median_cpu(call: Callable[[], object], rounds: int = 9) -> float:
    times = []
    for _ in range(rounds):
        begun = time.process_time()
        call()
        times.append(time.process_time() - begun)
    return median(times)


def held(kind: str, pictures: Sequence[Path], out: Path) -> float:
    """Seconds of decoding and writing a picture that hold the interpreter.

    A thread that only counts gets the interpreter whenever the stages let go of it; on a machine with a second
    processor, the time in which it does not run is the time in which they hold it.
    """
    job, interval = job_of(kind), sys.getswitchinterval()
    with one_thread():
        job.open(out)
        works = [work_of(path, number) for number, path in enumerate(pictures[: job.batch_size])]
        results = job.run([job.prepare(Path(work.item.path).read_bytes(), work) for work in works])
        counter = _Counter()
        sys.setswitchinterval(1e-5)
        try:
            seconds: list[float] = []
            for _ in range(7):
                with counter:
                    for work, result in zip(works, results, strict=True):
                        job.prepare(Path(work.item.path).read_bytes(), work)
                        job.write(result, work)
                seconds += (counter.missed / len(works), counter.used / len(works))
        finally:
            sys.setswitchinterval(interval)
    return min(seconds)  # what else the machine does only adds to it


class _Counter:
    """A thread that always wants the interpreter, and knows for how long it had to do without.

    Attributes:
        missed: these seconds.
        used: the seconds of processors that the stages themselves took: they cannot have held it for longer.
    """

    missed = used = 0.0

    def __enter__(self) -> _Counter:
        self._end = threading.Event()
        ready = threading.Event()
        self._thread = threading.Thread(target=self._count, args=(ready,))
        self._thread.start()
        ready.wait()
        self._begun = time.thread_time()
        return self

    def __exit__(self, *error: object) -> None:
        self.used = time.thread_time() - self._begun
        self._end.set()
        self._thread.join()

    def _count(self, ready: threading.Event) -> None:
        wall, cpu = time.perf_counter(), time.thread_time()
        ready.set()
        while not self._end.is_set():
            pass
        self.missed = (time.perf_counter() - wall) - (time.thread_time() - cpu)
