"""The Explain tab: a picture and a few choices on the left, where the model looked on the right."""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import Any

import gradio as gr

from camapp.backbones.layers import LayerInfo
from camapp.cam.methods import METHODS
from camapp.explanation import Explanation
from camapp.ui.api import MODEL_QUEUE, TOP_PREDICTION, explain_checked
from camapp.ui.messages import in_words, status_line, worded
from camapp.ui.models import ModelPool
from camapp.ui.results import Results
from camapp.ui.samples import sample_path, sample_strip
from camapp.ui.summary import percent, shape_text, summary, summary_of
from camapp.ui.uploads import picture_input
from camapp.ui.viewer import view_of, viewer

Update = dict[Any, Any]


class ExplainTab:
    """Draws the tab inside the open ``gr.Blocks``, and answers its events.

    Args:
        pool: the models on offer.
        results: where results are kept for download.
    """

    def __init__(self, pool: ModelPool, results: Results) -> None:
        self._pool = pool
        self._results = results
        with gr.Row(elem_id="explain-columns"):
            with gr.Column(elem_id="input"):
                self._draw_input()
            with gr.Column(elem_id="settings"):
                self._draw_settings()
            with gr.Column(elem_id="result"):
                self.status = gr.HTML(status_line("ready"), elem_id="status", js_on_load=_ANNOUNCE)
                self.viewer = viewer(elem_id="viewer")
                self.summary = summary(elem_id="summary")
        self._connect()

    def _draw_input(self) -> None:
        self.picture = picture_input(
            label="Picture",
            elem_id="picture",
            height=230,
            buttons=[],
            placeholder="Drop a picture here, or click to choose one",
            alt_text="The picture to explain",
        )
        self.samples = sample_strip(elem_id="samples")

    def _draw_settings(self) -> None:
        pool = self._pool
        self.model = gr.Dropdown(
            [(card.title, card.name) for card in pool.cards], value=pool.default, label="Model", elem_id="model"
        )
        self.layer = gr.Dropdown(
            **_layer_choices(pool.layers(pool.default)),
            label="Layer",
            info="Deepest first. Deeper layers know classes, earlier ones show finer detail.",
            elem_id="layer",
            num_choices_shown=None,
        )
        self.method = gr.Dropdown(
            [("Sharper (fused)" if name == "fused" else kind.title, name) for name, kind in METHODS.items()],
            value="gradcam",
            label="Method",
            elem_id="method",
        )
        self.target = gr.Dropdown(
            **_class_choices(pool.labels(pool.default)),
            label="Class to explain",
            info="Type to search.",
            elem_id="target",
        )
        self.run = gr.Button("Explain", variant="primary", elem_id="run")
        _other_models(pool)

    def _connect(self) -> None:
        chosen = [self.picture, self.model, self.layer, self.method, self.target]
        shown = [self.viewer, self.summary, self.status]
        options: dict[str, Any] = {
            **MODEL_QUEUE,
            "api_visibility": "private",
            "show_progress": "minimal",
            "show_progress_on": [self.viewer],
        }
        latest = {**options, "trigger_mode": "always_last"}  # the choice made while a run goes on is run after it
        again = gr.on(
            [self.run.click, self.layer.input, self.method.input, self.target.input],
            self.explain_again,
            chosen,
            shown,
            **latest,
        )
        fresh = self.picture.upload(self.explain_new, chosen[:4], [*shown, self.target], **options)
        picked = self.samples.pick(
            self.pick_sample, None, [self.picture, self.status], api_visibility="private", show_progress="hidden"
        )
        sampled = picked.success(self.explain_new, chosen[:4], [*shown, self.target], **options)
        classed = self.summary.explain(self.explain_class, chosen[:4], [*shown, self.target], **options)
        modelled = self.model.input(
            self.explain_with_model,
            [self.picture, self.model, self.method],
            [*shown, self.layer, self.target],
            **latest,
        )
        self.picture.clear(
            self.clear,
            None,
            shown,
            queue=False,
            api_visibility="private",
            show_progress="hidden",
            cancels=[again, fresh, sampled, classed, modelled],
        )

    def explain_again(self, picture: str | None, model: str, layer: str, method: str, target: int) -> Iterator[Update]:
        """Explain the picture with what is chosen."""
        yield from self._steps(picture, model, layer, method, target)

    def explain_new(self, picture: str | None, model: str, layer: str, method: str) -> Iterator[Update]:
        """Explain a new picture: its own top prediction, not a class that was chosen for the one before."""
        yield from self._steps(picture, model, layer, method, TOP_PREDICTION, {self.target: TOP_PREDICTION})

    def explain_class(
        self, picture: str | None, model: str, layer: str, method: str, event: gr.EventData
    ) -> Iterator[Update]:
        """Explain one of the predicted classes."""
        target = _sent(event, "index")
        yield from self._steps(picture, model, layer, method, target, {self.target: target})

    def explain_with_model(self, picture: str | None, model: str, method: str) -> Iterator[Update]:
        """Offer another model's layers and classes, and explain the picture with it."""
        if not self._pool.is_loaded(model):
            yield {self.status: status_line("running", "Loading the model…")}
        try:
            layers, labels = self._pool.layers(model), self._pool.labels(model)
        except Exception as error:
            message, shown = worded(error)
            yield self._failed(message)
            raise shown from error
        choices = {
            self.layer: gr.Dropdown(**_layer_choices(layers)),
            self.target: gr.Dropdown(**_class_choices(labels)),
        }
        if picture is None:
            yield {**choices, self.status: status_line("ready")}
            return
        layer = _layer_choices(layers)["value"]
        yield from self._steps(picture, model, layer, method, TOP_PREDICTION, choices)

    def pick_sample(self, event: gr.EventData) -> Update:
        """Put a sample picture where an upload goes."""
        with in_words():
            path = sample_path(_sent(event, "sample"))
        return {self.picture: path, self.status: status_line("running", "Opening the sample…")}

    def clear(self) -> Update:
        """Back to the beginning."""
        return {self.viewer: None, self.summary: None, self.status: status_line("ready")}

    def _steps(
        self, picture: str | None, model: str, layer: str, method: str, target: int, also: Update | None = None
    ) -> Iterator[Update]:
        """What the page shows on the way to a result; on an error the old result goes, and a message comes."""
        yield {**(also or {}), self.status: status_line("running", "Explaining…")}
        try:
            explanation, loaded, layers = explain_checked(self._pool, picture, model, layer, method, target)
            token = self._results.keep(explanation)
            view, facts = view_of(explanation, token), summary_of(explanation, loaded, layers, token)
        except Exception as error:
            message, shown = worded(error)
            yield self._failed(message)
            raise shown from error
        yield {self.viewer: view, self.summary: facts, self.status: status_line("done", _done(explanation))}

    def _failed(self, message: str) -> Update:
        return {self.viewer: {"error": message}, self.summary: None, self.status: status_line("error", message)}


