"""camapp features: the features of pictures as a file or as parts, or the channels of one picture as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.markup import escape

from camapp.cli.options import (
    SOME_FAILED,
    BatchOption,
    DeviceOption,
    FitOption,
    ModelOption,
    ModelsOption,
    PoolOption,
    RandomOption,
    load,
    split_names,
)
from camapp.cli.running import (
    AddressOption,
    DraftOption,
    EngineOption,
    ErrorsOption,
    LabelColumnOption,
    PathColumnOption,
    PerGpuOption,
    PrecisionOption,
    ShardOption,
    StrictOption,
    ThreadsOption,
    exported,
)
from camapp.errors import UsageError
from camapp.terminal import complain, out, print_object, report_failure, with_progress

if TYPE_CHECKING:
    from camapp.backbones.load import LoadedModel
    from camapp.features.table import FeatureTable


def features(
    source: Annotated[str, typer.Argument(help="A folder, a picture, a pattern, a list (.txt) or a table (.csv).")],
    file: Annotated[
        Path, typer.Argument(metavar="OUT", help="The file; its ending is the format: .parquet, .npz, ...")
    ],
    layers: Annotated[str, typer.Option(help="Layers, parted by commas: names, blocks.*, blocks[-4:], last.")] = (
        "penultimate"
    ),
    model: ModelOption = "efficientnet_lite0",
    pool: PoolOption = "auto",
    normalize: Annotated[bool, typer.Option("--normalize", help="Scale each picture's features to length 1.")] = False,
    file_format: Annotated[str | None, typer.Option("--format", help="The format, if the ending does not say.")] = None,
    dtype: Annotated[str, typer.Option(help="float32 or float16.")] = "float32",
    grid: Annotated[
        str | None, typer.Option(help="Paint this layer's channels for one picture instead; OUT is a .png.")
    ] = None,
    scale: Annotated[
        Literal["channel", "common"], typer.Option(help="Of --grid: channel (each by itself) or common.")
    ] = "channel",
    parts: Annotated[
        bool, typer.Option("--parts", help="OUT is a folder: parts, a manifest; any number of pictures, resumed.")
    ] = False,
    path_column: PathColumnOption = None,
    label_column: LabelColumnOption = None,
    shard_size: ShardOption = 256,
    max_errors: ErrorsOption = None,
    strict: StrictOption = False,
    limit: Annotated[int | None, typer.Option(help="Take only the first N pictures.")] = None,
    batch_size: BatchOption = 32,
    precision: PrecisionOption = "float32",
    draft: DraftOption = False,
    workers: Annotated[
        int | None, typer.Option(help="Threads that decode pictures; with --parts, processes. One a processor.")
    ] = None,
    threads: ThreadsOption = None,
    workers_per_gpu: PerGpuOption = 1,
    engine: EngineOption = "local",
    ray_address: AddressOption = None,
    fit: FitOption = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what was written as JSON; with --parts, progress too.")
    ] = False,
    device: DeviceOption = "auto",
    models: ModelsOption = None,
    random_weights: RandomOption = False,
) -> None:
    """Take the features of pictures out of a backbone: one row a picture, with its label where folders are labels."""
    from camapp.images.geometry import checked_fit

    common: dict[str, Any] = {
        "layers": split_names(layers),
        "pool": pool,
        "normalize": normalize,
        "dtype": dtype,
        "fit": None if fit is None else checked_fit(fit),
        "batch_size": batch_size,
    }
    if parts:
        from camapp.batch import Columns, RunOptions, export_features

        if grid is not None or limit is not None:
            raise UsageError("--parts goes neither with --grid nor with --limit.")
        exported(
            lambda options: export_features(
                model,
                source,
                file,
                **common,
                format=file_format or "parquet",
                precision=precision,
                draft=draft,
                shard_size=shard_size,
                columns=Columns(path_column, label_column),
                device=device,
                random_weights=random_weights,
                models=models,
                run=options,
            ),
            RunOptions(
                workers,
                threads,
                overwrite,
                0 if strict else max_errors,
                engine=engine,
                ray_address=ray_address,
                workers_per_gpu=workers_per_gpu,
            ),
            as_json=as_json,
        )
        return
    _refuse_for_one_file(
        {
            "--strict": strict,
            "--max-errors": max_errors is not None,
            "--path-column": path_column is not None,
            "--label-column": label_column is not None,
            "--shard-size": shard_size != 256,
            "--draft": draft,
            "--precision": precision != "float32",
            "--threads": threads is not None,
            "--workers-per-gpu": workers_per_gpu != 1,
            "--engine": engine != "local",
            "--ray-address": ray_address is not None,
        }
    )
    if grid is not None:
        loaded = load(model, models, device, random_weights)
        _paint_grid(loaded, source, grid, file, scale=scale, fit=common["fit"], overwrite=overwrite)
        return
    from camapp.features.formats import check_target
    from camapp.transfer import extract_features

    check_target(file, file_format, overwrite=overwrite)
    loaded = load(model, models, device, random_weights)
    table = extract_features(loaded, source, **common, workers=workers, limit=limit, progress=with_progress)
    _tell(table, table.save(file, file_format, overwrite=overwrite)[0], as_json=as_json)


def _paint_grid(loaded: LoadedModel, source: str, layer: str, file: Path, **options: Any) -> None:
    from camapp.transfer.channels import save_channel_grid

    painted = save_channel_grid(loaded, source, layer, file, **options)
    left = f" ({painted.left_out} of less variance left out)" if painted.left_out else ""
    out.print(escape(f"{file}: {len(painted.channels)} channels of {layer}{left}"))


def _tell(table: FeatureTable, file: Path, *, as_json: bool) -> None:
    """What was written into one file, and what could not be read."""
    if as_json:
        print_object(
            {
                "out": str(file),
                "pictures": len(table),
                "classes": list(table.classes) if table.labels is not None else None,
                "layers": {layer: info.to_dict() for layer, info in table.info.items()},
                "failures": [{"input": name, "error": reason} for name, reason in table.failures],
            }
        )
    else:
        labelled = f" of {len(table.classes)} classes" if table.labels is not None else ""
        out.print(f"[bold]{escape(str(file))}[/]  {len(table)} picture{'s' * (len(table) != 1)}{labelled}")
        for layer, info in table.info.items():
            size = "x".join(map(str, info.size))
            out.print(escape(f"  {layer}: {size} {table[layer].dtype}, {info.pool} of {info.kind} {info.layer}"))
    for name, reason in table.failures:
        report_failure(name, reason)
    if table.failures:
        complain(f"{len(table.failures)} of {len(table) + len(table.failures)} pictures failed")
        raise typer.Exit(SOME_FAILED)


def _refuse_for_one_file(given: dict[str, bool]) -> None:
    """Say no to options of exports where one file is written."""
    named = [option for option, is_given in given.items() if is_given]
    if named:
        raise UsageError(
            f"{', '.join(named)}: for exports with --parts, into a folder. One file is written whole or not at all."
        )
