"""camapp evaluate: how good the maps are, measured on pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
from camapp.terminal import complain, out, print_object, print_table, report_failure, table_of, with_progress

if TYPE_CHECKING:
    from camapp.evaluation.report import Report


def evaluate(
    source: Annotated[list[str], typer.Argument(help="Folders, pictures, patterns, or lists of files (.txt).")],
    folder: Annotated[Path, typer.Option("--out", "-o", help="Folder for the report.")],
    boxes: Annotated[
        Path | None, typer.Option("--boxes", "-b", help="Where the objects are: JSON, COCO, VOC XML or a folder of it.")
    ] = None,
    model: ModelOption = "efficientnet_lite0",
    methods: Annotated[str, typer.Option(help="Methods, parted by commas; or all.")] = "gradcam",
    layers: Annotated[str | None, typer.Option(help="Target layers, parted by commas (camapp layers MODEL).")] = None,
    metrics: Annotated[str, typer.Option(help="Metrics, parted by commas; or cheap, or all.")] = "cheap",
    target: Annotated[
        str, typer.Option("--target", "-t", help="top (each picture's likeliest class), or one class.")
    ] = ("top"),
    limit: Annotated[int | None, typer.Option(help="Take only the first N pictures.")] = None,
    batch_size: Annotated[int, typer.Option(help="How many pictures are explained at once.")] = 8,
    seed: Annotated[int, typer.Option(help="For all that is random.")] = 0,
    fit: FitOption = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the report in --out.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as one JSON object.")] = False,
    device: DeviceOption = "auto",
    models: ModelsOption = None,
    random_weights: RandomOption = False,
) -> None:
    """Measure how good the maps of methods are on pictures, beside baselines that know nothing, and write a report."""
    from camapp.evaluation import evaluate as evaluate_maps
    from camapp.evaluation.report import check_folder
    from camapp.images.geometry import checked_fit

    check_folder(folder, overwrite=overwrite)
    how = None if fit is None else checked_fit(fit)
    loaded = load(model, models, device, random_weights)
    report = evaluate_maps(
        loaded,
        source,
        boxes=boxes,
        methods=split_names(methods),
        layers=split_names(layers) if layers else None,
        metrics=split_names(metrics),
        target=None if target == "top" else target,
        fit=how,
        batch_size=batch_size,
        limit=limit,
        seed=seed,
        progress=with_progress,
    )
    report.save(folder, overwrite=overwrite)
    if as_json:
        print_object({"out": str(folder), **report.to_dict()})
    else:
        _print_report(report, folder)
    for failure in report.failures:
        report_failure(failure.picture, failure.reason)
    if report.failures:
        failed, all_of_them = len(report.failures), len(report.failures) + len(report.pictures)
        complain(f"{failed} of {all_of_them} pictures failed; the report on the others is in {folder}")
        raise typer.Exit(SOME_FAILED)


def _print_report(report: Report, folder: Path) -> None:
    from camapp.evaluation.markdown import ARROWS, number

    metrics = {row.metric: row for row in report.summary}
    titles = [f"{row.metric} {ARROWS[row.direction]}" for row in metrics.values()]
    table = table_of("method", "layer", *titles, right=titles)
    found = {(row.kind, row.method, row.layer, row.metric): row.value for row in report.summary}
    for kind, method, layer in dict.fromkeys((row.kind, row.method, row.layer) for row in report.summary):
        name = f"{method} (baseline)" if kind == "baseline" else method
        table.add_row(name, layer, *(number(found[kind, method, layer, metric]) for metric in metrics))
    print_table(table)
    for note in report.notes:
        out.print(f"note: {escape(note)}", style="yellow")
    out.print(escape(str(folder / "report.md")))
