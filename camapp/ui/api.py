"""The one way from choices that nobody vouches for to an explanation, and the public API event that takes it."""

from __future__ import annotations

import json
from typing import Any

import gradio as gr

from camapp.backbones.layers import LayerInfo
from camapp.backbones.load import LoadedModel
from camapp.cam.methods import find_method
from camapp.errors import UsageError
from camapp.explainer import explain
from camapp.explanation import Explanation
from camapp.ui.environment import new_result_folder
from camapp.ui.messages import in_words
from camapp.ui.models import ModelPool
from camapp.ui.uploads import picture_input

# gr.Dropdown takes None for "nothing chosen"
TOP_PREDICTION = -1

# Seconds after which a method that runs the model many times gives up, so that others get their turn.
DEADLINE = 60.0

# One job at a time on the models, whichever event it comes from.
MODEL_QUEUE: dict[str, Any] = {"concurrency_id": "model", "concurrency_limit": 1}


def explain_checked(
    pool: ModelPool, picture: str | None, model: str, layer: str | None, method: str, target: int | str
) -> tuple[Explanation, LoadedModel, list[LayerInfo]]:
    """Explain one class, of choices that nobody vouches for: the one way that page and API take.

    Args:
        pool: the models on offer.
        picture: the path of an upload.
        model: one of the models on offer.
        layer: one of its layers; None or empty for the recommended one.
        method: one of ``METHODS``.
        target: class index or name; -1 or empty for the top prediction.

    Raises:
        CamappError: what is wrong with any of them.
    """
    if not picture:
        raise UsageError("There is no picture yet. Upload one, paste one, or pick a sample.")
    kind = find_method(method)
    loaded, layers = pool.load(model), pool.layers(model)
    top = target in (TOP_PREDICTION, str(TOP_PREDICTION), "", None)
    chosen = None if top else loaded.class_index(target)
    # The page always sends a layer: the recommended one means the method's own choice, which may be several.
    best = any(one.recommended and one.name == layer for one in layers)
    own = best or not kind.takes_layer
    explanation = explain(
        loaded, picture, targets=chosen, method=kind.name, layer=None if own else layer or None, deadline=DEADLINE
    )
    return explanation, loaded, layers


def add_api(pool: ModelPool) -> None:
    """The public API event ``/explain``, inside the open ``gr.Blocks``; its controls are not shown."""

    def explain_picture(
        picture: str | None, model: str, layer: str, method: str, target: str
    ) -> tuple[str, str, str, dict[str, Any]]:
        """Show where a model looks in one picture.

        Args:
            picture: the picture file.
            model: a model's name, such as "efficientnet_lite0".
            layer: a layer's name; empty for the model's recommended one.
            method: a method's name, such as "gradcam".
            target: the class to explain, by name or index; empty for the top prediction.

        Returns:
            The overlay (PNG), the heatmap (16-bit PNG) and its values (.npy, float32), all at the picture's own size;
            and a summary: predictions, probability, logit, layer, crop, notes, versions.
        """
        with in_words():
            explanation, _, _ = explain_checked(pool, picture, model, layer, method, target)
            saved = explanation.save(new_result_folder())
            facts = json.loads(json.dumps(explanation.to_dict(saved)))
        return str(saved[0].overlay), str(saved[0].heatmap), str(saved[0].values), facts

    with gr.Row(visible=False):
        inputs = [
            picture_input(label="Picture"),
            gr.Textbox(pool.default, label="Model"),
            gr.Textbox("", label="Layer"),
            gr.Textbox("gradcam", label="Method"),
            gr.Textbox("", label="Class"),
        ]
        outputs = [
            gr.File(label="Overlay"),
            gr.File(label="Heatmap"),
            gr.File(label="Values"),
            gr.JSON(label="Summary"),
        ]
        gr.Button("Explain").click(explain_picture, inputs, outputs, api_name="explain", **MODEL_QUEUE)
