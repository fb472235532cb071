"""camapp explain: heatmaps of pictures."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from camapp.cli.options import SOME_FAILED, DeviceOption, FitOption, ModelOption, ModelsOption, RandomOption, load
from camapp.errors import DecodeError, StoppedError, UsageError
from camapp.terminal import (
    as_object,
    complain,
    print_contrast,
    print_explanation,
    print_object,
    report_failure,
    with_progress,
)

if TYPE_CHECKING:
    from camapp.images.decode import Picture


def explain(
    pictures: Annotated[list[str], typer.Argument(help="Picture files; - reads one from standard input.")],
    model: ModelOption = "efficientnet_lite0",
    method: Annotated[str, typer.Option(help="How the map is made (camapp methods lists them).")] = "gradcam",
    layer: Annotated[
        list[str] | None, typer.Option(help="Target layer (camapp layers MODEL lists them); repeatable, then fused.")
    ] = None,
    target: Annotated[list[str] | None, typer.Option("--target", "-t", help="Class name or index; repeatable.")] = None,
    top_k: Annotated[int | None, typer.Option("--top-k", "-k", help="Explain the K likeliest classes.")] = None,
    folder: Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.")] = Path("camapp-out"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a picture.")] = False,
    alpha: Annotated[float, typer.Option(help="Opacity of the heatmap at its hottest, 0 to 1.")] = 0.7,
    colormap: Annotated[str, typer.Option(help="viridis, magma, inferno, cividis, gray, turbo or jet.")] = "viridis",
    sign: Annotated[
        str, typer.Option(help="positive: what supports the class; negative: what opposes it.")
    ] = "positive",
    normalize: Annotated[str, typer.Option(help="minmax, max or shared (one scale for all classes).")] = "minmax",
    deadline: Annotated[
        float | None, typer.Option(help="Seconds a picture after which a slow method gives up.")
    ] = None,
    hide_below: Annotated[float, typer.Option(help="Show the picture where the map is below this, 0 to 1.")] = 0.0,
    contrast: Annotated[
        bool, typer.Option("--contrast", help="Of two classes: also what sets the first apart from the second.")
    ] = False,
    fit: FitOption = None,
    device: DeviceOption = "auto",
    models: ModelsOption = None,
    random_weights: RandomOption = False,
) -> None:
    """Write heatmaps of pictures: overlay, 16-bit heatmap, values and facts for each explained class."""
    from camapp.cam.methods import find_method
    from camapp.cam.targets import TopClasses
    from camapp.contrast import Contrast
    from camapp.explainer import checked_paintable
    from camapp.explainer import explain as explain_picture
    from camapp.files import safe_stem, unused_stem
    from camapp.images.geometry import checked_fit
    from camapp.images.render import checked_paint

    # What can be wrong about the options is found before the first picture.
    if target and top_k is not None:
        raise UsageError("--target and --top-k exclude each other: give the classes, or how many of the likeliest.")
    if contrast and len(target or ()) != 2 and (target or top_k != 2):
        raise UsageError("--contrast sets two classes apart: give two, --target A --target B, or --top-k 2.")
    checked_paint(alpha, colormap, hide_below)
    look = checked_paintable(sign, normalize)
    how = None if fit is None else checked_fit(fit)
    loaded = load(model, models, device, random_weights)
    targets = [loaded.class_index(name) for name in target] if target else None
    likeliest = TopClasses(1 if top_k is None else top_k)
    engine = find_method(method)(loaded, layer or None)
    used: set[str] = set()
    failed = 0
    for name in with_progress(pictures):
        try:
            picture = _decode(name)
        except DecodeError as error:
            failed += 1
            report_failure(name, error, as_json)
            continue
        try:
            explanation = explain_picture(
                loaded, picture, targets=targets or likeliest, method=engine, fit=how, deadline=deadline, **look
            )
        except StoppedError as error:
            failed += 1
            report_failure(name, error, as_json)
            continue
        stem = unused_stem(safe_stem(picture.name), used)
        saved = explanation.save(folder, stem=stem, alpha=alpha, colormap=colormap, hide_below=hide_below)
        both = Contrast(explanation) if contrast else None
        apart = None if both is None else both.save(folder, stem=stem, alpha=alpha, hide_below=hide_below)
        if as_json:
            print_object(as_object(name, explanation, saved, apart))
        else:
            print_explanation(name, explanation, saved)
            if both is not None and apart is not None:
                print_contrast(both, apart)
    if failed:
        rest = f"; the results for the others are in {folder}" if failed < len(pictures) else ""
        complain(f"{failed} of {len(pictures)} pictures failed{rest}")
        raise typer.Exit(SOME_FAILED)


def _decode(name: str) -> Picture:
    from camapp.images.decode import decode

    if name != "-":
        return decode(name)
    if sys.stdin is None:
        raise DecodeError("Standard input is closed. Pipe a picture in, or name a file.")
    return decode(sys.stdin.buffer, name="stdin")
