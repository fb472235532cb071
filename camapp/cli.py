"""The command line: camapp explain | models | layers | serve."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from camapp.errors import CamappError, DecodeError, UsageError, WeightsError
from camapp.terminal import (
    as_object,
    complain,
    err,
    out,
    print_explanation,
    print_object,
    print_table,
    report_failure,
    table_of,
    with_progress,
)
from camapp.version import VERSION

if TYPE_CHECKING:
    from camapp.images.decode import Picture

FAILED, USAGE, SOME_FAILED = 1, 2, 3

app = typer.Typer(
    help="See where a vision model looks: heatmaps of classes over pictures.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

ModelOption = Annotated[str, typer.Option("--model", "-m", help="A model card's name, or a card's .toml file.")]
ModelsOption = Annotated[Path | None, typer.Option("--models", help="Folder of your own model cards (CAMAPP_MODELS).")]
RandomOption = Annotated[bool, typer.Option("--random-weights", help="Run without weights; the results mean nothing.")]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def main() -> None:
    """Run the command line. Errors are one line; exit codes 1 failed, 2 usage, 3 some inputs failed, 130 Ctrl-C."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names of files need not be Unicode, nor the terminal speak it
            stream.reconfigure(errors="backslashreplace")
    try:
        app(prog_name="camapp")
    except CamappError as error:
        complain(str(error))
        sys.exit(FAILED if isinstance(error, WeightsError) else USAGE)
    except OSError as error:
        complain(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}")
        sys.exit(FAILED)


def _print_version(asked: bool) -> None:
    if asked:
        out.print(f"camapp {VERSION}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    pass


@app.command()
def explain(
    pictures: Annotated[list[str], typer.Argument(help="Picture files; - reads one from standard input.")],
    model: ModelOption = "efficientnet_lite0",
    method: Annotated[str, typer.Option(help="How the map is made.")] = "gradcam",
    layer: Annotated[str | None, typer.Option(help="Target layer (camapp layers MODEL lists them).")] = None,
    target: Annotated[list[str] | None, typer.Option("--target", "-t", help="Class name or index; repeatable.")] = None,
    top_k: Annotated[int | None, typer.Option("--top-k", "-k", help="Explain the K likeliest classes.")] = None,
    folder: Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.")] = Path("camapp-out"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a picture.")] = False,
    alpha: Annotated[float, typer.Option(help="Opacity of the heatmap at its hottest, 0 to 1.")] = 0.7,
    colormap: Annotated[str, typer.Option(help="viridis, magma, inferno, cividis, gray, turbo or jet.")] = "viridis",
    hide_below: Annotated[float, typer.Option(help="Show the picture where the map is below this, 0 to 1.")] = 0.0,
    fit: Annotated[str | None, typer.Option(help="crop, letterbox or stretch; the model's own way by default.")] = None,
    device: DeviceOption = "auto",
    models: ModelsOption = None,
    random_weights: RandomOption = False,
) -> None:
    """Write heatmaps of pictures: overlay, 16-bit heatmap, values and facts for each explained class."""
    from camapp.cam.methods import find_method
    from camapp.cam.targets import TopClasses
    from camapp.explainer import explain as explain_picture
    from camapp.files import safe_stem, unused_stem
    from camapp.images.geometry import checked_fit
    from camapp.images.render import checked_paint

    # What can be wrong about the options is found before the first picture.
    if target and top_k is not None:
        raise UsageError("--target and --top-k exclude each other: give the classes, or how many of the likeliest.")
    checked_paint(alpha, colormap, hide_below)
    how = None if fit is None else checked_fit(fit)
    loaded = _load(model, models, device, random_weights)
    targets = [loaded.class_index(name) for name in target] if target else None
    likeliest = TopClasses(1 if top_k is None else top_k)
    find_method(method)(loaded, layer)
    used: set[str] = set()
    failed = 0
    for name in with_progress(pictures):
        try:
            picture = _decode(name)
        except DecodeError as error:
            failed += 1
            report_failure(name, error, as_json)
            continue
        explanation = explain_picture(
            loaded, picture, targets=targets or likeliest, method=method, layer=layer, fit=how
        )
        stem = unused_stem(safe_stem(picture.name), used)
        saved = explanation.save(folder, stem=stem, alpha=alpha, colormap=colormap, hide_below=hide_below)
        if as_json:
            print_object(as_object(name, explanation, saved))
        else:
            print_explanation(name, explanation, saved)
    if failed:
        rest = f"; the results for the others are in {folder}" if failed < len(pictures) else ""
        complain(f"{failed} of {len(pictures)} pictures failed{rest}")
        raise typer.Exit(SOME_FAILED)


