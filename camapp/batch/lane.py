"""Lane: one shard after the other through reading, decoding, the model and writing, with bounded memory."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from camapp.batch.jobs.job import Job, Work
from camapp.batch.records import Item, Row
from camapp.batch.sources import Reader
from camapp.errors import CamappError

# Called after each batch with how many inputs were done and how many failed.
Told = Callable[[int, int], None]


class Shards(Protocol):
    """Where a lane gets its inputs, and where their rows go."""

    def items(self, shard: int) -> Sequence[tuple[int, Item, str]]:
        """The inputs of a shard: number, input and stem."""

    def finish_shard(self, shard: int, rows: Sequence[Row]) -> None:
        """Write down that a shard is done."""


class Stop(Protocol):
    """What says whether an export shall end, such as a ``threading.Event``."""

    def is_set(self) -> bool:
        """Whether it shall."""


class Lane:
    """Runs shards through a job; one for each worker.

    Pictures are decoded up to two batches ahead and written up to two batches behind the model, in ``threads`` threads;
    batches never cross the border of a shard, so that a shard gives the same whichever lane runs it, and when.

    Args:
        job: what is done with each picture.
        shards: where inputs come from and rows go.
        out: the folder of the export.
        threads: for reading, decoding and writing, beside the model; 0 to do all in turn.
    """

    def __init__(self, job: Job, shards: Shards, out: Path, *, threads: int) -> None:
        self._job = job
        self._shards = shards
        self._threads = threads
        self._readers = _Readers()
        job.open(out)

    def run(self, shard: int, told: Told = lambda done, failed: None) -> None:
        """Do one shard, and write down that it is done.

        Raises:
            OSError: a file cannot be written.
        """
        works = [Work(number, item, stem, shard) for number, item, stem in self._shards.items(shard)]
        with _Hands(self._threads) as hands:
            rows = [row for some in self._batches(works, hands, told) for row in some]
        rows.sort(key=lambda row: row.number)
        self._shards.finish_shard(shard, self._job.end_shard(shard, rows))

    def close(self) -> None:
        """Close the archives that were read."""
        self._readers.close()

    def _batches(self, works: list[Work], hands: _Hands, told: Told) -> Iterator[list[Row]]:
        size = self._job.batch_size
        chunks = [works[start : start + size] for start in range(0, len(works), size)]
        reading: deque[tuple[list[Work], list[Future[Any]]]] = deque()
        writing: deque[list[Future[Row]]] = deque()
        ahead = iter(chunks)
        for _ in chunks:
            while len(reading) < 2 and (chunk := next(ahead, None)) is not None:
                reading.append((chunk, [hands.start(self._prepare, work) for work in chunk]))
            chunk, prepared = reading.popleft()
            writing.append(self._through(chunk, [one.result() for one in prepared], hands))
            if len(writing) > 2:
                yield self._written(writing.popleft(), told)
        while writing:
            yield self._written(writing.popleft(), told)

    def _prepare(self, work: Work) -> tuple[Any, float]:
        """A picture that is ready, or why it is not; and the seconds that this took."""
        start = time.perf_counter()
        try:
            return self._job.prepare(self._readers.read(work.item), work), time.perf_counter() - start
        except CamappError as error:
            return error, time.perf_counter() - start

    def _through(self, works: list[Work], prepared: list[tuple[Any, float]], hands: _Hands) -> list[Future[Row]]:
        """Run the model on those that are ready, and begin to write."""
        ready = [index for index, (one, _) in enumerate(prepared) if not isinstance(one, CamappError)]
        start = time.perf_counter()
        results: dict[int, Any] = {}
        if ready:
            results = dict(zip(ready, self._job.run([prepared[index][0] for index in ready]), strict=True))
        share = (time.perf_counter() - start) / max(1, len(ready))
        return [
            hands.start(self._write, results.get(index, one), work, seconds + share * (index in results))
            for index, (work, (one, seconds)) in enumerate(zip(works, prepared, strict=True))
        ]

    def _write(self, result: Any, work: Work, seconds: float) -> Row:
        if isinstance(result, CamappError):
            reason = str(result) or type(result).__name__
            return Row(work.number, work.item, "failed", reason, shard=work.shard, seconds=seconds)
        start = time.perf_counter()
        try:
            row = self._job.write(result, work)
        except CamappError as error:
            row = Row(work.number, work.item, "failed", str(error), shard=work.shard)
        return replace(row, seconds=seconds + time.perf_counter() - start)

    def _written(self, writing: list[Future[Row]], told: Told) -> list[Row]:
        rows = [one.result() for one in writing]
        failures = sum(row.status == "failed" for row in rows)
        told(len(rows) - failures, failures)
        return rows


class _Readers:
    """As many readers as there are threads that read at once; each keeps the archives that it has met open."""

    def __init__(self) -> None:
        self._idle: list[Reader] = []

    def read(self, item: Item) -> bytes:
        try:
            reader = self._idle.pop()
        except IndexError:
            reader = Reader()
        try:
            return reader.read(item)
        finally:
            self._idle.append(reader)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


class _Hands:
    """Threads that work beside the model; without any, work is done when it is asked for."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="lane") if threads else None

    def start(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        if self._pool is not None:
            return self._pool.submit(function, *args)
        future: Future[Any] = Future()
        try:
            future.set_result(function(*args))
        except BaseException as error:
            future.set_exception(error)
        return future

    def __enter__(self) -> _Hands:
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
