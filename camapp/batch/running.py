"""One run of an export: a job over a source, through an engine, into a folder that can be resumed."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import torch

from camapp.backbones.load import LoadedModel
from camapp.batch.engines.cluster import check_ray, joined, share_of
from camapp.batch.engines.local import LocalShare, local_share, run_local
from camapp.batch.engines.ray import run_ray
from camapp.batch.jobs.features import FeatureJob
from camapp.batch.jobs.heatmaps import HeatmapJob
from camapp.batch.jobs.job import ModelChoice
from camapp.batch.ledger import Ledger
from camapp.batch.ledger.refusals import usable_folder
from camapp.batch.records import Item
from camapp.batch.settings import settings_of
from camapp.batch.sources import Columns, Fingerprint, Source, list_items
from camapp.errors import CamappError, UsageError
from camapp.sources.batches import processors
from camapp.sources.pictures import check_count

# Called now and then with how many inputs are done, how many failed and how many there are.
Progress = Callable[[int, int, int], None]
Engine: TypeAlias = Literal["local", "ray"]

SHARD_SIZE = 256


class TooManyFailures(CamappError):  # noqa: N818 - says what happened
    """More inputs failed than were allowed; what was done is kept."""


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
    """How an export runs; on processors, none of it changes a byte of what comes out, and on GPUs only last digits.

    Args:
        workers: processes; by default one for each processor, or for each GPU; of the whole cluster with Ray.
        threads: of each, for reading, decoding and writing beside the model; by default none where there is a worker
            for each processor, else as many as processors for each worker, within 8.
        overwrite: start anew where the folder holds an export.
        max_errors: end once more inputs than that have failed; None for never.
        progress: called with how many inputs are done, how many failed and how many there are, after each batch; with
            Ray, after each shard. What it raises ends the run.
        stop: once it is set, the export ends when the shards under way are done.
        engine: "local" for processes of this machine, "ray" for a Ray cluster.
        ray_address: ``HOST:PORT`` of a cluster that this machine is a node of, or "auto"; by default what
            ``RAY_ADDRESS`` names, else a cluster of this machine alone, for as long as the export runs.
        workers_per_gpu: how many workers share a GPU where their number is not given; each has its own copy of the
            model, and its own interpreter to feed it.
    """

    workers: int | None = None
    threads: int | None = None
    overwrite: bool = False
    max_errors: int | None = None
    progress: Progress | None = None
    stop: threading.Event | None = None
    engine: Engine = "local"
    ray_address: str | None = None
    workers_per_gpu: int = 1


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
    usable_folder(out)
    check_count("batch_size", job.batch_size, 1)
    check_count("shard_size", shard_size, 1)
    _check(run)
    loaded = job.choice.load()
    device = loaded.device
    local = local_share(device, job.choice, run.workers, run.threads, run.workers_per_gpu)
    if run.engine == "ray":
        _refuse_own_memory(source)
        job, out = replace(job, choice=job.choice.absolute()), Path(os.path.abspath(out))
    elif local.workers > 1:
        _refuse_own_memory(source)
    else:
        job = replace(job, choice=ModelChoice(loaded))  # which is loaded already
    replace(job, choice=ModelChoice(loaded)).open(out)  # what cannot be meant is found before the folder is touched
    settings = settings_of(job, kind, loaded)
    del loaded  # workers have models of their own
    start = time.perf_counter()

    own = _own_folders(source, out)

    def items() -> Iterator[Item]:
        listed = list_items(source, columns)
        return job.checked_items(item for item in listed if not item.path.startswith(own))

    with (
        _engine(run, job.choice, device, local) as engine,
        Ledger.open(
            out, settings | {"device": engine.kind}, items, Fingerprint, shard_size=shard_size, overwrite=run.overwrite
        ) as ledger,
    ):
        counted = _Counted(ledger.counts(), run)
        engine.run(job, ledger.handle(), out, ledger.todo(), told=counted.told, stop=counted)
        done, failed, total = ledger.counts()
        finished = done + failed == total
        seconds = time.perf_counter() - start
        if finished:
            ledger.close_export(engine.facts)
        if counted.too_many:
            rest = "The export is finished" if finished else "Start again with a higher number to go on"
            raise TooManyFailures(
                f"{failed} of {done + failed} inputs failed, more than {run.max_errors}. {rest}; each is written down "
                "with its reason."
            )
        resumed = done + failed > counted.this_run
        return ExportReport(out, total, done, failed, finished, resumed, seconds, counted.this_run)


def _refuse_own_memory(source: Source) -> None:
    """Say no to pictures in the memory of this process, which no other one sees."""
    for part in [source] if isinstance(source, str | os.PathLike) else source:
        if os.fsdecode(part).startswith("memory://"):
            raise UsageError(f"{os.fsdecode(part)} lies in the memory of this process alone. Give workers=1.")


def _own_folders(source: Source, out: Path) -> tuple[str, ...]:
    """How the paths of inputs begin that the export itself wrote: OUT may lie within the source, also by a link."""
    real = os.path.realpath(out)
    own = {os.path.abspath(out)}
    for part in [source] if isinstance(source, str | os.PathLike) else source:
        root = os.path.abspath(os.path.expanduser(os.fsdecode(part)))
        within = os.path.relpath(real, os.path.realpath(root))
        if not within.startswith(os.pardir):
            own.add(os.path.join(root, within))
    return tuple(os.path.join(folder, "") for folder in own)


@dataclass(frozen=True)
class _Engine:
    """What runs the shards, and what run.json says of it."""

    run: Callable[..., None]
    facts: dict[str, Any]

    @property
    def kind(self) -> str:
        """The kind of device that it runs on: what comes out differs in its last digits from one to the other."""
        return str(self.facts["device"]).partition(":")[0]


@contextmanager
def _engine(run: RunOptions, choice: ModelChoice, device: torch.device, local: LocalShare) -> Iterator[_Engine]:
    """The engine that is asked for, with a cluster as long as it is needed."""
    if run.engine == "local":
        facts = {"engine": "local", "device": str(device), "workers": local.workers}
        yield _Engine(partial(run_local, share=local), facts)
        return
    with joined(run.ray_address, None if run.workers is None else max(run.workers, processors())) as ray:
        wanted = str(device) if isinstance(choice.model, LoadedModel) else choice.device
        share = share_of(ray, wanted, run.workers, run.threads, run.workers_per_gpu)
        facts = {"engine": "ray", "device": "cuda" if share.gpus else "cpu", "workers": share.workers}
        yield _Engine(partial(run_ray, ray, share=share), facts)


def _check(run: RunOptions) -> None:
    for name, least in (("workers", 1), ("threads", 0), ("max_errors", 0), ("workers_per_gpu", 1)):
        value = getattr(run, name)
        if value is not None:
            check_count(name, value, least)
    if run.engine not in get_args(Engine):
        raise UsageError(f"engine is one of {', '.join(get_args(Engine))}, not {run.engine!r}.")
    if run.engine == "ray":
        check_ray()
    elif run.ray_address is not None:
        raise UsageError(f'ray_address = {run.ray_address!r} is for the ray engine. Give engine="ray" (--engine ray).')


class _Counted:
    """How far an export is, and whether it shall end: a ``Stop``."""

    def __init__(self, before: tuple[int, int, int], run: RunOptions) -> None:
        self.this_run = 0
        self._done, self._failed, self._total = before
        self._run = run

    @property
    def too_many(self) -> bool:
        """Whether more failed than is allowed."""
        return self._run.max_errors is not None and self._failed > self._run.max_errors

    def is_set(self) -> bool:
        """Whether the caller said so, or too many failed."""
        return self.too_many or (self._run.stop is not None and self._run.stop.is_set())

    def told(self, done: int, failed: int) -> None:
        """So many more were done, and so many failed."""
        self.this_run += done + failed
        self._done += done
        self._failed += failed
        if self._run.progress is not None:
            self._run.progress(self._done, self._failed, self._total)
