"""The Inspect tab: the layers of a model, the channels of one of them, and gradients over depth."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import gradio as gr

from camapp.channels import RANKINGS, ChannelMaps
from camapp.errors import UsageError
from camapp.ui.frame.events import LATEST, PRIVATE, QUIET, trigger_of
from camapp.ui.frame.messages import in_words, sent, status_bar, status_line
from camapp.ui.frame.picker import picker_value
from camapp.ui.frame.selection import MOST_LAYERS, Update, layer_options
from camapp.ui.frame.tab import Frame, Tab
from camapp.ui.frame.topic import Topic, Turn
from camapp.ui.frame.words import figure
from camapp.ui.inspect.api import add_api
from camapp.ui.inspect.channels import channels_of, channels_view
from camapp.ui.inspect.choices import SCALES, Choices, Looks, ranking_choices
from camapp.ui.inspect.depth import depth_of, depth_view
from camapp.ui.inspect.downloads import keep_channels, keep_inspection
from camapp.ui.inspect.recipes import address_of, copies_of_channels, copies_of_inspection
from camapp.ui.inspect.tree import tree_of, tree_view

View = dict[str, Any]

# The values of the controls, by component.
Given: TypeAlias = dict[Any, Any]

# What the picture's views show while there is no picture.
WAITING: View = {"waiting": True}
COUNTS = (16, 36, 64, 144)
_READY = "Ready. Add a picture to see what the layers do with it."


class InspectTab(Tab):
    """Draws the tab, and answers its events.

    Args:
        frame: what all tabs share.
    """

    name = "inspect"
    title = "Inspect"
    shows = ("picture", "layers", "target")

    def __init__(self, frame: Frame) -> None:
        super().__init__(frame)
        self._looks = Looks(frame.pool)

    def draw_controls(self) -> None:
        """How the channels are ranked and shown."""
        self.ranking = gr.Dropdown(
            ranking_choices(),
            value="mean",
            label="Rank channels by",
            info="The gradient is that of the class above.",
            elem_id="inspect-ranking",
        )
        self.most = gr.Dropdown(list(COUNTS), value=36, label="Channels shown", elem_id="inspect-most")
        self.scale = gr.Radio(
            [("Each its own", "channel"), ("One for all", "common")],
            value="channel",
            label="Colour scale",
            elem_id="inspect-scale",
        )
        self.run = gr.Button("Inspect", variant="primary", elem_id="inspect-run")

    def draw_results(self) -> None:
        """Status, layers, channels, and the figures over depth."""
        self.status = status_bar("inspect-status", _READY)
        self.tree = tree_view(elem_id="inspect-tree")
        self.channels = channels_view(elem_id="inspect-channels")
        self.depth = depth_view(elem_id="inspect-depth")
        self._looking = Topic(self.frame.work, self.status)

    def views(self) -> list[gr.HTML]:
        """All three; the channels ask for new ones by themselves where the tab is open."""
        return [self.tree, self.channels, self.depth]

    def addressed(self) -> list[Any]:
        """How the channels are ranked and shown."""
        return [self.ranking, self.most, self.scale]

    def read_address(self, query: Mapping[str, str], model: str) -> Update:
        """Values for the controls that an address may set: rank, channels and scale."""
        parts: dict[str, tuple[Any, Sequence[Any]]] = {
            "rank": (self.ranking, list(RANKINGS)),
            "channels": (self.most, COUNTS),
            "scale": (self.scale, SCALES),
        }
        updates: Update = {}
        for name, (control, allowed) in parts.items():
            value = query.get(name, "")
            if not value:
                continue
            known = {str(one): one for one in allowed}
            if value not in known:
                raise UsageError(f"The address says {name}={value[:40]}; it is one of {', '.join(known)}.")
            updates[control] = known[value]
        return updates

    def connect(self) -> None:
        """Inspect on every choice; a layer of the tree or of the chart becomes the layer of the selection."""
        selection = self.frame.selection
        gr.on(
            [
                self.run.click,
                self.ranking.input,
                self.most.input,
                self.scale.input,
                trigger_of(self.channels, "wanted"),
            ],
            self.look,
            {*selection.chosen, self.ranking, self.most, self.scale},  # Gradio hands a set over as one dictionary
            [self.tree, self.channels, self.depth, self.status],
            **LATEST,
        )
        gr.on(
            [trigger_of(self.tree, "inspect"), trigger_of(self.depth, "inspect")],
            self.pick_layer,
            [selection.model],
            [selection.layers],
            **PRIVATE,
        )
        self.status.stop(self._looking.stop, None, None, **QUIET)
        add_api(self._looks, self.frame.work)

    def pick_layer(self, model: str, event: gr.EventData) -> Update:
        """Choose a layer; that changes the selection, on which the views ask for its channels."""
        with in_words():
            layers = self.frame.pool.layers(model)
            name = self._looks.layer(Choices(None, model, (str(sent(event, "layer")),)))
            return {self.frame.selection.layers: picker_value(layer_options(layers), [name], most=MOST_LAYERS)}

    def look(self, given: Given, request: gr.Request) -> Iterator[Update]:
        """The layers first, which need no picture; then the channels; then the figures over depth."""
        came: list[gr.HTML] = []  # views that have their result, which an error in a later one leaves alone

        def failed(message: str) -> Update:
            if self.channels in came:
                return {self.depth: {"error": message}}
            return {self.channels: {"error": message}, self.depth: WAITING}

        choices = self._choices(given)
        yield from self._looking.answer(request, lambda turn: self._steps(turn, choices, request, came), failed)

    def _steps(
        self, turn: Turn, choices: Choices, request: gr.Request, came: list[gr.HTML]
    ) -> Generator[Update, None, None]:
        began = time.monotonic()
        yield turn.telling("Looking at the layers…")
        choices.check()
        yield from self.loaded(choices.model, request, turn.telling)
        yield {self.tree: (yield from self._tree(turn, choices))}
        if choices.picture is None:
            yield {self.channels: WAITING, self.depth: WAITING, self.status: status_line("ready", _READY)}
            return
        yield turn.telling("Taking the channels…")
        maps = yield from turn.follow(lambda task: self._looks.channels(choices))
        yield {self.channels: self._channels(maps, choices, turn.owner)}
        came.append(self.channels)
        yield turn.telling("Measuring gradients over depth…")
        yield {self.depth: (yield from self._depth(turn, choices))}
        yield {self.status: status_line("done", _done(maps, time.monotonic() - began))}

    def _choices(self, given: Given) -> Choices:
        selection = self.frame.selection
        return Choices(
            given[selection.picture],
            given[selection.model],
            tuple(given[selection.layers]),
            given[selection.target],
            given[self.ranking],
            given[self.most],
            given[self.scale],
        )

    def _tree(self, turn: Turn, choices: Choices) -> Generator[Update, None, View]:
        costs = yield from turn.follow(lambda task: self._looks.costs(choices.model))
        layers, card = self.frame.pool.layers(choices.model), self.frame.pool.card(choices.model)
        chosen = self._looks.layer(choices)
        return tree_of(costs, layers, card.title, chosen, f"{choices.model} {chosen}")

    def _channels(self, maps: ChannelMaps, choices: Choices, owner: str) -> View:
        token = keep_channels(self.frame.results, maps, choices, owner)
        target = choices.target_of(self.frame.pool.load(choices.model))
        copies = copies_of_channels(maps, choices, target)
        layers = self.frame.pool.layers(choices.model)
        recommended = any(layer.recommended and layer.name == maps.layer for layer in layers)
        also = {"copies": copies, "address": address_of(choices, maps.layer, recommended=recommended)}
        return {**channels_of(maps, choices.most, choices.scale, token), **also}

    def _depth(self, turn: Turn, choices: Choices) -> Generator[Update, None, View]:
        slow = not self._looks.knows_inspection(choices)
        inspection = yield from turn.follow(lambda task: self._looks.inspection(choices, task), slow=slow)
        token = keep_inspection(self.frame.results, inspection, turn.owner)
        maps = [layer.name for layer in self.frame.pool.layers(choices.model)]
        target = choices.target_of(self.frame.pool.load(choices.model))
        return {**depth_of(inspection, maps, token), "copies": copies_of_inspection(inspection, target)}


def _done(maps: ChannelMaps, seconds: float) -> str:
    best = maps.top(1)[0]
    dead = f", {len(maps.dead):,} of {len(maps):,} channels dead" if maps.dead else ""
    broken = f", {maps.nonfinite:,} values NaN or infinite" if maps.nonfinite else ""
    score = figure(float(maps.scores[best]))
    return f"Done: {maps.layer}, best channel {best} ({score}){dead}{broken}, in {seconds:.2f} s."
