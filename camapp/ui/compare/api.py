"""The public API event /compare."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TypeAlias

import gradio as gr

from camapp.files import write_atomically
from camapp.ui.compare.choices import CompareChoices, compare_choices
from camapp.ui.compare.downloads import FILES, json_of, sheet_of
from camapp.ui.environment import new_result_folder
from camapp.ui.frame.messages import in_words, owner_of, text_of
from camapp.ui.frame.models import ModelPool
from camapp.ui.frame.scheduler import PROGRAMS_TOLD_EVERY, Scheduler
from camapp.ui.frame.selection import layer_names
from camapp.ui.frame.uploads import picture_input

Answer: TypeAlias = tuple[str | None, dict[str, Any]]


def add_compare_api(pool: ModelPool, work: Scheduler) -> None:
    """The public API event ``/compare``, inside the open ``gr.Blocks``; its controls are not shown."""

    def compare_picture(
        picture: str | None, model: str, methods: str, layers: str, target: str, request: gr.Request
    ) -> Iterator[Answer]:
        """Compare where several methods and layers say that a model looks in one picture.

        Args:
            picture: the picture file.
            model: a model's name, such as "efficientnet_lite0".
            methods: two to six methods' names with commas between, such as "gradcam, layercam".
            layers: up to three layers' names with commas between; empty for each method's own choice.
            target: the class to explain, by name or index; empty for the top prediction.
            request: who asks, for the fairness of the queue.

        Returns:
            A contact sheet of all maps (PNG); and a summary: per cell the layer, the map's range and peak or why there
            is none, rank correlations, overlaps of the hottest 20%, notes, versions. While it runs there is no sheet,
            and the summary says how far it is.
        """
        with in_words():
            named = [text_of(value, name) for value, name in ((model, "model"), (target, "target"))]
            several = [layer_names(text_of(value, name)) for value, name in ((layers, "layers"), (methods, "methods"))]
            choices = CompareChoices(picture, named[0], several[0], several[1], named[1], exact=True)
            choices.check()
            compared = yield from work.follow(
                lambda task: compare_choices(pool, choices, task),
                _telling,
                owner=owner_of(request),
                slow=choices.slow,
                every=PROGRAMS_TOLD_EVERY,
            )
            sheet = new_result_folder() / FILES["sheet"]
            write_atomically(sheet, sheet_of(compared.comparison))
            yield str(sheet), json.loads(json_of(compared.comparison))

    with gr.Row(visible=False):
        inputs = [
            picture_input(label="Picture"),
            gr.Textbox(pool.default, label="Model"),
            gr.Textbox("gradcam, layercam", label="Methods"),
            gr.Textbox("", label="Layers"),
            gr.Textbox("", label="Class"),
        ]
        outputs = [gr.File(label="Contact sheet"), gr.JSON(label="Summary")]
        gr.Button("Compare").click(compare_picture, inputs, outputs, api_name="compare", concurrency_limit=None)


def _telling(text: str) -> Answer:
    return None, {"status": text}
