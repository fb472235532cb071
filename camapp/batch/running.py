"""One run of an export: a job over a source, through an engine, into a folder that can be resumed."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import torch

from camapp.backbones.load import LoadedModel
from camapp.batch.engines.cluster import check_ray, joined, share_of
from camapp.batch.engines.local import run_local
from camapp.batch.engines.ray import run_ray
from camapp.batch.jobs.features import FeatureJob
from camapp.batch.jobs.heatmaps import HeatmapJob
from camapp.batch.jobs.job import ModelChoice
from camapp.batch.ledger import Ledger
from camapp.batch.ledger.refusals import usable_folder
from camapp.batch.records import Item
from camapp.batch.sources import Fingerprint, Source, list_items
from camapp.errors import CamappError, UsageError
from camapp.explanation import versions
from camapp.sources.batches import default_workers, processors
from camapp.sources.pictures import check_count

# Called now and then with how many inputs are done, how many failed and how many there are.
Progress = Callable[[int, int, int], None]
Engine: TypeAlias = Literal["local", "ray"]

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
        workers: processes; by default one for each processor, or for each GPU; of the whole cluster with Ray.
        threads: of each, for reading, decoding and writing beside the model; by default none where there is a worker
            for each processor, else as many as processors for each worker, within 8.
        overwrite: start anew where the folder holds an export.
        max_errors: end once more inputs than that have failed; None for never.
        progress: called after each batch; with Ray, after each shard.
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
    device, local = loaded.device, _local_share(loaded.device, job.choice, run)
    if run.engine == "ray":
        job, out = replace(job, choice=job.choice.absolute()), Path(os.path.abspath(out))
    elif local.workers <= 1:
        job = replace(job, choice=ModelChoice(loaded))  # which is loaded already
    replace(job, choice=ModelChoice(loaded)).open(out)  # what cannot be meant is found before the folder is touched
    settings = _settings(job, kind, loaded)
    del loaded  # workers have models of their own
    start = time.perf_counter()

    inside = os.path.join(os.path.abspath(out), "")

    def items() -> Iterator[Item]:
        listed = list_items(source, path_column=columns.path, label_column=columns.label, target_column=columns.target)
        # A folder within the source is what the export itself writes.
        return job.checked_items(item for item in listed if not item.path.startswith(inside))

    with (
        _engine(run, job.choice, device, local) as engine,
        Ledger.open(out, settings, items, Fingerprint, shard_size=shard_size, overwrite=run.overwrite) as ledger,
    ):
        counted = _Counted(ledger.counts(), run)
        engine.run(job, ledger.handle(), out, ledger.todo(), told=counted.told, stop=counted.stop)
        done, failed, total = ledger.counts()
        finished = done + failed == total
        seconds = time.perf_counter() - start
        if finished:
            ledger.close_export(
                {
                    "seconds": round(seconds, 3),
                    "pictures_a_second": round(counted.this_run / seconds, 3),
                    "versions": versions(),
                    **engine.facts,
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


@dataclass(frozen=True)
class _Engine:
    """What runs the shards, and what run.json says of it."""

    run: Callable[..., None]
    facts: dict[str, Any]


@contextmanager
def _engine(run: RunOptions, choice: ModelChoice, device: torch.device, local: _LocalShare) -> Iterator[_Engine]:
    """The engine that is asked for, with a cluster as long as it is needed."""
    if run.engine == "local":
        facts = {"engine": "local", "device": str(device), "workers": local.workers}
        yield _Engine(partial(run_local, **vars(local)), facts)
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


@dataclass(frozen=True)
class _LocalShare:
    """How many workers the local engine has here, threads of each, and how many GPUs they are spread over."""

    workers: int
    threads: int
    gpus: int


def _local_share(device: torch.device, choice: ModelChoice, run: RunOptions) -> _LocalShare:
    if device.type == "cpu":
        workers = run.workers or processors()
        threads = 0 if workers > 1 else default_workers()
        return _LocalShare(workers, threads if run.threads is None else run.threads, 0)
    # A model that was loaded, or "cuda:1", is where it is; any GPU will do for one that each worker loads.
    gpus = torch.cuda.device_count() if isinstance(choice.model, str) and choice.device in ("auto", "cuda") else 0
    workers = run.workers or max(1, gpus) * run.workers_per_gpu
    threads = min(default_workers(), max(1, processors() // workers))
    return _LocalShare(workers, threads if run.threads is None else run.threads, gpus)


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
