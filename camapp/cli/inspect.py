"""camapp inspect: what the layers give on pictures, how the gradients flow, and what is wrong with either."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from camapp.cli.options import (
    SOME_FAILED,
    DeviceOption,
    FitOption,
    ModelOption,
    ModelsOption,
    RandomOption,
    load,
    split_names,
)
from camapp.terminal import complain, out, print_object, report_failure


def inspect(
    source: Annotated[list[str], typer.Argument(help="Folders, pictures, patterns, or lists of files (.txt).")],
    model: ModelOption = "efficientnet_lite0",
    target: Annotated[
        str, typer.Option("--target", "-t", help="top (each picture's likeliest class), or one class.")
    ] = ("top"),
    layers: Annotated[
        str | None, typer.Option(help="Layers and patterns, parted by commas (camapp layers MODEL); all by default.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for snapshot.json, table.txt and depth.png.")
    ] = None,
    batch_size: Annotated[int, typer.Option(help="How many pictures are taken; they run together.")] = 16,
    fit: FitOption = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the inspection in --out.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of the table.")] = False,
    device: DeviceOption = "auto",
    models: ModelsOption = None,
    random_weights: RandomOption = False,
) -> None:
    """Show the activations and gradients of a model's layers on pictures, and what is wrong with them."""
    from camapp.files import check_report_folder
    from camapp.images.geometry import checked_fit
    from camapp.inspection import FILES, inspect_pictures

    if folder is not None:
        check_report_folder(folder, FILES, overwrite=overwrite)
    how = None if fit is None else checked_fit(fit)
    loaded = load(model, models, device, random_weights)
    inspection = inspect_pictures(
        loaded,
        source,
        target=None if target == "top" else target,
        layers=split_names(layers) if layers else None,
        batch_size=batch_size,
        fit=how,
    )
    saved = inspection.save(folder, overwrite=overwrite) if folder is not None else []
    if as_json:
        print_object({**({} if folder is None else {"out": str(folder)}), **inspection.to_dict()})
    else:
        print(inspection)
        for path in saved:
            out.print(escape(str(path)))
    for name, reason in inspection.failures:
        report_failure(name, reason)
    if inspection.failures:
        taken = len(inspection.failures) + len(inspection.pictures)
        complain(f"{len(inspection.failures)} of {taken} pictures failed; the inspection is of the others")
        raise typer.Exit(SOME_FAILED)
