"""The stages of an export, each timed alone in one thread; and the pictures that exports are measured on."""

from __future__ import annotations

import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from camapp.batch.engines.orders import one_thread
from camapp.batch.jobs.job import Job, Work
from camapp.batch.records import Item, Row
from camapp.resources import resource_folder


@dataclass(frozen=True)
class Spent:
    """Seconds of processors in each stage.

    Args:
        read: of one picture.
        decode: of one picture.
        model: of one picture.
        write: of one picture.
        end: at the end of the shard, for all of it.
        rows: what became of the pictures.
    """

    read: float
    decode: float
    model: float
    write: float
    end: float
    rows: Sequence[Row]


def spend(job: Job, pictures: Sequence[Path], out: Path) -> Spent:
    """Take pictures through a job as a lane does, in whole batches, and time each stage; they are one shard."""
    with one_thread():
        job.open(out)
        works = [Work(number, Item(path.name, str(path)), path.stem, 0) for number, path in enumerate(pictures)]
        chunks = [works[start : start + job.batch_size] for start in range(0, len(works), job.batch_size)]
        job.run([job.prepare(pictures[0].read_bytes(), works[0])])
        spent = dict.fromkeys(("read", "decode", "model", "write"), 0.0)
        rows: list[Row] = []
        for chunk in chunks:
            times = [time.process_time()]
            contents = [Path(work.item.path).read_bytes() for work in chunk]
            times.append(time.process_time())
            ready = [job.prepare(content, work) for content, work in zip(contents, chunk, strict=True)]
            times.append(time.process_time())
            results = job.run(ready)
            times.append(time.process_time())
            rows += [job.write(result, work) for result, work in zip(results, chunk, strict=True)]
            times.append(time.process_time())
            for number, name in enumerate(spent):
                spent[name] += (times[number + 1] - times[number]) / len(works)
        begun = time.process_time()
        ended = job.end_shard(0, rows)
        return Spent(**spent, end=time.process_time() - begun, rows=ended)


def cpu_seconds() -> float:
    """Seconds of processors of this process and of those that it began and that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def make_pictures(folder: Path, count: int) -> list[Path]:
    """Write so many JPEGs of 640 x 480, each another part of a sample picture, into a new folder."""
    folder.mkdir(parents=True)
    samples = [
        Image.open(path).convert("RGB").resize((704, 544), Image.Resampling.LANCZOS)
        for path in sorted(resource_folder("assets").glob("*.jpg"))
    ]
    paths = [folder / f"{number:05d}.jpg" for number in range(count)]
    for number, path in enumerate(paths):
        left, top = number % 61, number % 59  # no two of 3599 alike: a file of equal rows would be small
        samples[number % len(samples)].crop((left, top, left + 640, top + 480)).save(path, quality=90)
    return paths
