"""The public API event ``/inspect``: the page's inspection of one picture, for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TypeAlias

import gradio as gr

from camapp.ui.environment import new_result_folder
from camapp.ui.frame.messages import in_words, owner_of, text_of
from camapp.ui.frame.scheduler import PROGRAMS_TOLD_EVERY, Scheduler
from camapp.ui.frame.uploads import picture_input
from camapp.ui.inspect.choices import Choices, Looks

Answer: TypeAlias = tuple[dict[str, Any], str | None, str | None]


def add_api(looks: Looks, work: Scheduler) -> None:
    """The public API event ``/inspect``, inside the open ``gr.Blocks``; its controls are not shown."""

    def inspect_one(
        picture: str | None, model: str, layer: str, ranking: str, target: str, channels: float, request: gr.Request
    ) -> Iterator[Answer]:
        """Inspect what the layers of a model do with one picture, and show the channels of one of them.

        Args:
            picture: the picture file.
            model: a model's name, such as "efficientnet_lite0".
            layer: the layer whose channels are shown; empty for the model's recommended one.
            ranking: how they are ranked: "mean", "max" or "gradient".
            target: whose gradients, by class name or index; empty for the top prediction.
            channels: how many channels are shown.
            request: who asks, for the fairness of the queue.

        Returns:
            The figures of all layers with the verdicts on them, and under "channels" those of the layer (JSON); the
            grid of its best channels (PNG); and the values of all its channels (.npy, float32). While it runs there
            are no files, and the figures say how far it is.
        """
        with in_words():
            whole = isinstance(channels, int | float) and float(channels).is_integer()
            most: Any = int(channels) if whole else channels  # what is none is refused by the check
            words = {"model": model, "layer": layer, "target": target, "ranking": ranking}
            told = {name: text_of(value, name) for name, value in words.items()}
            layers = (told["layer"],) if told["layer"] else ()
            choices = Choices(picture, told["model"], layers, told["target"], told["ranking"], most)
            choices.check_with_picture()
            options: dict[str, Any] = {"owner": owner_of(request), "every": PROGRAMS_TOLD_EVERY}
            maps = yield from work.follow(lambda task: looks.channels(choices), _telling, **options)
            inspection = yield from work.follow(
                lambda task: looks.inspection(choices, task), _telling, slow=True, **options
            )
            files = {path.name: path for path in maps.save(new_result_folder(), most=choices.most)}
            facts = json.loads(json.dumps({**inspection.to_dict(), "channels": maps.to_dict(choices.most)}))
            yield facts, str(files["channels.png"]), str(files["channels.npy"])

    with gr.Row(visible=False):
        inputs = [
            picture_input(label="Picture"),
            gr.Textbox(looks.pool.default, label="Model"),
            gr.Textbox("", label="Layer"),
            gr.Textbox("mean", label="Ranking"),
            gr.Textbox("", label="Class"),
            gr.Number(36, label="Channels"),
        ]
        outputs = [gr.JSON(label="Snapshot"), gr.File(label="Channel grid"), gr.File(label="Values")]
        gr.Button("Inspect").click(inspect_one, inputs, outputs, api_name="inspect", concurrency_limit=None)


def _telling(text: str) -> Answer:
    return {"status": text}, None, None
