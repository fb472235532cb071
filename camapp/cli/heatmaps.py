"""camapp heatmaps: heatmaps of any number of pictures into a folder, resumed where it was ended."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from camapp.cli.options import (
    DeviceOption,
    FitOption,
    ModelOption,
    ModelsOption,
    RandomOption,
    split_names,
)
from camapp.cli.running import (
    AddressOption,
    BatchesOption,
    DraftOption,
    EngineOption,
    ErrorsOption,
    JsonLinesOption,
    LabelColumnOption,
    OverwriteOption,
    PathColumnOption,
    PerGpuOption,
    PrecisionOption,
    ProcessesOption,
    ShardOption,
    StrictOption,
    ThreadsOption,
    exported,
)


def export_heatmaps(
    source: Annotated[
        list[str], typer.Argument(help="Folders, pictures, patterns, lists, tables, .zip, .tar; - for names on stdin.")
    ],
    out: Annotated[Path, typer.Argument(help="Folder for the heatmaps.")],
    model: ModelOption = "efficientnet_lite0",
    method: Annotated[str, typer.Option(help="How the map is made (camapp methods lists them).")] = "gradcam",
    layer: Annotated[
        list[str] | None, typer.Option(help="Target layer (camapp layers MODEL lists them); repeatable, then fused.")
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option("--target", "-t", help="Class name or index, repeatable; label or column for each picture's own."),
    ] = None,
    top_k: Annotated[int, typer.Option("--top-k", "-k", help="Explain the K likeliest classes.")] = 1,
    outputs: Annotated[
        str, typer.Option(help="overlay, heatmap (16-bit PNG), raw (.npy); several by commas.")
    ] = "overlay,heatmap,raw",
    overlay_format: Annotated[str, typer.Option("--overlay-format", help="jpeg, png or webp.")] = "jpeg",
    quality: Annotated[int, typer.Option(help="Of JPEG and WebP, 1 to 100.")] = 90,
    max_side: Annotated[int | None, typer.Option(help="Longest side of overlays and heatmaps in pixels.")] = None,
    raw_format: Annotated[str, typer.Option(help="npy (a file a picture), parquet (float16, a file a shard).")] = "npy",
    alpha: Annotated[float, typer.Option(help="Opacity of the heatmap at its hottest, 0 to 1.")] = 0.7,
    colormap: Annotated[str, typer.Option(help="viridis, magma, inferno, cividis, gray, turbo or jet.")] = "viridis",
    fit: FitOption = None,
    path_column: PathColumnOption = None,
    label_column: LabelColumnOption = None,
    target_column: Annotated[str | None, typer.Option(help="Column that holds the classes to explain.")] = None,
    batch_size: BatchesOption = 8,
    precision: PrecisionOption = "float32",
    draft: DraftOption = False,
    shard_size: ShardOption = 256,
    workers: ProcessesOption = None,
    threads: ThreadsOption = None,
    workers_per_gpu: PerGpuOption = 1,
    engine: EngineOption = "local",
    ray_address: AddressOption = None,
    max_errors: ErrorsOption = None,
    strict: StrictOption = False,
    overwrite: OverwriteOption = False,
    as_json: JsonLinesOption = False,
    device: DeviceOption = "auto",
    models: ModelsOption = None,
    random_weights: RandomOption = False,
) -> None:
    """Write heatmaps of pictures into a folder, with a manifest; started again, it goes on where it was."""
    from camapp.batch import Columns, RunOptions
    from camapp.batch import export_heatmaps as export
    from camapp.errors import UsageError

    if target and top_k != 1:
        raise UsageError("--target and --top-k exclude each other: give the classes, or how many of the likeliest.")
    targets = target[0] if target and target[0] in ("label", "column") and len(target) == 1 else target

    def run(options: RunOptions) -> object:
        return export(
            model,
            source,
            out,
            method=method,
            layer=layer or None,
            targets=targets or None,
            top_k=top_k,
            outputs=split_names(outputs),  # type: ignore[arg-type]
            overlay_format=overlay_format,
            quality=quality,
            max_side=max_side,
            raw_format=raw_format,
            alpha=alpha,
            colormap=colormap,
            fit=fit,  # type: ignore[arg-type]
            batch_size=batch_size,
            precision=precision,
            draft=draft,
            shard_size=shard_size,
            columns=Columns(path_column, label_column, target_column),
            device=device,
            random_weights=random_weights,
            models=models,
            run=options,
        )

    options = RunOptions(
        workers,
        threads,
        overwrite,
        0 if strict else max_errors,
        engine=engine,
        ray_address=ray_address,
        workers_per_gpu=workers_per_gpu,
    )
    exported(run, options, as_json=as_json)
