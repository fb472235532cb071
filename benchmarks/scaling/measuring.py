"""Measures on this machine what the stages of an export cost; about a minute and a half."""

from __future__ import annotations

import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from statistics import median

from benchmarks.scaling.figures import Figures, Ledger, Stages
from benchmarks.scaling.interpreter import held, launch
from benchmarks.scaling.work import KINDS, MODEL, job_of
from benchmarks.stages import make_pictures, spend
from camapp.batch import RunOptions, export_features
from camapp.batch.ledger import Ledger as RealLedger
from camapp.batch.records import Item, Row
from camapp.batch.sources import Fingerprint
from camapp.loading import load_model

STAGED, ACCOUNTED = 96, 50_000


def measure(say: Callable[[str], None] = lambda words: None) -> Figures:
    """All figures of this machine, which should have nothing else to do.

    Args:
        say: told what is measured now.
    """
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0  # before this adds to it
    with tempfile.TemporaryDirectory(prefix="scaling-") as name:
        folder = Path(name)
        pictures = make_pictures(folder / "pictures", STAGED)
        kinds = {}
        for kind in KINDS:
            say(f"stages of {kind}")
            kinds[kind] = _stages(kind, pictures, folder / kind)
        say("the ledger")
        ledger = _ledger(folder / "ledger")
        say("starting")
        startup = _startup(pictures, folder)
    now = datetime.now(timezone.utc).date().isoformat()
    return Figures(kinds, ledger, startup, _machine(), now, round(load, 2))


def _stages(kind: str, pictures: Sequence[Path], out: Path) -> Stages:
    job = job_of(kind)
    spent = spend(job, pictures, out / "out")
    a_batch, a_picture = launch(kind, pictures, out / "thin")
    files = {file for row in spent.rows for file in row.files}
    model = load_model(MODEL, device="cpu")
    height, width = model.card.input.size
    return Stages(
        batch=job.batch_size,
        read_bytes=sum(path.stat().st_size for path in pictures) / len(pictures),
        read=spent.read,
        decode=spent.decode,
        model=spent.model,
        write=spent.write,
        written_bytes=sum((out / "out" / file).stat().st_size for file in files) / len(pictures),
        shard=spent.end + _borders(spent.rows, out / "borders"),
        held=held(kind, pictures, out / "held"),
        launch=a_batch,
        launch_picture=a_picture,
        input_bytes=3 * height * width * 4,
    )


def _borders(rows: Sequence[Row], out: Path) -> float:
    """Seconds to read the inputs of a shard from the plan, and to write down what became of them."""
    items = [row.item for row in rows]
    with RealLedger.open(out, {}, lambda: iter(items), Fingerprint, shard_size=len(items)) as ledger:
        times = []
        for _ in range(3):
            begun = time.process_time()
            ledger.items(0)
            ledger.finish_shard(0, rows)
            times.append(time.process_time() - begun)
    return median(times)


def _ledger(folder: Path) -> Ledger:
    """Seconds an input, of files that are there."""
    folder.mkdir()
    path = folder / "picture.jpg"
    path.touch()

    def items() -> Iterator[Item]:
        return (Item(f"{number:07d}.jpg", str(path)) for number in range(ACCOUNTED))

    out, times = folder / "out", [time.perf_counter()]
    with RealLedger.open(out, {}, items, Fingerprint, shard_size=256) as ledger:
        times.append(time.perf_counter())
        for shard in ledger.todo():
            ledger.finish_shard(
                shard, [Row(number, item, "done", shard=shard) for number, item, _ in ledger.items(shard)]
            )
    begun = time.perf_counter()
    with RealLedger.open(out, {}, items, Fingerprint, shard_size=256) as ledger:
        resumed = time.perf_counter()
        ledger.close_export()
        closed = time.perf_counter()
    return Ledger((times[1] - times[0]) / ACCOUNTED, (resumed - begun) / ACCOUNTED, (closed - resumed) / ACCOUNTED)


def _startup(pictures: Sequence[Path], folder: Path) -> float:
    """Seconds of an export of two pictures in two workers, of which the pictures themselves are next to nothing."""
    few = folder / "few"
    few.mkdir()
    for path in pictures[:2]:
        os.link(path, few / path.name)
    return export_features(
        MODEL, few, folder / "started", shard_size=1, device="cpu", run=RunOptions(workers=2)
    ).seconds


def _machine() -> str:
    processors = os.cpu_count() or 1
    names = [line.split(":", 1)[1].strip() for line in _cpuinfo() if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    return f"{processors} processors ({name}), torch {version('torch')}, Python {platform.python_version()}"


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []
