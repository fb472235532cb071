"""export_heatmaps, export_features: pictures of any number into a folder, each accounted for, resumed anywhere."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from camapp.backbones.load import LoadedModel
from camapp.batch.engines.local import run_local
from camapp.batch.jobs.features import FeatureJob
from camapp.batch.jobs.heatmaps import HeatmapJob, Output
from camapp.batch.jobs.job import ModelChoice
from camapp.batch.ledger import Ledger
from camapp.batch.records import Item
from camapp.batch.sources import Fingerprint, Source, list_items
from camapp.errors import CamappError
from camapp.explanation import versions
from camapp.images.geometry import Fit
from camapp.images.render import ALPHA
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


def export_heatmaps(
    model: str | LoadedModel,
    source: Source,
    out: str | os.PathLike[str],
    *,
    method: str = "gradcam",
    layer: str | Sequence[str] | None = None,
    targets: str | int | Sequence[str | int] | None = None,
    top_k: int = 1,
    outputs: Sequence[Output] = ("overlay", "heatmap", "raw"),
    overlay_format: str = "jpeg",
    quality: int = 90,
    max_side: int | None = None,
    alpha: float = ALPHA,
    colormap: str = "viridis",
    hide_below: float = 0.0,
    sign: str = "positive",
    normalize: str = "minmax",
    fit: Fit | None = None,
    batch_size: int = 8,
    shard_size: int = SHARD_SIZE,
    columns: Columns = Columns(),
    device: str = "auto",
    random_weights: bool = False,
    models: str | os.PathLike[str] | None = None,
    run: RunOptions = RunOptions(),
) -> ExportReport:
    """Write heatmaps of all pictures of a source into a folder.

    ``OUT/overlays``, ``heatmaps`` and ``raw`` hold the files, under the names and folders of the source;
    ``OUT/manifest.parquet`` one row for every input, with its status, reason, predictions and files; ``OUT/run.json``
    how it was made. A run that was ended or killed goes on where it was when it is started again.

    Args:
        model: a card's name, the path of a card or of a ``.camapp`` file, or a ``LoadedModel``.
        source: a folder, a file, a pattern, a list (.txt), a table (.csv, .tsv, .parquet), a .zip or .tar, ``"-"`` for
            names on standard input, or a sequence of these.
        out: the folder.
        method: a method's name.
        layer: the layer, or several to be joined; the card's own by default.
        targets: a class or several, for all pictures; ``"label"`` for each picture's label, ``"column"`` for the class
            that the table names; the likeliest by default.
        top_k: how many of the likeliest.
        outputs: of "overlay", "heatmap" and "raw".
        overlay_format: "jpeg", "png" or "webp".
        quality: of JPEG and WebP, 1 to 100.
        max_side: the longest side of overlays and heatmaps in pixels; the picture's own by default.
        alpha: opacity where a map is hottest.
        colormap: one of ``camapp.images.render.COLORMAPS``.
        hide_below: leave the picture as it is where the map is below this.
        sign: "positive" or "negative".
        normalize: "minmax", "max" or "shared".
        fit: "crop", "letterbox" or "stretch"; the card's own way by default.
        batch_size: pictures in one forward.
        shard_size: pictures in a shard, the unit that is done or not.
        columns: which columns of a table hold what.
        device: "auto", "cpu", "cuda", ...
        random_weights: run without weights.
        models: a folder of cards of your own.
        run: how it runs: workers, overwrite, progress and so on.

    Returns:
        How it ended.

    Raises:
        UsageError: a source, folder or option that cannot be meant; another run's folder; changed settings or source.
        LayerError, TargetError, ModelError, WeightsError: as ``camapp.explain``.
        TooManyFailures: more inputs failed than ``run.max_errors``.
        OSError: a file cannot be written; what was done is kept.

    Example:
        >>> report = camapp.export_heatmaps("efficientnet_lite0", "photos", "heatmaps", top_k=2)
        >>> camapp.batch.read_manifest("heatmaps").filter(...)
    """
    if isinstance(targets, str | int) and targets not in ("label", "column"):
        targets = (targets,)
    job = HeatmapJob(
        ModelChoice(model, None if models is None else Path(models), device, random_weights),
        method,
        layer if layer is None or isinstance(layer, str) else tuple(layer),
        targets if targets is None or isinstance(targets, str) else tuple(targets),
        top_k,
        tuple(outputs),
        overlay_format,
        quality,
        max_side,
        alpha,
        colormap,
        hide_below,
        sign,
        normalize,
        fit,
        batch_size,
    )
    job.checked()
    return _export(job, "heatmaps", source, Path(out), columns, shard_size, run)


def export_features(
    model: str | LoadedModel,
    source: Source,
    out: str | os.PathLike[str],
    *,
    layers: str | Sequence[str] = "penultimate",
    pool: str = "auto",
    normalize: bool = False,
    dtype: str = "float32",
    format: str = "parquet",
    fit: Fit | None = None,
    channels_last: bool = True,
    batch_size: int = 32,
    shard_size: int = SHARD_SIZE,
    columns: Columns = Columns(),
    device: str = "auto",
    random_weights: bool = False,
    models: str | os.PathLike[str] | None = None,
    run: RunOptions = RunOptions(),
) -> ExportReport:
    """Write features of all pictures of a source into a folder, one file a shard in ``OUT/features``.

    Manifest, ``run.json`` and resuming are those of ``export_heatmaps``; for tables that fit into memory there is
    ``camapp.extract_features``.

    Args:
        model: as for ``export_heatmaps``.
        source: as for ``export_heatmaps``.
        out: the folder.
        layers: as for ``FeatureExtractor``.
        pool: one of ``camapp.features.POOLS``.
        normalize: scale each picture's features of a layer to length 1.
        dtype: "float32" or "float16".
        format: the format of the files, as ``camapp.load_features`` reads them.
        fit: "crop", "letterbox" or "stretch"; the card's own way by default.
        channels_last: as for ``FeatureExtractor``.
        batch_size: pictures in one forward.
        shard_size: pictures in a shard.
        columns: which columns of a table hold what.
        device: "auto", "cpu", "cuda", ...
        random_weights: run without weights.
        models: a folder of cards of your own.
        run: how it runs.

    Raises:
        UsageError, LayerError, ModelError, WeightsError, TooManyFailures, OSError: as ``export_heatmaps``.
    """
    job = FeatureJob(
        ModelChoice(model, None if models is None else Path(models), device, random_weights),
        (layers,) if isinstance(layers, str) else tuple(layers),
        pool,
        normalize,
        dtype,
        format,
        fit,
        channels_last,
        batch_size,
    )
    job.checked()
    return _export(job, "features", source, Path(out), columns, shard_size, run)


def _export(
    job: HeatmapJob | FeatureJob,
    kind: str,
    source: Source,
    out: Path,
    columns: Columns,
    shard_size: int,
    run: RunOptions,
) -> ExportReport:
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
        return (item for item in listed if not item.path.startswith(inside))

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
