"""Measures methods on pictures: what is asked for in, a report out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from camapp.backbones.load import LoadedModel
from camapp.cam.metrics import BASELINES
from camapp.errors import DecodeError, UsageError
from camapp.evaluation.box_files import read_boxes
from camapp.evaluation.boxes import Annotations
from camapp.evaluation.choices import chosen_baselines, chosen_layers, chosen_methods, chosen_metrics
from camapp.evaluation.measurement import Measurement, Progress
from camapp.evaluation.report import Report
from camapp.images.geometry import Fit, checked_fit
from camapp.loading import load_model
from camapp.sources.pictures import Source, check_count, find_pictures
from camapp.version import versions


def evaluate(
    model: str | LoadedModel,
    source: Source,
    *,
    boxes: str | Path | Annotations | None = None,
    methods: str | Sequence[str] = ("gradcam",),
    layers: str | Sequence[str] | None = None,
    metrics: str | Sequence[str] | None = None,
    baselines: Sequence[str] = BASELINES,
    target: str | int | None = None,
    fit: Fit | None = None,
    batch_size: int = 8,
    limit: int | None = None,
    seed: int = 0,
    progress: Progress = iter,
) -> Report:
    """Measure how good the maps of methods are, on your pictures, beside baselines that know nothing.

    Args:
        model: the name of a model card, or a ``LoadedModel``.
        source: a folder, a picture, a pattern, a list of files, or a sequence of these; see ``find_pictures``.
        boxes: where the objects are, for the metrics of localisation; see ``read_boxes``.
        methods: names of methods; ``"all"`` for every one.
        layers: the target layers, each tried with each method; the model's recommended one by default.
        metrics: names of metrics, ``"cheap"`` or ``"all"``. By default the cheap ones. Of a group, those that need what
            is not given are left out with a note.
        baselines: maps measured beside those of the methods.
        target: the class to explain in every picture, by name or index; each picture's likeliest by default.
        fit: "crop", "letterbox" or "stretch"; the model card's own way by default.
        batch_size: how many pictures are explained at once.
        limit: take only the first so many pictures.
        seed: for all that is random: baselines, methods and metrics.
        progress: wraps the pictures' names, to show how far it is.

    Returns:
        The report. Pictures that cannot be read are in its ``failures``, methods that refuse a picture in its values.

    Raises:
        UsageError: no such source, method, metric or baseline, or a metric that needs what is not given.
        AnnotationError: boxes that cannot be read.
        DecodeError: not one of the pictures can be read.
        ModelError, LayerError, TargetError: a model, layer or class that does not exist.

    Example:
        >>> report = camapp.evaluate("efficientnet_lite0", "photos", boxes="photos.json", metrics=["energy", "road"])
        >>> report.save("report")
    """
    loaded = load_model(model) if isinstance(model, str) else model
    if not isinstance(loaded, LoadedModel):
        raise UsageError(
            f"model is a {type(model).__name__}; needed is a card's name or a LoadedModel, such as camapp.wrap_model "
            "makes of any nn.Module."
        )
    check_count("batch_size", batch_size, 1)
    check_count("seed", seed, 0)
    how = None if fit is None else checked_fit(fit)
    index = None if target is None else loaded.class_index(target)
    names = chosen_methods(methods)
    keys = chosen_layers(loaded, layers)
    pictures = find_pictures(source, limit)
    annotations = boxes if isinstance(boxes, Annotations) or boxes is None else read_boxes(boxes)
    kinds, notes = chosen_metrics(metrics, annotations is not None)
    run = Measurement(loaded, index, how, annotations.assign(pictures) if annotations else None, seed)
    run.add_cells(names, keys, chosen_baselines(baselines), kinds)
    run.measure(pictures, batch_size, progress)
    if not run.measured:
        first = f" The first, {run.failures[0].picture}: {run.failures[0].reason}"
        raise DecodeError(f"None of {len(pictures)} picture(s) could be evaluated.{first}")
    return Report(
        model=loaded.name,
        weights={
            "source": loaded.weights.source,
            "sha256": loaded.weights.sha256,
            "random": loaded.weights.random,
        },
        settings={
            "methods": names,
            "layers": [key or "recommended" for key in keys],
            "metrics": [kind.name for kind in kinds],
            "target": "each picture's likeliest class" if index is None else loaded.label(index),
            "boxes": annotations.path.name if annotations else None,
            "fit": how or loaded.card.preprocessing.fit,
            "input": list(loaded.card.preprocessing.size),
            "batch_size": batch_size,
            "limit": limit,
            "seed": seed,
            "device": str(loaded.device),
        },
        versions=versions(),
        pictures=tuple(run.measured),
        failures=tuple(run.failures),
        values=tuple(run.values),
        summary=tuple(row for cell in run.cells for row in cell.summary()),
        curves=tuple(curve for cell in run.cells for curve in cell.curves()),
        metrics={one.name: one.summary() for one in kinds},
        examples=tuple(run.examples),
        notes=(*notes, *(annotations.notes if annotations else ()), *run.notes()),
    )
