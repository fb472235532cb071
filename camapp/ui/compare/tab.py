"""The Compare tab: methods and layers side by side on one picture, and patches that look alike."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import gradio as gr

from camapp.cam.methods import find_method
from camapp.comparison import MOST_METHODS
from camapp.errors import CamappError, UsageError
from camapp.patches import finer_layer
from camapp.ui.compare.choices import CompareChoices, Compared, compare_choices, compare_patches
from camapp.ui.compare.downloads import FILES, keep_comparison
from camapp.ui.compare.grid import grid_of, grid_view
from camapp.ui.compare.patches import patches_of, patches_view
from camapp.ui.compare.recipes import address_of, copies_of, patches_python
from camapp.ui.frame.choices import check_layer
from camapp.ui.frame.classes import usual_class
from camapp.ui.frame.events import LATEST, PRIVATE, QUIET, trigger_of
from camapp.ui.frame.messages import STOPPED, in_words, owner_of, sent, status_bar, status_line
from camapp.ui.frame.picker import Option, picker, picker_value
from camapp.ui.frame.samples import sample_path, sample_strip
from camapp.ui.frame.selection import MOST_LAYERS, Update, layer_options, method_options
from camapp.ui.frame.tab import Tab
from camapp.ui.frame.topic import Topic, Turn
from camapp.ui.frame.uploads import picture_input

# The values of the controls, by component.
Given: TypeAlias = dict[Any, Any]

DEFAULT_METHODS = ("gradcam", "fused", "gradcam++", "layercam")
READY = "Ready. Choose a picture, methods and layers."
SLOW = "One of these methods takes long: press Compare to begin."
PATCHES_READY = "Ready. Choose a picture, or two."

_FINER = ""

# Of an address; nobody means more by it.
_LONGEST = 300


class CompareTab(Tab):
    """Draws the tab, and answers its events."""

    name = "compare"
    title = "Compare"
    shows = ("picture", "layers", "target")

    def draw_controls(self) -> None:
        """Several methods, where the shared control has one; and a second picture."""
        pool = self.frame.pool
        options = method_options(pool.unsuitable(pool.default))
        self.methods = picker(
            "Methods", options, _suited(DEFAULT_METHODS, options), most=MOST_METHODS, elem_id="compare-methods"
        )
        self.run = gr.Button("Compare", variant="primary", elem_id="compare-run")
        with gr.Accordion("Two pictures", open=False, elem_id="compare-two"):
            self.second = picture_input(
                label="Second picture",
                elem_id="second-picture",
                elem_classes=["picture-input"],
                height=180,
                buttons=[],
                placeholder="Drop a second picture here: its patches are compared with the first one's",
                alt_text="The picture whose patches are compared with the first one's",
            )
            self.second_samples = sample_strip(elem_id="second-samples")
            self.patch_layer = picker(
                "Layer of the patches", self._patch_layers(pool.default), [_FINER], elem_id="patch-layer"
            )

    def draw_results(self) -> None:
        """Status, maps with their agreement, and patches."""
        self.status = status_bar("compare-status", READY)
        self.grid = grid_view(elem_id="compare-grid")
        self.patches = patches_view(elem_id="compare-patches")
        self.patch_status = status_bar("patch-status", PATCHES_READY)
        self._comparing = Topic(self.frame.work, self.status)
        self._matching = Topic(self.frame.work, self.patch_status)

    def views(self) -> list[gr.HTML]:
        """Both; they are made again by themselves when the tab is open."""
        return [self.grid, self.patches]

    def addressed(self) -> list[Any]:
        """The methods."""
        return [self.methods]

    def read_address(self, query: Mapping[str, str], model: str) -> Update:
        """The methods that an address asks for, as ``methods=gradcam,cam``."""
        wanted = [name.strip() for name in query.get("methods", "")[:_LONGEST].split(",") if name.strip()]
        if not wanted:
            return {}
        unsuitable = self.frame.pool.unsuitable(model)
        methods = [find_method(name).name for name in wanted[:MOST_METHODS]]
        for name in methods:
            if name in unsuitable:
                raise UsageError(f'The address names the method "{name}", which does not suit {model}.')
        return {self.methods: picker_value(method_options(unsuitable), methods, most=MOST_METHODS)}

    def connect(self) -> None:
        """Compare when asked, and when the tab is opened after the selection changed."""
        selection = self.frame.selection
        # Gradio hands a set of inputs over as one dictionary
        chosen = {*selection.chosen, self.methods, self.second, self.patch_layer, self.frame.navigation}
        shown, patches = [self.grid, self.status], [self.patches, self.patch_status]
        self.run.click(self.compare_now, chosen, shown, **LATEST)
        self.grid.wanted(self.compare_once_settled, chosen, shown, **LATEST)
        self.methods.pick(self.compare_if_quick, chosen, shown, **LATEST)
        gr.on(
            [
                self.run.click,
                trigger_of(self.patches, "wanted"),
                trigger_of(self.patch_layer, "pick"),
                self.second.upload,
                self.second.clear,
            ],
            self.match_patches,
            chosen,
            patches,
            **LATEST,
        )
        picked = self.second_samples.pick(self.pick_sample, None, [self.second, self.patch_status], **LATEST)
        picked.success(self.match_patches, chosen, patches, **LATEST)
        self.used = self.grid.choose(
            self.use,
            chosen,
            [selection.method, selection.layers, *selection.other_classes, self.frame.navigation, self.status],
            **PRIVATE,
        )
        selection.model.change(self.offer, [selection.model, self.methods], [self.methods, self.patch_layer], **PRIVATE)
        self.status.stop(self._comparing.stop, None, None, **QUIET)
        self.patch_status.stop(self._matching.stop, None, None, **QUIET)
        selection.picture.clear(self.clear, None, [*shown, *patches], **QUIET)

    def hands_over(self) -> list[Any]:
        """Taking a cell's method and layers over to Explain."""
        return [self.used]

    def compare_now(self, given: Given, request: gr.Request) -> Iterator[Update]:
        """Compare what is chosen, on the picture."""
        yield from self._comparing.answer(
            request, lambda turn: self._compared(turn, given), self._failed, self._failed(STOPPED)
        )

    def compare_once_settled(self, given: Given, request: gr.Request) -> Iterator[Update]:
        """Compare by itself; where the model was changed, its layers and classes come a moment later, and ask again."""
        choices = self._choices(given)

        def steps(turn: Turn) -> Generator[Update, None, None]:
            if choices.picture is None:
                yield {self.grid: None, self.status: status_line("ready", READY)}
                return
            settled = yield from turn.follow(lambda task: choices.settled(self.frame.pool))
            if settled:
                yield from self._compared_if_quick(turn, given)
            else:
                yield turn.telling("Loading the model…")

        yield from self._comparing.answer(request, steps, self._failed, self._failed(STOPPED))

    def compare_if_quick(self, given: Given, request: gr.Request) -> Iterator[Update]:
        """Compare without having been asked by the button, unless one of the methods takes long."""
        yield from self._comparing.answer(
            request, lambda turn: self._compared_if_quick(turn, given), self._failed, self._failed(STOPPED)
        )

    def match_patches(self, given: Given, request: gr.Request) -> Iterator[Update]:
        """Find which patches of the picture, or of two, look alike."""
        selection, pool = self.frame.selection, self.frame.pool
        picture, second, model = given[selection.picture], given[self.second], given[selection.model]
        layer = next(iter(given[self.patch_layer]), _FINER)

        def steps(turn: Turn) -> Generator[Update, None, None]:
            if picture is None:
                yield {self.patches: None, self.patch_status: status_line("ready", PATCHES_READY)}
                return
            yield turn.telling("Comparing patches…")
            alike = yield from turn.follow(lambda task: compare_patches(pool, picture, second, model, layer))
            view = patches_of(alike, patches_python(alike, random=pool.load(model).weights.random))
            rows, columns = alike.grid
            done = f"Done: {rows} × {columns} patches at {alike.layer} in {alike.seconds:.2f} s."
            yield {self.patches: view, self.patch_status: status_line("done", done)}

        yield from self._matching.answer(request, steps, lambda message: {self.patches: {"error": message}})

    def use(self, given: Given, event: gr.EventData) -> Update:
        """Carry a cell's method and layer over to Explain, and open that."""
        selection, pool = self.frame.selection, self.frame.pool
        model = given[selection.model]
        with in_words():
            method, layer = find_method(str(sent(event, "method"))), str(sent(event, "layer"))
            updates: Update = {selection.method: picker_value(method_options(pool.unsuitable(model)), [method.name])}
            if layer and method.takes_layer:
                check_layer(layer, pool.layers(model), model)
                updates[selection.layers] = picker_value(layer_options(pool.layers(model)), [layer], most=MOST_LAYERS)
        told = status_line("ready", f"{method.title} is chosen in Explain.")
        alone = {control: usual_class() for control in selection.other_classes}  # this map, and nothing set against it
        return {**updates, **alone, self.frame.navigation: "explain", self.status: told}

    def offer(self, model: str, methods: Sequence[str], request: gr.Request) -> Update:
        """What another model makes of the methods and layers on offer."""

        def look(_: Any) -> tuple[list[Option], list[Option]]:
            return method_options(self.frame.pool.unsuitable(model)), self._patch_layers(model)

        try:
            options, layers = self.frame.work.run(look, owner=owner_of(request))
        except CamappError:  # told where the model is chosen
            return {self.methods: gr.skip(), self.patch_layer: gr.skip()}
        kept = _suited(methods, options) or _suited(DEFAULT_METHODS, options)
        return {
            self.methods: picker_value(options, kept, most=MOST_METHODS),
            self.patch_layer: picker_value(layers, [_FINER]),
        }

    def pick_sample(self, event: gr.EventData) -> Update:
        """Put a sample picture where a second upload goes."""
        with in_words():
            path = sample_path(str(sent(event, "sample")))
        return {self.second: path, self.patch_status: status_line("running", "Opening the sample…")}

    def clear(self, request: gr.Request) -> Update:
        """Back to the beginning."""
        self._comparing.drop(request)
        self._matching.drop(request)
        ready = {self.status: status_line("ready", READY), self.patch_status: status_line("ready", PATCHES_READY)}
        return {self.grid: None, self.patches: None, **ready}

    def _compared(self, turn: Turn, given: Given) -> Generator[Update, None, None]:
        """The way to maps."""
        choices = self._choices(given)
        yield turn.telling("Comparing…")
        choices.check()
        compared = yield from turn.follow(
            lambda task: compare_choices(self.frame.pool, choices, task), slow=choices.slow
        )
        token = keep_comparison(self.frame.results, compared.comparison, turn.owner)
        recipes = {**copies_of(compared), "address": address_of(compared, DEFAULT_METHODS)}
        view = grid_of(compared.comparison, compared.columns, token, FILES, recipes)
        yield {self.grid: view, self.status: status_line("done", _done(compared))}

    def _compared_if_quick(self, turn: Turn, given: Given) -> Generator[Update, None, None]:
        """The way to maps, where it is short."""
        choices = self._choices(given)
        if choices.picture is None:
            yield {self.status: status_line("ready", READY)}
        elif choices.slow:
            yield {self.grid: {"error": SLOW}, self.status: status_line("ready", SLOW)}
        else:
            yield from self._compared(turn, given)

    def _failed(self, message: str) -> Update:
        return {self.grid: {"error": message}}

    def _choices(self, given: Given) -> CompareChoices:
        selection = self.frame.selection
        return CompareChoices(
            given[selection.picture],
            given[selection.model],
            given[selection.layers],
            given[self.methods],
            given[selection.target],
        )

    def _patch_layers(self, model: str) -> list[Option]:
        """The layers of a model under the choice that is made for who makes none."""
        own = finer_layer(self.frame.pool.load(model))
        first = Option(_FINER, "Finer than the last map", detail=f"{own}: small enough for parts", badge="usual")
        return [first, *layer_options(self.frame.pool.layers(model))]


def _suited(methods: Sequence[str], options: Sequence[Option]) -> list[str]:
    """Those of the methods that are on offer."""
    offered = {option.value for option in options}
    return [name for name in methods if name in offered]


def _done(compared: Compared) -> str:
    comparison = compared.comparison
    refused = sum(cell.explanation is None for cell in comparison.cells)
    without = f"; {refused} could not be made" if refused else ""
    made = f"{len(comparison) - refused} maps of {comparison.target.label}"
    return f"Done: {made} in {comparison.seconds:.2f} s{without}."
