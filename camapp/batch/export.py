"""export_heatmaps, export_features: pictures of any number into a folder, each accounted for, resumed anywhere."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from camapp.backbones.load import LoadedModel
from camapp.batch.jobs.features import FeatureJob
from camapp.batch.jobs.heatmaps import COLUMN, LABEL, HeatmapJob
from camapp.batch.jobs.job import ModelChoice
from camapp.batch.jobs.map_files import OUTPUTS, Output
from camapp.batch.running import SHARD_SIZE, USUAL_COLUMNS, USUAL_RUN, Columns, ExportReport, RunOptions, run_export
from camapp.batch.sources import Source
from camapp.images.geometry import Fit
from camapp.images.render import ALPHA


def export_heatmaps(
    model: str | LoadedModel,
    source: Source,
    out: str | os.PathLike[str],
    *,
    method: str = "gradcam",
    layer: str | Sequence[str] | None = None,
    targets: str | int | Sequence[str | int] | None = None,
    top_k: int = 1,
    outputs: Sequence[Output] = OUTPUTS,
    overlay_format: str = "jpeg",
    quality: int = 90,
    max_side: int | None = None,
    raw_format: str = "npy",
    alpha: float = ALPHA,
    colormap: str = "viridis",
    hide_below: float = 0.0,
    sign: str = "positive",
    normalize: str = "minmax",
    fit: Fit | None = None,
    batch_size: int = 8,
    precision: str = "float32",
    draft: bool = False,
    shard_size: int = SHARD_SIZE,
    columns: Columns = USUAL_COLUMNS,
    device: str = "auto",
    random_weights: bool = False,
    models: str | os.PathLike[str] | None = None,
    run: RunOptions = USUAL_RUN,
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
        raw_format: "npy", float32, a file a picture; or "parquet", float16, a file a shard, which
            ``camapp.batch.read_raw_maps`` reads.
        alpha: opacity where a map is hottest.
        colormap: one of ``camapp.images.render.COLORMAPS``.
        hide_below: leave the picture as it is where the map is below this.
        sign: "positive" or "negative".
        normalize: "minmax", "max" or "shared".
        fit: "crop", "letterbox" or "stretch"; the card's own way by default.
        batch_size: pictures in one forward.
        precision: "float32", or "bfloat16" or "float16" for autocast; maps are float32 and differ a little.
        draft: decode large JPEGs at 1/2, 1/4 or 1/8 of their size, for several times the speed and maps that differ a
            little; wants a ``max_side``, or only "raw" as outputs.
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
    if isinstance(targets, str | int) and targets not in (LABEL, COLUMN):
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
        precision,
        draft,
        raw_format,
    )
    job.checked()
    return run_export(job, "heatmaps", source, Path(out), columns, shard_size, run)


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
    precision: str = "float32",
    draft: bool = False,
    shard_size: int = SHARD_SIZE,
    columns: Columns = USUAL_COLUMNS,
    device: str = "auto",
    random_weights: bool = False,
    models: str | os.PathLike[str] | None = None,
    run: RunOptions = USUAL_RUN,
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
        precision: "float32", or "bfloat16" or "float16" for autocast.
        draft: decode large JPEGs at 1/2, 1/4 or 1/8 of their size, as for ``export_heatmaps``.
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
        precision,
        draft,
    )
    job.checked()
    return run_export(job, "features", source, Path(out), columns, shard_size, run)
