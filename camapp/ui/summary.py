"""Beside the heatmap: the likeliest classes as buttons, the facts of the run, and what to know about the result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr

from camapp.backbones.layers import LayerInfo
from camapp.backbones.load import LoadedModel
from camapp.cam.methods import find_method
from camapp.explanation import Explanation

_HERE = Path(__file__).parent


def summary(**options: Any) -> gr.HTML:
    """The component; its value is a dictionary made by ``summary_of``, or None. A class button triggers ``explain``."""
    return gr.HTML(
        value=None,
        html_template='<div class="summary"></div>',
        css_template=(_HERE / "summary.css").read_text(encoding="utf-8"),
        js_on_load=(_HERE / "summary.js").read_text(encoding="utf-8"),
        apply_default_css=False,
        **options,
    )


def summary_of(explanation: Explanation, model: LoadedModel, layers: list[LayerInfo], token: str) -> dict[str, Any]:
    """What the summary shows: plain data, which the page writes as text and never as HTML.

    Args:
        explanation: the result; its first class is told.
        model: what it was explained with.
        layers: the model's layers, for the shape of the one explained.
        token: of the result, as the viewer has it.
    """
    explained = explanation.classes[0]
    listed = list(explanation.predictions)
    if explained.index not in {one.index for one in listed}:
        listed.append(explained)
    rows, columns = explanation.raw.shape[1:]
    size = next((shape_text(layer) for layer in layers if layer.name == explanation.layer), f"{rows} × {columns}")
    weights = str(explanation.weights["source"])
    sha256 = explanation.weights["sha256"]
    return {
        "token": token,
        "explained": explained.index,
        "classes": [
            {"index": one.index, "label": one.label, "probability": one.probability, "text": percent(one.probability)}
            for one in listed
        ],
        "facts": [
            ["Class", f"{explained.label} ({explained.index})"],
            ["Probability", percent(explained.probability)],
            ["Logit", f"{explained.logit:.3f}"],
            ["Method", find_method(explanation.method).title],
            ["Layer", f"{explanation.layer} ({size})" if explanation.layer else "the whole network"],
            ["Model", model.card.title],
            ["Weights", f"{weights}, SHA-256 {sha256[:12]}…" if sha256 else weights],
            ["Picture", f"{explanation.picture.name}, {explanation.picture.width} × {explanation.picture.height}"],
            ["Time", f"{explanation.seconds:.2f} s on {device_text(model)}"],
        ],
        "warnings": [reason for reason in explanation.reasons if reason],
        "notes": list(explanation.notes),
    }


def shape_text(layer: LayerInfo) -> str:
    """A layer's output shape as people read it."""
    return " × ".join(str(side) for side in layer.shape or ())


def percent(probability: float) -> str:
    """A probability as a percentage that does not pretend to be 0 or 100."""
    if 0 < probability < 0.001:
        return "< 0.1%"
    if 0.999 < probability < 1:
        return "> 99.9%"
    return f"{probability:.1%}"


def device_text(model: LoadedModel) -> str:
    """The device as people name it."""
    return str(model.device).upper().replace("CUDA", "GPU")
