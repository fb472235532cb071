"""The Features tab: pictures and a few choices on the left; features, their map and a classifier on the right."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, TypeAlias

import gradio as gr

from camapp.backbones.layers import LayerInfo
from camapp.errors import CamappError
from camapp.features.probe.fitting import KINDS
from camapp.features.table import FeatureTable
from camapp.transfer import TrainedProbe
from camapp.ui.environment import kept_text
from camapp.ui.features.downloads import keep_features, keep_probe
from camapp.ui.features.extracting import (
    ALIASES,
    MOST_LAYERS,
    POOL_NAMES,
    Extraction,
    Request,
    checked_request,
    extract,
    has_labels,
    labelled,
    names_to_label,
    train,
)
from camapp.ui.features.learnt import Learnt
from camapp.ui.features.map_view import map_of, map_view
from camapp.ui.features.probe_view import probe_of, probe_view
from camapp.ui.features.summary_view import summary_of, summary_view
from camapp.ui.frame.events import LATEST, PRIVATE, QUIET
from camapp.ui.frame.kept import Kept
from camapp.ui.frame.messages import owner_of, sent, status_bar, status_line
from camapp.ui.frame.picker import Option, picker, picker_value
from camapp.ui.frame.selection import Update
from camapp.ui.frame.tab import Frame, Tab
from camapp.ui.frame.topic import Topic, Turn
from camapp.ui.frame.uploads import uploaded

# The values of the controls, by component.
Given: TypeAlias = dict[Any, Any]

_READY = "Ready. Drop pictures or a .zip, and press Extract."
_KIND_TITLES = {"linear": "Linear", "ridge": "Ridge", "knn": "kNN"}
_LABELS_HINT = "hat1.jpg,hat\nshoe1.jpg,shoe"
_ALIAS_TEXTS = {"penultimate": "what goes into the classifier", "last": "the last map or tokens before the pooling"}


class FeaturesTab(Tab):
    """Draws the tab, and answers its events."""

    name = "features"
    title = "Features"
    shows = ()

    def __init__(self, frame: Frame) -> None:
        super().__init__(frame)
        self._extractions: Kept[Extraction] = Kept(
            f"These features were kept for {kept_text()}, and are gone. Extract them again.",
            size_of=lambda one: one.bytes,
        )
        self._learnt: Kept[Learnt] = Kept(
            f"This classifier was kept for {kept_text()}, and is gone. Train it again.", size_of=lambda one: one.bytes
        )

    def draw_controls(self) -> None:
        """The pictures, what is taken of them, and what is trained on it."""
        pool = self.frame.pool
        self.files = gr.File(
            file_count="multiple",
            file_types=["image", ".zip"],
            type="filepath",
            label="Pictures, or a .zip with one folder a class",
            elem_id="features-files",
            height=170,
        )
        self.layers = picker(
            "Layers",
            _layer_options(pool.layers(pool.default)),
            ["penultimate"],
            most=MOST_LAYERS,
            elem_id="features-layers",
        )
        self.pool = gr.Dropdown(
            [name for name in POOL_NAMES if name != "none"],
            value="auto",
            label="Pooling",
            info="auto: the class token where there is one, else the mean over the places.",
            elem_id="features-pool",
        )
        self.normalize = gr.Checkbox(
            False, label="Scale each picture's features to length 1 (L2)", elem_id="features-normalize"
        )
        self.run = gr.Button("Extract", variant="primary", elem_id="features-run")
        with gr.Group(elem_id="features-probe-controls"):
            self.kind = gr.Radio(
                [(_KIND_TITLES[kind], kind) for kind in KINDS],
                value="linear",
                label="Train a classifier",
                elem_id="features-kind",
            )
            self.share = gr.Slider(
                0.1, 0.5, 0.25, step=0.05, label="Share kept apart for testing", elem_id="features-share"
            )
            with gr.Accordion("Labels", open=False, elem_id="features-labels-box"):
                self.labels = gr.Textbox(
                    "",
                    lines=5,
                    max_lines=12,
                    label="A line a picture: name,label",
                    info="Instead of the folders of a .zip.",
                    placeholder=_LABELS_HINT,
                    elem_id="features-labels",
                )
        self.learn = gr.Button("Train", variant="secondary", elem_id="features-train")

    def draw_results(self) -> None:
        """Status, the classifier, the features and their map."""
        self.status = status_bar("features-status", _READY)
        self.probe = probe_view(elem_id="features-probe")
        self.summary = summary_view(elem_id="features-summary")
        self.map = map_view(elem_id="features-map")
        self.token = gr.State("")
        self._working = Topic(self.frame.work, self.status)

    def connect(self) -> None:
        """Extract, train, explain with what was trained."""
        selection = self.frame.selection
        wanted: set[Any] = {self.files, selection.model, self.layers, self.pool, self.normalize, self.labels}
        shown = [self.summary, self.map, self.token, self.labels, self.status]
        self.run.click(self.extract, wanted, [*shown, self.probe], **LATEST)
        learnt = {*wanted, self.token, self.kind, self.share}
        self.learn.click(self.train, learnt, [*shown, self.probe], **LATEST)
        targets = [*selection.switched, self.frame.navigation, self.status]
        self.opened = self.probe.explain(self.open_in_explain, None, targets, **PRIVATE)
        selection.model.change(self.offer_layers, [selection.model], [self.layers], **PRIVATE)
        self.files.clear(self.clear, None, [*shown, self.probe], **QUIET)
        self.status.stop(self._working.stop, None, None, **QUIET)

    def hands_over(self) -> list[Any]:
        """Opening a classifier in Explain."""
        return [self.opened]

    def extract(self, given: Given, request: gr.Request) -> Iterator[Update]:
        """Take the features of the pictures."""

        def steps(turn: Turn) -> Generator[Update, None, None]:
            yield {self.probe: None, **turn.telling("Extracting…")}
            extraction, token = yield from self._extraction(turn, self._wanted(given), request)
            updates = self._shown(extraction, token, str(given[self.labels] or ""), owner_of(request))
            yield {**updates, self.status: status_line("done", _extracted(extraction))}

        yield from self._working.answer(
            request, steps, lambda message: {**self._nothing(), self.summary: {"error": message}}
        )

    def train(self, given: Given, request: gr.Request) -> Iterator[Update]:
        """Train a classifier on the features; where they are not there yet, take them first."""
        yield from self._working.answer(
            request,
            lambda turn: self._trained(turn, given, request),
            lambda message: {self.probe: {"error": message}},
        )

    def open_in_explain(self, event: gr.EventData, request: gr.Request) -> Iterator[Update]:
        """Offer the classifier as a model, choose it, and open the Explain tab."""
        owner = owner_of(request)

        def steps(turn: Turn) -> Generator[Update, None, None]:
            yield turn.telling("Opening the classifier…")
            learnt = self._learnt.find(str(sent(event, "token")))
            name = yield from turn.follow(lambda task: learnt.offered(self.frame.pool, owner))
            opened = status_line("done", "The classifier is open in Explain.")
            yield {**self.frame.selection.switched_to(name), self.frame.navigation: "explain", self.status: opened}

        yield from self._working.answer(request, steps)

    def offer_layers(self, model: str, request: gr.Request) -> Iterator[Update]:
        """Another model's layers."""
        try:
            yield from self.loaded(model, request, lambda text: {self.layers: gr.skip()})
            options = _layer_options(self.frame.pool.layers(model))
        except CamappError:  # told where the model is chosen
            options = _layer_options([])
        yield {self.layers: picker_value(options, ["penultimate"], most=MOST_LAYERS)}

    def clear(self, request: gr.Request) -> Update:
        """Back to the beginning."""
        self._working.drop(request)
        return {**self._nothing(), self.probe: None, self.labels: "", self.status: status_line("ready", _READY)}

    def _extraction(
        self, turn: Turn, wanted: Request, request: gr.Request
    ) -> Generator[Update, None, tuple[Extraction, str]]:
        """The extraction and its token, by way of the queue."""
        yield from self.loaded(wanted.model, request, turn.telling)
        checked_request(self.frame.pool, wanted)
        extraction = yield from turn.follow(
            lambda task: extract(self.frame.pool, wanted, progress=task.progress, cancel=task.cancelled), slow=True
        )
        return extraction, self._extractions.keep(extraction, owner_of(request))

    def _trained(self, turn: Turn, given: Given, request: gr.Request) -> Generator[Update, None, None]:
        """The way to a classifier."""
        yield {self.probe: None, **turn.telling("Training…")}
        owner, wanted, typed = owner_of(request), self._wanted(given), str(given[self.labels] or "")
        token = str(given[self.token])
        extraction = self._extractions.get(token)
        if extraction is None or extraction.request != wanted:
            extraction, token = yield from self._extraction(turn, wanted, request)
            yield {**self._shown(extraction, token, typed, owner), **turn.telling("Training…")}
        table = labelled(extraction.table, typed)
        if has_labels(typed):
            yield {self.map: map_of(extraction, token, table)}
        trained = yield from self._training(turn, extraction, table, given)
        report = trained.report
        assert report is not None
        learnt = Learnt(trained, extraction.request.model, extraction.stem)
        kept = self._learnt.keep(learnt, owner)
        downloads = keep_probe(self.frame.results, learnt, owner)
        right = f"{report.accuracy:.1%} of {report.pictures} test pictures told right"
        yield {
            self.probe: probe_of(trained, extraction, float(given[self.share]), kept, downloads),
            self.status: status_line("done", f"Done: {right}; always the commonest class: {report.majority:.1%}."),
        }

    def _training(
        self, turn: Turn, extraction: Extraction, table: FeatureTable, given: Given
    ) -> Generator[Update, None, TrainedProbe]:
        pool, name = self.frame.pool, extraction.request.model
        kind, share = str(given[self.kind]), given[self.share]
        trained = yield from turn.follow(
            lambda task: train(pool.load(name, slow=True), table, kind, share, cancel=task.cancelled), slow=True
        )
        return trained

    def _wanted(self, given: Given) -> Request:
        files = tuple(str(uploaded(path)) for path in given[self.files] or ())
        layers, pool = tuple(given[self.layers] or ()), str(given[self.pool])
        return Request(files, str(given[self.frame.selection.model]), layers, pool, bool(given[self.normalize]))

    def _shown(self, extraction: Extraction, token: str, typed: str, owner: str) -> Update:
        """The features on show; where pictures wait for labels, their names stand in the box already."""
        downloads = keep_features(self.frame.results, extraction, owner)
        waiting = extraction.table.labels is None and not has_labels(typed)
        return {
            self.summary: summary_of(extraction, token, downloads),
            self.map: map_of(extraction, token),
            self.token: token,
            self.labels: names_to_label(extraction.table) if waiting else typed,
        }

    def _nothing(self) -> Update:
        return {self.summary: None, self.map: None, self.token: ""}


def _layer_options(layers: list[LayerInfo]) -> list[Option]:
    """What stands for a layer in every model, then the layers with a map, deepest first."""
    aliases = [Option(name, name, "In every model", _ALIAS_TEXTS[name]) for name in ALIASES]
    return aliases + [
        Option(
            layer.name,
            layer.name,
            f"{' × '.join(map(str, layer.grid or ()))} places",
            " × ".join(map(str, layer.shape or ())) + f" · {layer.kind}",
        )
        for layer in layers
    ]


def _extracted(extraction: Extraction) -> str:
    count, failed = len(extraction.table), len(extraction.table.failures)
    left_out = f"; {failed} left out" if failed else ""
    pictures = "1 picture" if count == 1 else f"{count} pictures"
    return f"Done: {pictures} in {extraction.seconds:.1f} s{left_out}."