# The element around the status stays while its text changes: only then do screen readers announce it.
_ANNOUNCE = 'element.setAttribute("role", "status"); element.setAttribute("aria-live", "polite");'


def _layer_choices(layers: list[LayerInfo]) -> dict[str, Any]:
    """Choices and value of the layer control."""
    best = next((layer.name for layer in layers if layer.recommended), layers[0].name if layers else None)
    choices = [(_layer_text(layer), layer.name) for layer in layers]
    return {"choices": choices, "value": best}


def _layer_text(layer: LayerInfo) -> str:
    mark = " · recommended" if layer.recommended else ""
    return f"{layer.name} · {shape_text(layer)}{mark}"


def _class_choices(labels: tuple[str, ...]) -> dict[str, Any]:
    """Choices and value of the class control; of two classes of one name each says its index."""
    twice = {label for label in labels if labels.count(label) > 1}
    named = [(f"{label} ({index})" if label in twice else label, index) for index, label in enumerate(labels)]
    return {"choices": [("Top prediction", TOP_PREDICTION), *named], "value": TOP_PREDICTION}


def _other_models(pool: ModelPool) -> None:
    if not pool.missing:
        return
    names = html.escape(", ".join(card.title for card in pool.missing))
    count = "1 more model" if len(pool.missing) == 1 else f"{len(pool.missing)} more models"
    gr.HTML(
        f'<details class="other-models"><summary>{count} without weights here</summary>'
        f"<p>{names}. <code>camapp models --json</code> says how to get their weights.</p></details>",
        elem_id="other-models",
        apply_default_css=False,
    )


def _sent(event: gr.EventData, name: str) -> Any:
    """What the page sent along with an event; anyone can send anything."""
    value = event._data.get(name) if isinstance(event._data, dict) else None
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise gr.Error(f'The request is missing "{name}".', print_exception=False)
    return value


def _done(explanation: Explanation) -> str:
    explained = explanation.classes[0]
    blank = " The map is blank." if explanation.reasons[0] else ""
    return f"Done: {explained.label}, {percent(explained.probability)}, in {explanation.seconds:.2f} s.{blank}"
