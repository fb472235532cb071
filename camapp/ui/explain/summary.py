"""Beside the heatmap: the likeliest classes as buttons, the facts of the run, and what to know about the result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr

from camapp.backbones.load import LoadedModel
from camapp.cam.methods import find_method
from camapp.ui.explain.choices import Explained
from camapp.ui.explain.recipes import address_of, command_of, python_of
from camapp.ui.frame.component import view
from camapp.ui.frame.words import percent, shape_text

_HERE = Path(__file__).parent


def summary(**options: Any) -> gr.HTML:
    """The component; its value is a dictionary made by ``summary_of``, or None. A class button triggers ``explain``."""
    return view(_HERE, "summary", html_template='<div class="summary"></div>', **options)


def summary_of(explained: Explained, token: str) -> dict[str, Any]:
    """What the summary shows: plain data, which the page writes as text and never as HTML.

    Args:
        explained: the result; of two classes the first is told.
        token: of the result, as the viewer has it.
    """
    explanation = explained.explanation
    first = explanation.classes[0]
    listed = list(explanation.predictions)
    listed += [one for one in explanation.classes if one.index not in {known.index for known in listed}]
    return {
        "token": token,
        "explained": first.index,
        "classes": [
            {"index": one.index, "label": one.label, "probability": one.probability, "text": percent(one.probability)}
            for one in listed
        ],
        "facts": _facts(explained),
        "warnings": [reason for reason in explanation.reasons if reason] + list(explanation.cautions),
        "notes": list(explanation.notes),
        "copies": [["Copy Python", python_of(explained)], ["Copy command", command_of(explained)]],
        "address": address_of(explained),
        "badge": f"{explanation.seconds:.2f} s",
        "checkable": not explanation.reasons[0],
    }


def done_text(explained: Explained) -> str:
    """The result in one sentence, for the status line."""
    explanation = explained.explanation
    blank = " The map is blank." if explanation.reasons[0] else ""
    first, *others = explanation.classes
    against = f" against {others[0].label}, {percent(others[0].probability)}" if others else ""
    return f"Done: {first.label}, {percent(first.probability)}{against}, in {explanation.seconds:.2f} s.{blank}"


def _facts(explained: Explained) -> list[list[str]]:
    explanation, model = explained.explanation, explained.model
    first, kind = explanation.classes[0], find_method(explanation.method)
    against = [["Against", f"{one.label} ({one.index}), {percent(one.probability)}"] for one in explanation.classes[1:]]
    rows, columns = explanation.raw.shape[1:]
    sizes = {layer.name: shape_text(layer.shape) for layer in explained.layers}
    size = sizes.get(explanation.layer, f"{rows} × {columns}")
    weights, sha256 = str(explanation.weights["source"]), explanation.weights["sha256"]
    return [
        ["Class", f"{first.label} ({first.index})"],
        ["Probability", percent(first.probability)],
        ["Logit", f"{first.logit:.3f}"],
        *against,
        ["Method", f"{kind.title}: {kind.cost}"],
        ["Layer", f"{explanation.layer} ({size})" if explanation.layer else "the whole network"],
        ["Raw values", f"{explanation.raw[0].min():.4g} to {explanation.raw[0].max():.4g}"],
        ["Fit", _fit_text(explained)],
        ["Model", model.card.title],
        ["Weights", f"{weights}, SHA-256 {sha256[:12]}…" if sha256 else weights],
        ["Picture", f"{explanation.picture.name}, {explanation.picture.width} × {explanation.picture.height}"],
        ["Time", f"{explanation.seconds:.2f} s on {device_text(model)}"],
    ]


def _fit_text(explained: Explained) -> str:
    geometry = explained.explanation.geometry
    width, height = geometry.model
    how = {"crop": "centre crop", "letterbox": "letterboxed", "stretch": "stretched"}[geometry.fit]
    seen = "all of the picture" if geometry.sees_all else "the dashed frame"
    return f"{how} to {width} × {height}: {seen} was seen"


def device_text(model: LoadedModel) -> str:
    """The device as people name it."""
    return str(model.device).upper().replace("CUDA", "GPU")
