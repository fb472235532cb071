"""The Compare tab: methods and layers side by side on one picture, and patches that look alike."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, TypeAlias

import gradio as gr

from camapp.cam.methods import find_method
from camapp.comparison import MOST_METHODS
from camapp.errors import CamappError, UsageError
from camapp.patches import finer_layer
from camapp.ui.compare.choices import CompareChoices, Compared, compare_choices, compare_patches
from camapp.ui.compare.downloads import FILES, keep_comparison
from camapp.ui.compare.grid import grid_of, grid_view
from camapp.ui.compare.latest import Latest
from camapp.ui.compare.patches import patches_of, patches_view
from camapp.ui.compare.recipes import address_of, copies_of, patches_python
from camapp.ui.frame.choices import check_layer
from camapp.ui.frame.events import LATEST, PRIVATE, QUIET, trigger_of
from camapp.ui.frame.messages import in_words, owner_of, sent, status_bar, status_line, worded
from camapp.ui.frame.picker import Option, picker, picker_value
from camapp.ui.frame.samples import sample_path, sample_strip
from camapp.ui.frame.selection import MOST_LAYERS, Update, layer_options, method_options
from camapp.ui.frame.tab import Tab
from camapp.ui.frame.uploads import picture_input

# The values of the controls, by component.
Given: TypeAlias = dict[Any, Any]

DEFAULT_METHODS = ("gradcam", "fused", "gradcam++", "layercam")
READY = "Ready. Choose a picture, methods and layers."
SLOW = "One of these methods takes long: press Compare to begin."
PATCHES_READY = "Ready. Choose a picture, or two."

STOPPED = status_line("ready", "Stopped.")

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
        shown = [self.grid, self.status]
        of_maps, of_patches = Latest().only, Latest().only
        compared = self.run.click(of_maps(self.compare_now), chosen, shown, **LATEST)
        wanted = gr.on([trigger_of(self.grid, "wanted")], of_maps(self.compare_once_settled), chosen, shown, **LATEST)
        picked = self.methods.pick(of_maps(self.compare_if_quick), chosen, shown, **LATEST)
        match = of_patches(self.match_patches)
        matched = gr.on(
            [
                self.run.click,
                trigger_of(self.patches, "wanted"),
                trigger_of(self.patch_layer, "pick"),
                self.second.upload,
                self.second.clear,
            ],
            match,
            chosen,
            [self.patches, self.patch_status],
            **LATEST,
        )
        sampled = self.second_samples.pick(self.pick_sample, None, [self.second, self.patch_status], **PRIVATE).success(
            match, chosen, [self.patches, self.patch_status], **LATEST
        )
        self.used = self.grid.choose(
            self.use, chosen, [selection.method, selection.layers, self.frame.navigation, self.status], **PRIVATE
        )
        selection.model.change(self.offer, [selection.model, self.methods], [self.methods, self.patch_layer], **PRIVATE)
        maps, patches = [compared, wanted, picked], [matched, sampled]
        self.status.stop(lambda: STOPPED, None, [self.status], cancels=maps, **QUIET)
        self.patch_status.stop(lambda: STOPPED, None, [self.patch_status], cancels=patches, **QUIET)
        everything = [self.grid, self.patches, self.status, self.patch_status]
        selection.picture.clear(self.clear, None, everything, cancels=[*maps, *patches], **QUIET)

    def hands_over(self) -> list[Any]:
        """Taking a cell's method and layers over to Explain."""
        return [self.used]

    def compare_now(self, given: Given, request: gr.Request) -> Generator[Update, None, None]:
        """Compare what is chosen, on the picture."""
        choices = self._choices(given)
        yield {self.status: status_line("running", "Comparing…")}
        try:
            choices.check()
            compared = yield from self.frame.work.follow(
                lambda task: compare_choices(self.frame.pool, choices, task),
                self._telling,
                owner=owner_of(request),
                slow=choices.slow,
            )
            token = keep_comparison(self.frame.results, compared.comparison)
            recipes = {**copies_of(compared), "address": address_of(compared, DEFAULT_METHODS)}
            view = grid_of(compared.comparison, compared.columns, token, FILES, recipes)
        except Exception as error:
            message, shown = worded(error)
            yield {self.grid: {"error": message}, self.status: status_line("error", message)}
            raise shown from error
        yield {self.grid: view, self.status: status_line("done", _done(compared))}

    def compare_once_settled(self, given: Given, request: gr.Request) -> Generator[Update, None, None]:
        """Compare by itself; where the model was changed, its layers and classes come a moment later, and ask again."""
        choices = self._choices(given)
        if choices.picture is None:
            yield {self.grid: None, self.status: status_line("ready", READY)}
            return
        with in_words():
            settled = yield from self.frame.work.follow(
                lambda task: choices.settled(self.frame.pool), self._telling, owner=owner_of(request)
            )
        if settled:
            yield from self.compare_if_quick(given, request)
        else:
            yield {self.status: status_line("running", "Loading the model…")}

    def compare_if_quick(self, given: Given, request: gr.Request) -> Generator[Update, None, None]:
        """Compare without having been asked by the button, unless one of the methods takes long."""
        choices = self._choices(given)
        with in_words():
            slow = choices.slow
        if choices.picture is None:
            yield {self.status: status_line("ready", READY)}
        elif slow:
            yield {self.status: status_line("ready", SLOW)}
        else:
            yield from self.compare_now(given, request)

    def match_patches(self, given: Given, request: gr.Request) -> Generator[Update, None, None]:
        """Find which patches of the picture, or of two, look alike."""
        selection = self.frame.selection
        picture, second, model = given[selection.picture], given[self.second], given[selection.model]
        layer = next(iter(given[self.patch_layer]), _FINER)
        if picture is None:
            yield {self.patches: None, self.patch_status: status_line("ready", PATCHES_READY)}
            return
        yield {self.patch_status: status_line("running", "Comparing patches…")}
        try:
            alike = yield from self.frame.work.follow(
                lambda task: compare_patches(self.frame.pool, picture, second, model, layer),
                lambda text: {self.patch_status: status_line("running", text)},
                owner=owner_of(request),
            )
            view = patches_of(alike, patches_python(alike, random=self.frame.pool.load(model).weights.random))
        except Exception as error:
            message, shown = worded(error)
            yield {self.patches: {"error": message}, self.patch_status: status_line("error", message)}
            raise shown from error
        rows, columns = alike.grid
        done = f"Done: {rows} × {columns} patches at {alike.layer} in {alike.seconds:.2f} s."
        yield {self.patches: view, self.patch_status: status_line("done", done)}

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
        return {**updates, self.frame.navigation: "explain", self.status: told}

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

    def clear(self) -> Update:
        """Back to the beginning."""
        ready = {self.status: status_line("ready", READY), self.patch_status: status_line("ready", PATCHES_READY)}
        return {self.grid: None, self.patches: None, **ready}

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

    def _telling(self, text: str) -> Update:
        return {self.status: status_line("running", text)}


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
