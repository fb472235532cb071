"""How the page is laid out: a top bar, tabs, the shared selection on the left, the open tab's results on the right."""

from __future__ import annotations

import html
from typing import Any

import gradio as gr

from camapp.errors import CamappError
from camapp.ui.frame.address import notify, read_address
from camapp.ui.frame.events import PRIVATE
from camapp.ui.frame.selection import Selection
from camapp.ui.frame.tab import STALE, Frame, Tab

# What the keyboard does, as the page's help tells it.
KEYS = (
    ("1 to 5", "open a tab"),
    ("Ctrl + Enter", "run what the open tab does"),
    ("[ and ]", "the layer before, the layer after"),
    ("Arrow keys", "move the cross over a heatmap, ten pixels with Shift; read the value there"),
    ("Home", "the hottest place of a heatmap"),
    ("?", "this list"),
)

# Gradio's own button opens its description of the API; it stands in the footer, which the style sheet hides.
_BUTTONS = """
element.querySelector(".title-api").addEventListener("click", () => {
  document.querySelector("footer .show-api")?.click();
});
element.querySelector(".title-keys").addEventListener("click", () => element.querySelector("#keys").showModal());
"""


RANDOM_BANNER = (
    '<p class="random-banner" role="note">RANDOM WEIGHTS: these models have learned nothing. '
    "Predictions and heatmaps mean nothing.</p>"
)

_TITLE = '<header class="title-bar"><h1>camapp</h1><p>See where a vision model looks.</p></header>'


def draw_top_bar(selection: Selection, device: str, *, random_weights: bool) -> None:
    """The name, the model, what it runs on and how long it took; and a banner where the weights are random."""
    with gr.Row(elem_id="topbar"):
        gr.HTML(_TITLE, elem_id="title", apply_default_css=False)
        selection.draw_model()
        gr.HTML(_badges(device), elem_id="badges", apply_default_css=False, js_on_load=_BUTTONS)
    if random_weights:
        gr.HTML(RANDOM_BANNER, elem_id="random-weights", apply_default_css=False)


def draw_tabs(frame: Frame, tabs: list[Tab]) -> None:
    """The sidebar with the shared selection and each tab's own controls; and the panels."""
    selection = frame.selection
    with gr.Row(elem_id="columns"):
        with gr.Column(elem_id="sidebar"):
            with gr.Column(elem_id="selection-picture", elem_classes="selection-part"):
                selection.draw_picture()
            with gr.Column(elem_id="choices"):
                with gr.Column(elem_id="selection-layers", elem_classes="selection-part"):
                    selection.draw_layers()
                with gr.Column(elem_id="selection-method", elem_classes="selection-part"):
                    selection.draw_method()
                with gr.Column(elem_id="selection-target", elem_classes="selection-part"):
                    selection.draw_target()
                for tab in tabs:
                    with gr.Column(elem_id=f"{tab.name}-controls", elem_classes="selection-part"):
                        tab.draw_controls()
        with gr.Column(elem_id="stage"):
            for tab in tabs:
                with gr.Column(elem_id=f"{tab.name}-panel", elem_classes="tab-panel"):
                    tab.draw_results()


def connect_tabs(page: gr.Blocks, frame: Frame, tabs: list[Tab]) -> None:
    """The events of the tabs; what a change of the selection makes stale; what an address asks for."""
    selection = frame.selection
    for tab in tabs:
        tab.connect()
    others = [view for tab in tabs if not tab.keeps_up for view in tab.views()]
    if others:
        gr.on(
            [
                selection.picture.change,
                selection.model.change,
                selection.layers.change,
                selection.method.change,
                selection.target.change,
            ],
            None,
            None,
            others,
            js=f"() => (window.camapp.select(), Array({len(others)}).fill({{stale: true}}))",
            **PRIVATE,
        )

    own = [view for tab in tabs if tab.keeps_up for view in tab.views()]
    for event in (event for tab in tabs for event in tab.hands_over()):
        told = f"() => Array({len(own)}).fill({{stale: true}})"
        event.success(None, None, own, js=told, **PRIVATE)

    def read(request: gr.Request) -> dict[Any, Any]:
        query = dict(request.query_params)
        updates, notices = read_address(query, frame.pool, selection)
        model = query["model"] if selection.model in updates else frame.pool.default
        for tab in tabs:
            try:
                updates |= tab.read_address(query, model)
            except CamappError as error:
                notices.append(str(error))
        if query.get("tab") in {tab.name for tab in tabs}:
            updates[frame.navigation] = query["tab"]
        if selection.picture in updates:
            updates |= {view: STALE for tab in tabs for view in tab.views()}
        notify(notices)
        return updates or {frame.navigation: gr.skip()}  # an empty dictionary passes for one value (Gradio 6.31)

    outputs = [*selection.chosen, frame.navigation, *(part for tab in tabs for part in tab.addressed())]
    outputs += [view for tab in tabs for view in tab.views()]
    # one at a time, as Gradio does unless told otherwise: an address may ask for a model that is not loaded
    page.load(read, None, outputs, show_progress="hidden", api_visibility="private")


def _badges(device: str) -> str:
    rows = "".join(f"<div><dt><kbd>{key}</kbd></dt><dd>{what}</dd></div>" for key, what in KEYS)
    return (
        '<div class="badges">'
        f'<span class="badge" id="badge-device" title="What the model runs on">{html.escape(device)}</span>'
        '<span class="badge" id="badge-time" title="Time of the last result" hidden></span>'
        '<button type="button" class="title-api">Use it from Python</button>'
        '<button type="button" class="title-keys" aria-label="Keyboard shortcuts" title="Keyboard shortcuts">?</button>'
        '<dialog id="keys" aria-label="Keyboard shortcuts"><h2>Keyboard shortcuts</h2>'
        f'<dl>{rows}</dl><form method="dialog"><button>Close</button></form></dialog></div>'
    )
