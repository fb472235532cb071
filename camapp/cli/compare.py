"""camapp compare: several methods and layers on one picture, side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from camapp.cli.options import DeviceOption, FitOption, JsonOption, ModelOption, ModelsOption, RandomOption, load
from camapp.terminal import out, print_table, table_of

if TYPE_CHECKING:
    from camapp.comparison import Comparison

# The word for each method's own choice of a layer.
OWN = "own"
USUAL = ("gradcam", "fused", "gradcam++", "layercam")


def compare(
    picture: Annotated[str, typer.Argument(help="A picture file.")],
    method: Annotated[
        list[str] | None,
        typer.Option(help="Up to six methods (camapp methods lists them); repeatable. Four quick ones by default."),
    ] = None,
    layer: Annotated[
        list[str] | None,
        typer.Option(
            help="Up to three layers (camapp layers MODEL lists them), or own: each method's choice; repeatable."
        ),
    ] = None,
    target: Annotated[str | None, typer.Option("--target", "-t", help="Class name or index; the likeliest.")] = None,
    model: ModelOption = "efficientnet_lite0",
    folder: Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.")] = Path("camapp-out"),
    alpha: Annotated[float, typer.Option(help="Opacity of the heatmaps at their hottest, 0 to 1.")] = 0.7,
    colormap: Annotated[str, typer.Option(help="viridis, magma, inferno, cividis, gray, turbo or jet.")] = "viridis",
    deadline: Annotated[float | None, typer.Option(help="Seconds after which slow methods give up.")] = None,
    fit: FitOption = None,
    as_json: JsonOption = False,
    device: DeviceOption = "auto",
    models: ModelsOption = None,
    random_weights: RandomOption = False,
) -> None:
    """Compare methods and layers on one picture: overlays, a contact sheet, and how far the maps agree."""
    from camapp.comparison import compare_maps
    from camapp.images.geometry import checked_fit
    from camapp.images.render import checked_paint

    checked_paint(alpha, colormap)
    how = None if fit is None else checked_fit(fit)
    comparison = compare_maps(
        load(model, models, device, random_weights),
        picture,
        methods=method or USUAL,
        layers=[None if name == OWN else name for name in layer] if layer else None,
        targets=target,
        fit=how,
        deadline=deadline,
    )
    saved = comparison.save(folder, alpha=alpha, colormap=colormap)
    if as_json:
        print(json.dumps({**comparison.to_dict(), "files": [str(path) for path in saved.files]}, ensure_ascii=False))
        return
    out.print(f"{comparison.picture.name}: {comparison.target}", highlight=False, markup=False)
    _print_cells(comparison)
    out.print(f"-> {saved.sheet}", highlight=False, markup=False)


def _print_cells(comparison: Comparison) -> None:
    """Each cell with how far its map agrees with that of the first."""
    first = next(number for number, cell in enumerate(comparison.cells) if cell.explanation)
    table = table_of("map", "hottest at", "correlation", "overlap")
    for number, cell in enumerate(comparison.cells):
        if cell.explanation is None:
            table.add_row(cell.title, cell.reason or "", "", "")
            continue
        peak = cell.explanation.peak()
        where = f"x {peak[0]}, y {peak[1]}" if peak else "blank"
        numbers = (comparison.correlation[number, first], comparison.overlap[number, first])
        table.add_row(cell.title, where, *("" if value != value else f"{value:.2f}" for value in numbers))
    print_table(table)
