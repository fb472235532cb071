"""The public API event /batch: files in, an archive and a row for each file out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr

from camapp.ui.batch.choices import BatchChoices
from camapp.ui.batch.files import NamedFile, NamedFiles
from camapp.ui.batch.runs import Runs
from camapp.ui.batch.working import Finished, work_through
from camapp.ui.frame.messages import in_words, owner_of, text_of
from camapp.ui.frame.scheduler import PROGRAMS_TOLD_EVERY
from camapp.ui.frame.selection import layer_names
from camapp.ui.frame.tab import Frame


def add_batch_api(frame: Frame, runs: Runs) -> None:
    """The event, inside the open ``gr.Blocks``; its controls are not shown.

    Args:
        frame: what all tabs share.
        runs: the batches of all visitors.
    """

    def batch(
        files: list[NamedFile], model: str, layer: str, method: str, target: str, request: gr.Request
    ) -> Iterator[tuple[str | None, list[dict[str, Any]]]]:
        """Show where a model looks in many pictures.

        Args:
            files: the picture files, 50 at most, or one .zip of them.
            model: a model's name, such as "efficientnet_lite0".
            layer: a layer's name, or several with commas between; empty for the method's own choice.
            method: a method's name, such as "gradcam".
            target: the class to explain, by name or index; empty for the top prediction of each.
            request: whose it is; given by Gradio, not by the caller.

        Returns:
            A .zip with overlays, heatmaps, raw maps, results.csv and settings.json; and a row for each file: name,
            status ("done", "failed", or "left" where the time was over), reason, label, index, probability, logit,
            layer, method, seconds, files in the archive. While it runs there is no archive, and rows of what is done.
        """
        owner = owner_of(request)
        records: list[dict[str, Any]] = []

        def finished(one: Finished) -> None:
            records.append(one.record)

        def so_far(*_: object) -> tuple[None, list[dict[str, Any]]]:
            return None, list(records)

        with in_words():
            named = [text_of(value, name) for value, name in ((model, "model"), (method, "method"), (target, "target"))]
            layers = layer_names(text_of(layer, "layer"))
            choices = BatchChoices(files, named[0], layers, named[1], named[2], exact=True)
            given = choices.given()
            run = runs.begin(choices, given, None, owner)
            try:
                # a generator all the way: Gradio closes it where the caller is gone, and so the work
                explained_by = yield from frame.work.follow(
                    lambda task: choices.explainer(frame.pool, None),
                    so_far,
                    owner=owner,
                    slow=True,
                    every=PROGRAMS_TOLD_EVERY,
                )
                yield from work_through(run, explained_by, frame.work, so_far, finished, PROGRAMS_TOLD_EVERY)
            finally:
                run.running = False
        yield str(run.archive), records

    with gr.Row(visible=False):
        inputs = [
            NamedFiles(label="Files", file_count="multiple"),
            gr.Textbox(frame.pool.default, label="Model"),
            gr.Textbox("", label="Layer"),
            gr.Textbox("gradcam", label="Method"),
            gr.Textbox("", label="Class"),
        ]
        outputs = [gr.File(label="Archive"), gr.JSON(label="Rows")]
        gr.Button("Batch").click(batch, inputs, outputs, api_name="batch", concurrency_limit=None)
