"""One run of an export: a job over a source, through an engine, into a folder that can be resumed."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from camapp.backbones.load import LoadedModel
from camapp.batch.engines.local import run_local
from camapp.batch.jobs.features import FeatureJob
from camapp.batch.jobs.heatmaps import HeatmapJob
from camapp.batch.jobs.job import ModelChoice
from camapp.batch.ledger import Ledger
from camapp.batch.records import Item
from camapp.batch.sources import Fingerprint, Source, list_items
from camapp.errors import CamappError
from camapp.explanation import versions
from camapp.sources.batches import default_workers
from camapp.sources.pictures import check_count

# Called now and then with how many inputs are done, how many failed and how many there are.
Progress = Callable[[int, int, int], None]

SHARD_SIZE = 256


class TooManyFailures(CamappError):  # noqa: N818 - says what happened
    """More inputs failed than were allowed; what was done is kept."""


@dataclass(frozen=True)
class Columns:
    """Which columns of a table hold what; found by their usual names where they are None.

    Args:
        path: where a picture is.
        label: its label.
        target: the class to explain in it.
    """

    path: str | None = None
    label: str | None = None
    target: str | None = None


@dataclass(frozen=True)
class ExportReport:
    """How an export ended.

    Args:
        out: its folder.
        total: how many inputs there are.
        done: how many were done, in runs before too.
        failed: how many failed; the manifest says why.
        finished: whether all are accounted for; otherwise it can be resumed.
        resumed: whether an earlier run was gone on with.
        seconds: of this run.
        this_run: how many inputs this run did, failed ones among them.
    """

    out: Path
    total: int
    done: int
    failed: int
    finished: bool
    resumed: bool
    seconds: float
    this_run: int

    @property
    def rate(self) -> float:
        """Inputs a second, in this run."""
        return self.this_run / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class RunOptions:
    """How an export runs; none of it changes what comes out.

    Args:
        workers: processes; by default one a processor on the CPU, one on a GPU.
        threads: of each, for reading, decoding and writing beside the model; by default none with several workers, and
            as many as processors with one.
        overwrite: start anew where the folder holds an export.
        max_errors: end once more inputs than that have failed; None for never.
        progress: called after each batch.
        stop: once it is set, the export ends when the shards under way are done.
    """

    workers: int | None = None
    threads: int | None = None
    overwrite: bool = False
    max_errors: int | None = None
    progress: Progress | None = None
    stop: threading.Event | None = None


USUAL_COLUMNS, USUAL_RUN = Columns(), RunOptions()


def run_export(
    job: HeatmapJob | FeatureJob,
    kind: str,
    source: Source,
    out: Path,
    columns: Columns,
    shard_size: int,
    run: RunOptions,
) -> ExportReport:
    """Run a job over a source into a folder: plan it or go on with it, and write down what became of each input.

    Args:
        job: what is done with each picture; its options are known to be meant.
        kind: "heatmaps" or "features", for the settings.
        source: as ``list_items`` reads it.
        out: the folder.
        columns: which columns of a table hold what.
        shard_size: inputs a shard.
        run: how it runs.

    Raises:
        UsageError, LayerError, TargetError, ModelError, WeightsError, TooManyFailures, OSError: as ``export_heatmaps``.
    """
    check_count("batch_size", job.batch_size, 1)
    check_count("shard_size", shard_size, 1)
    if run.max_errors is not None:
        check_count("max_errors", run.max_errors, 0)
    loaded = job.choice.load()
    workers, threads = _hands(loaded.device, run)
    if workers <= 1:
        job = replace(job, choice=ModelChoice(loaded))  # which is loaded already
    replace(job, choice=ModelChoice(loaded)).open(out)  # what cannot be meant is found before the folder is touched
    settings, device = _settings(job, kind, loaded), str(loaded.device)
    del loaded  # workers have models of their own
    start = time.perf_counter()

    inside = os.path.join(os.path.abspath(out), "")

    def items() -> Iterator[Item]:
        listed = list_items(source, path_column=columns.path, label_column=columns.label, target_column=columns.target)
        # A folder within the source is what the export itself writes.
        return job.checked_items(item for item in listed if not item.path.startswith(inside))

    with Ledger.open(out, settings, items, Fingerprint, shard_size=shard_size, overwrite=run.overwrite) as ledger:
        counted = _Counted(ledger.counts(), run)
        run_local(
            job,
            ledger.handle(),
            out,
            ledger.todo(),
            workers=workers,
            threads=threads,
            told=counted.told,
            stop=counted.stop,
        )
        done, failed, total = ledger.counts()
        finished = done + failed == total
        seconds = time.perf_counter() - start
        if finished:
            ledger.close_export(
                {
                    "seconds": round(seconds, 3),
                    "pictures_a_second": round(counted.this_run / seconds, 3),
                    "versions": versions(),
                    "device": device,
                    "workers": workers,
                }
            )
        if counted.too_many:
            rest = "The export is finished" if finished else "Start again with a higher number to go on"
            raise TooManyFailures(
                f"{failed} of {done + failed} inputs failed, more than {run.max_errors}. {rest}; each is written down "
                "with its reason."
            )
        resumed = done + failed > counted.this_run
        return ExportReport(out, total, done, failed, finished, resumed, seconds, counted.this_run)


def _digest(module: torch.nn.Module) -> str:
    """What tells the weights of one network of the user's own from another's: 64 hex digits."""
    digest = hashlib.sha256(f"{type(module).__module__}.{type(module).__qualname__}".encode())
    for name, value in sorted(module.state_dict().items()):
        if isinstance(value, torch.Tensor):
            plain = value.detach().cpu().contiguous().reshape(-1)
            digest.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
            digest.update(plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b"")
    return digest.hexdigest()


class _Counted:
    """How far an export is, and whether it shall end."""

    def __init__(self, before: tuple[int, int, int], run: RunOptions) -> None:
        self.stop = run.stop or threading.Event()
        self.this_run = 0
        self._done, self._failed, self._total = before
        self._run = run

    @property
    def too_many(self) -> bool:
        """Whether more failed than is allowed."""
        return self._run.max_errors is not None and self._failed > self._run.max_errors

    def told(self, done: int, failed: int) -> None:
        """So many more were done, and so many failed."""
        self.this_run += done + failed
        self._done += done
        self._failed += failed
        if self.too_many:
            self.stop.set()
        if self._run.progress is not None:
            self._run.progress(self._done, self._failed, self._total)


def _hands(device: torch.device, run: RunOptions) -> tuple[int, int]:
    """How many workers, and threads of each."""
    workers, threads = run.workers, run.threads
    if workers is not None:
        check_count("workers", workers, 1)
    if threads is not None:
        check_count("threads", threads, 0)
    if workers is None:
        workers = default_workers() if device.type == "cpu" else 1
    if threads is None:
        threads = default_workers() if workers == 1 else 0
    return workers, threads


def _settings(job: HeatmapJob | FeatureJob, kind: str, model: LoadedModel) -> dict[str, Any]:
    """What decides on the files that come out: a run with other settings is another run."""
    own = {one.name: getattr(job, one.name) for one in fields(job) if one.compare and one.name != "choice"}
    return {
        "kind": kind,
        "model": model.name,
        "weights": {
            "source": model.weights.source,
            "sha256": model.weights.sha256 or _digest(model.module),
            "random": model.weights.random,
        },
        "input": {**model.card.input.model_dump(mode="json"), "fit": job.fit or model.card.preprocessing.fit},
        **{name: list(value) if isinstance(value, tuple) else value for name, value in own.items()},
    }
