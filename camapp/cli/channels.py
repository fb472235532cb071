"""camapp channels: what the channels of a layer show of one picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.markup import escape

from camapp.cli.options import DeviceOption, FitOption, JsonOption, ModelOption, ModelsOption, RandomOption, load
from camapp.terminal import out, print_object, print_table, table_of


def save_channels(
    picture: Annotated[str, typer.Argument(help="A picture file.")],
    layer: Annotated[
        str | None, typer.Argument(help="A layer that gives a map (camapp layers MODEL --maps); the recommended one.")
    ] = None,
    model: ModelOption = "efficientnet_lite0",
    ranking: Annotated[
        Literal["mean", "max", "gradient"],
        typer.Option(help="By mean or largest activation, or by gradient times activation, which a class needs."),
    ] = "mean",
    target: Annotated[
        str | None, typer.Option("--target", "-t", help="Of --ranking gradient: class name or index; the likeliest.")
    ] = None,
    most: Annotated[int, typer.Option(min=1, help="How many channels are painted and listed.")] = 64,
    scale: Annotated[
        Literal["channel", "common"], typer.Option(help="Each channel on a scale of its own, or one for all.")
    ] = "channel",
    folder: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for channels.npy, .png, .csv and .json.")
    ] = None,
    fit: FitOption = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the channels in --out.")] = False,
    as_json: JsonOption = False,
    device: DeviceOption = "auto",
    models: ModelsOption = None,
    random_weights: RandomOption = False,
) -> None:
    """Rank the channels of a layer for one picture, and save their maps."""
    from camapp.channels import channel_maps
    from camapp.channels.saving import FILES
    from camapp.files import check_report_folder
    from camapp.hooks.report.table import number, percent
    from camapp.images.geometry import checked_fit

    if folder is not None:
        check_report_folder(folder, FILES, overwrite=overwrite)
    how = None if fit is None else checked_fit(fit)
    loaded = load(model, models, device, random_weights)
    maps = channel_maps(loaded, picture, layer, ranking=ranking, target=target, fit=how)
    saved = maps.save(folder, most=most, scale=scale, overwrite=overwrite) if folder is not None else []
    if as_json:
        print_object({**({} if folder is None else {"out": str(folder)}), **maps.to_dict(most)})
        return
    facts = maps.to_dict(most)
    shape = "x".join(map(str, maps.values.shape))
    of_class = "" if maps.target is None else f" for {maps.target}"
    out.print(f"[bold]{escape(maps.layer)}[/] {shape}, by {maps.ranking}{escape(of_class)}")
    dead = percent(len(maps.dead) / len(maps))
    out.print(f"{len(maps.dead)} channels dead ({dead}), {percent(maps.zero_share)} zeros, {maps.nonfinite} NaN or Inf")
    columns = ("channel", maps.ranking, "lowest", "highest")
    table = table_of(*columns, right=columns)
    for row in facts["channels"]:
        table.add_row(str(row["channel"]), *(number(float(row[name])) for name in ("score", "lowest", "highest")))
    print_table(table)
    for path in saved:
        out.print(escape(str(path)))