@app.command("models")
def list_models(models: ModelsOption = None, as_json: JsonOption = False) -> None:
    """List the models: input size, source, and whether the weights are on this machine."""
    from camapp.backbones.cards import list_cards
    from camapp.backbones.weights import locate

    cards = [(card, locate(card)) for card in list_cards(models)]
    if as_json:
        rows = [
            {
                "name": card.name,
                "title": card.title,
                "architecture": card.architecture,
                "input": list(card.preprocessing.size),
                "classes": card.labels.count,
                "layer": card.layer,
                "source": card.weights.kind,
                "megabytes": card.weights.megabytes,
                "here": status.here,
                "path": str(status.path),
                "how": None if status.here else status.how,
            }
            for card, status in cards
        ]
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    table = table_of("model", "what it is", "input", "MiB", "weights from", "here")
    for card, status in cards:
        size = "x".join(map(str, card.preprocessing.size))
        megabytes = f"{card.weights.megabytes:.0f}" if card.weights.megabytes else ""
        table.add_row(card.name, card.title, size, megabytes, card.weights.kind, "yes" if status.here else "no")
    print_table(table)
    missing = [card.name for card, status in cards if not status.here]
    if missing:
        out.print("Weights that are not here are fetched at the first use; camapp models --json says from where.")


@app.command("layers")
def list_layers_of(
    model: Annotated[str, typer.Argument(help="A model card's name, or a card's .toml file.")],
    maps: Annotated[bool, typer.Option("--maps", help="Only layers that give a map, which can be explained.")] = False,
    models: ModelsOption = None,
    as_json: JsonOption = False,
) -> None:
    """List a model's layers with their shapes, and mark the one to explain by default."""
    from camapp.backbones.layers import list_layers
    from camapp.backbones.load import load_model

    loaded = load_model(model, random_weights=True, device="cpu", models=models)  # shapes need no weights
    layers = [one for one in list_layers(loaded) if one.worth_explaining or not maps]
    if as_json:
        print(json.dumps([vars(one) for one in layers], indent=2))
        return
    table = table_of("layer", "class", "shape", "map", "parameters", "")
    for one in layers:
        shape = "x".join(map(str, one.shape)) if one.shape else ("" if one.calls else "never runs")
        grid = "x".join(map(str, one.grid)) if one.grid else ""
        mark = "<- recommended" if one.recommended else ""
        table.add_row(one.name, one.kind, shape, grid, f"{one.parameters:,}" if one.parameters else "", mark)
    print_table(table)


@app.command()
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on; 127.0.0.1 is this machine only.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.", min=0, max=65535)] = 7860,
    model: ModelOption = "efficientnet_lite0",
    models: ModelsOption = None,
    device: DeviceOption = "auto",
    random_weights: RandomOption = False,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Serve the web page."""
    from camapp.ui.app import serve as serve_page

    serve_page(
        host,
        port,
        model=model,
        models=models,
        device=device,
        random_weights=random_weights,
        open_browser=open_browser,
    )


def _load(model: str, models: Path | None, device: str, random_weights: bool) -> Any:
    from camapp.backbones.load import load_model

    loaded = load_model(model, models=models, device=device, random_weights=random_weights)
    if random_weights:
        err.print("[bold white on red] RANDOM WEIGHTS [/] predictions and heatmaps mean nothing")
    return loaded


def _decode(name: str) -> Picture:
    from camapp.images.decode import decode

    if name != "-":
        return decode(name)
    if sys.stdin is None:
        raise DecodeError("Standard input is closed. Pipe a picture in, or name a file.")
    return decode(sys.stdin.buffer, name="stdin")
