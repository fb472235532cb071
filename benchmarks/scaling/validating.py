"""Whether the simulator is right: exports that are run here, beside what it says of them."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.scaling.figures import Figures, Stages
from benchmarks.scaling.fleet import makespan
from benchmarks.scaling.pipeline import Layout, Machine, pace
from benchmarks.scaling.work import KINDS, MODEL, job_of
from benchmarks.stages import Spent, cpu_seconds, make_pictures, spend
from camapp.batch import RunOptions, export_features, export_heatmaps

PICTURES, SHARD, STAGED = 300, 20, 48


@dataclass(frozen=True)
class Check:
    """One export, foretold and run.

    Args:
        what: which.
        predicted: seconds on the clock that the simulator says, beyond those of starting.
        measured: seconds on the clock, the same way.
        predicted_cpu: seconds of processors that the stages add up to.
        measured_cpu: seconds of processors; other programs of the machine do not count here.
    """

    what: str
    predicted: float
    measured: float
    predicted_cpu: float
    measured_cpu: float

    def row(self) -> list[str]:
        """As a row of a table."""
        return [
            self.what,
            f"{self.predicted:.1f} s",
            f"{self.measured:.1f} s",
            f"{self.predicted / self.measured:.2f}",
            f"{self.predicted_cpu:.1f} s",
            f"{self.measured_cpu:.1f} s",
            f"{self.predicted_cpu / self.measured_cpu:.2f}",
        ]


HEADS = [f"{PICTURES} pictures", "predicted", "measured", "ratio", "CPU predicted", "CPU measured", "ratio"]


def validate(figures: Figures) -> Iterator[Check]:
    """Run both kinds of export with one worker and with two, as they are laid out by default on two processors.

    Decoding, model and writing are timed again before and after each run, since machines change their speed.
    """
    with tempfile.TemporaryDirectory(prefix="scaling-") as name:
        folder = Path(name)
        pictures = make_pictures(folder / "many", PICTURES)
        few = folder / "few"
        few.mkdir()
        for path in pictures[:2]:
            os.link(path, few / path.name)
        for kind in KINDS:
            for workers in (1, 2):
                yield _check(figures.kinds[kind], kind, workers, folder)


def _check(stages: Stages, kind: str, workers: int, folder: Path) -> Check:
    processors = os.cpu_count() or 1
    layout = Layout(workers, processors if workers == 1 else 0, SHARD)
    run = RunOptions(workers=workers, threads=layout.threads)
    out = folder / f"{kind}-{workers}"
    before = _spent(kind, folder, out / "before")
    started = _timed(kind, folder / "few", out / "few", 1, run)
    whole = _timed(kind, folder / "many", out / "many", SHARD, run)
    after = _spent(kind, folder, out / "after")
    now = {name: (getattr(before, name) + getattr(after, name)) / 2 for name in ("read", "decode", "model", "write")}
    stages, shards = replace(stages, **now), -(-PICTURES // SHARD)
    return Check(
        f"{kind}, workers {workers}, threads {layout.threads}",
        makespan(shards, workers, pace(Machine(processors), layout, stages).shard_seconds),
        whole[0] - started[0],
        PICTURES * stages.total + shards * stages.shard,
        whole[1] - started[1],
    )


def _spent(kind: str, folder: Path, out: Path) -> Spent:
    return spend(job_of(kind), sorted((folder / "many").iterdir())[:STAGED], out)


def _timed(kind: str, source: Path, out: Path, shard: int, run: RunOptions) -> tuple[float, float]:
    """Seconds on the clock and of processors of an export."""
    options: dict[str, Any] = {"shard_size": shard, "device": "cpu", "run": run}
    wall, cpu = time.perf_counter(), cpu_seconds()
    if kind == "heatmaps":
        export_heatmaps(MODEL, source, out, outputs=("overlay",), **options)
    else:
        export_features(MODEL, source, out, **options)
    return time.perf_counter() - wall, cpu_seconds() - cpu
