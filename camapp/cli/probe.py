"""camapp probe: teach a backbone your own classes, or find the backbone and layer that tell them best."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from camapp.cli.options import (
    SOME_FAILED,
    BatchOption,
    DeviceOption,
    FitOption,
    ModelsOption,
    PoolOption,
    RandomOption,
    WorkersOption,
    load,
    split_names,
)
from camapp.errors import UsageError
from camapp.files import check_report_folder
from camapp.terminal import complain, out, percent, print_object, print_table, report_failure, table_of, with_progress

if TYPE_CHECKING:
    from camapp.backbones.load import LoadedModel
    from camapp.features.table import FeatureTable
    from camapp.transfer.comparison import FeatureComparison
    from camapp.transfer.training import TrainedProbe


def probe(
    train: Annotated[
        str,
        typer.Argument(
            help="A folder with one subfolder a class, a table (.csv: path,label), or features taken before."
        ),
    ],
    test: Annotated[
        str | None, typer.Option(help="The same, of pictures kept apart; else a share of TRAIN is.")
    ] = None,
    file: Annotated[Path | None, typer.Option("--out", "-o", help="Save the classifier: NAME.camapp.")] = None,
    report: Annotated[Path | None, typer.Option(help="Folder for the report: per class, confusion, mistakes.")] = None,
    model: Annotated[str, typer.Option("--model", "-m", help="The backbone; several, parted by commas, compare.")] = (
        "efficientnet_lite0"
    ),
    layers: Annotated[str, typer.Option(help="Layers, parted by commas; their features are joined.")] = "penultimate",
    pool: PoolOption = "auto",
    normalize: Annotated[bool, typer.Option("--normalize", help="Scale each picture's features to length 1.")] = False,
    kind: Annotated[str, typer.Option(help="linear, ridge or knn.")] = "linear",
    compare: Annotated[
        bool, typer.Option("--compare", help="Train one probe for each layer and backbone, and print a table.")
    ] = False,
    test_share: Annotated[float, typer.Option(help="Of TRAIN, where there is no --test; 0 for none.")] = 0.25,
    seed: Annotated[int, typer.Option(help="Of the split and the cross-validation.")] = 0,
    batch_size: BatchOption = 32,
    workers: WorkersOption = None,
    fit: FitOption = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what --out and --report name.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as one JSON object.")] = False,
    device: DeviceOption = "auto",
    models: ModelsOption = None,
    random_weights: RandomOption = False,
) -> None:
    """Train a classifier of your own classes on the features of a frozen backbone, and see how well it tells them."""
    from camapp.images.geometry import checked_fit

    backbones = split_names(model)
    options: dict[str, Any] = {
        "layers": split_names(layers),
        "pool": pool,
        "normalize": normalize,
        "kind": kind,
        "test_share": test_share,
        "seed": seed,
        "fit": None if fit is None else checked_fit(fit),
        "batch_size": batch_size,
        "workers": workers,
        "progress": with_progress,
    }
    failures: tuple[tuple[str, str], ...]
    if compare or len(backbones) > 1:
        if file is not None or report is not None:
            raise UsageError("--out and --report belong to one classifier; a comparison of several has none.")
        from camapp.transfer import compare_features

        loaded = [load(name, models, device, random_weights) for name in backbones]
        comparison = compare_features(loaded, train, test, **options)
        _print_comparison(comparison, as_json)
        failures = comparison.failures
    else:
        if report is not None and test is None and test_share == 0:
            raise UsageError("--report needs pictures kept apart: give --test, or a --test-share above 0.")
        _check_targets(file, report, overwrite)
        backbone = load(backbones[0], models, device, random_weights)
        trained = _train(backbone, (_taken(train), test and _taken(test)), options, file, report, overwrite)
        _print_trained(trained, file, report, as_json)
        failures = trained.failures
    for name, reason in failures:
        report_failure(name, reason)
    if failures:
        complain(f"{len(failures)} pictures failed and were left out")
        raise typer.Exit(SOME_FAILED)


def _taken(source: str) -> str | FeatureTable:
    """Features that were taken before, if there are any at the path; else the path, of pictures."""
    from camapp.features.formats import holds_features, load_features

    return load_features(source) if holds_features(source) else source


def _check_targets(file: Path | None, report: Path | None, overwrite: bool) -> None:
    """Make sure that the results can be written, before minutes are spent on them."""
    from camapp.features.probe.report import FILES
    from camapp.features.saved import check_probe_path

    if file is not None:
        check_probe_path(file, overwrite=overwrite)
    if report is not None:
        check_report_folder(report, FILES, overwrite=overwrite)


def _train(
    backbone: LoadedModel,
    sources: tuple[str | FeatureTable, str | FeatureTable | None],
    options: dict[str, Any],
    file: Path | None,
    report: Path | None,
    overwrite: bool,
) -> TrainedProbe:
    from camapp.features.saved import check_savable
    from camapp.transfer import train_probe

    if file is not None:
        check_savable(backbone)
    trained = train_probe(backbone, *sources, **options)
    if file is not None:
        trained.save(file, overwrite=overwrite)
    if report is not None and trained.report is not None:
        trained.report.save(report, overwrite=overwrite)
    return trained


def _print_trained(trained: TrainedProbe, file: Path | None, report: Path | None, as_json: bool) -> None:
    found, probe = trained.report, trained.probe
    if as_json:
        print_object(
            {
                "out": None if file is None else str(file),
                "model": trained.backbone.name,
                "layers": list(trained.settings.layers),
                "classes": list(probe.classes),
                "trained_on": len(trained.trained_on),
                "settings": dict(probe.settings),
                "report": None if found is None else found.to_dict(),
                "failures": [{"input": name, "error": reason} for name, reason in trained.failures],
            }
        )
        return
    if found is not None:
        table = table_of(
            "class", "precision", "recall", "F1", "pictures", right=("precision", "recall", "F1", "pictures")
        )
        for one in found.measures:
            table.add_row(one.name, percent(one.precision), percent(one.recall), percent(one.f1), str(one.support))
        print_table(table)
        out.print(
            f"[bold]{percent(found.accuracy)}[/] of {found.pictures} pictures right "
            f"(balanced accuracy {percent(found.balanced_accuracy)}), trained on {len(trained.trained_on)}"
        )
    for note in probe.notes:
        out.print(f"note: {escape(note)}", style="yellow")
    if report is not None:
        out.print(escape(str(report / "report.md")))
    if file is not None:
        out.print(escape(f"{file}   (camapp explain PICTURE --model {file})"))


def _print_comparison(comparison: FeatureComparison, as_json: bool) -> None:
    if as_json:
        print_object(comparison.to_dict())
        return
    columns = ("size", "accuracy", "balanced", "ms/picture", "s to fit")
    table = table_of("model", "layer", "pool", *columns, right=columns)
    for row in comparison.rows:
        table.add_row(
            row.model,
            row.layer,
            row.pool,
            str(row.size),
            percent(row.accuracy),
            percent(row.balanced_accuracy),
            f"{row.milliseconds:.1f}",
            f"{row.seconds:.1f}",
        )
    print_table(table)
    out.print(f"{comparison.kind} probes, trained on {comparison.trained} pictures, tried on {comparison.tested}")
