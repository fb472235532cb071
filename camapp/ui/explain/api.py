"""The public API event ``/explain``: the page's explanation, for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TypeAlias

import gradio as gr

from camapp.ui.environment import new_result_folder
from camapp.ui.explain.choices import OWN_FIT, Choices, explain_choices
from camapp.ui.explain.downloads import write_maps
from camapp.ui.frame.messages import in_words, owner_of, text_of
from camapp.ui.frame.models import ModelPool
from camapp.ui.frame.scheduler import PROGRAMS_TOLD_EVERY, Scheduler
from camapp.ui.frame.selection import layer_names
from camapp.ui.frame.uploads import picture_input

Answer: TypeAlias = tuple[str | None, str | None, str | None, dict[str, Any]]


def add_api(pool: ModelPool, work: Scheduler) -> None:
    """The public API event ``/explain``, inside the open ``gr.Blocks``; its controls are not shown."""

    def explain_picture(
        picture: str | None,
        model: str,
        layer: str,
        method: str,
        target: str,
        compare_with: str,
        fit: str,
        request: gr.Request,
    ) -> Iterator[Answer]:
        """Show where a model looks in one picture.

        Args:
            picture: the picture file.
            model: a model's name, such as "efficientnet_lite0".
            layer: a layer's name, or several with commas between; empty for the model's recommended one.
            method: a method's name, such as "gradcam".
            target: the class to explain, by name or index; empty for the top prediction.
            compare_with: another class; the files are then of what sets the two apart, A - B. Empty for none.
            fit: "crop", "letterbox" or "stretch"; "model" for the model's own way.
            request: who asks, for the fairness of the queue.

        Returns:
            The overlay (PNG), the heatmap (16-bit PNG) and its values (.npy, float32), all at the picture's own size,
            0 to 1, or -1 to 1 (as 0 to 65535) for A - B; and a summary: predictions, probability, logit, layer, crop,
            notes, versions. While it runs there are no files, and the summary says how far it is.
        """
        with in_words():
            layers = layer_names(text_of(layer, "layer"))
            named = [text_of(value, name) for value, name in ((model, "model"), (method, "method"))]
            classes = [text_of(value, name) for value, name in ((target, "target"), (compare_with, "compare_with"))]
            choices = Choices(
                picture, named[0], layers, named[1], classes[0], classes[1], text_of(fit, "fit"), exact=True
            )
            choices.check()
            owner = owner_of(request)
            explained = yield from work.follow(
                lambda task: explain_choices(pool, choices, task),
                _telling,
                owner=owner,
                slow=choices.slow,
                every=PROGRAMS_TOLD_EVERY,
            )
            files = write_maps(explained.explanation, new_result_folder())
            facts = json.loads(json.dumps(explained.explanation.to_dict()))
            yield str(files.overlay), str(files.heatmap), str(files.values), facts

    with gr.Row(visible=False):
        inputs = [
            picture_input(label="Picture"),
            gr.Textbox(pool.default, label="Model"),
            gr.Textbox("", label="Layer"),
            gr.Textbox("gradcam", label="Method"),
            gr.Textbox("", label="Class"),
            gr.Textbox("", label="Compare with"),
            gr.Textbox(OWN_FIT, label="Fit"),
        ]
        outputs = [
            gr.File(label="Overlay"),
            gr.File(label="Heatmap"),
            gr.File(label="Values"),
            gr.JSON(label="Summary"),
        ]
        gr.Button("Explain").click(explain_picture, inputs, outputs, api_name="explain", concurrency_limit=None)


def _telling(text: str) -> Answer:
    return None, None, None, {"status": text}
