"""The web page: its tabs, its limits, and how to serve it."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

import gradio as gr

from camapp.backbones.load import DEFAULT_MODEL
from camapp.errors import CamappError
from camapp.ui.environment import refuse_vibe_mode
from camapp.ui.explain.api import add_api
from camapp.ui.explain.summary import device_text
from camapp.ui.explain.tab import ExplainTab
from camapp.ui.frame import look
from camapp.ui.frame.address import notify, read_address
from camapp.ui.frame.models import ModelPool
from camapp.ui.frame.navigation import navigation
from camapp.ui.frame.results import Results
from camapp.ui.frame.scheduler import MOST_WAITING, Scheduler
from camapp.ui.frame.selection import Selection
from camapp.ui.frame.tab import STALE, Frame, Tab
from camapp.ui.server import HOST, Page

PORT = 7860

# Events that Gradio keeps waiting for a thread; how many may wait for a model is the scheduler's to say.
MOST_EVENTS = 200

TABS: tuple[type[Tab], ...] = (ExplainTab,)


def build(
    *,
    models: str | Path | None = None,
    model: str = DEFAULT_MODEL,
    random_weights: bool = False,
    device: str = "auto",
    max_queue: int = MOST_WAITING,
) -> Page:
    """Build the page.

    Args:
        models: a folder of the user's own model cards.
        model: the model chosen at first.
        random_weights: offer every model, with random weights, under a loud banner.
        device: as for ``camapp.load_model``.
        max_queue: how many requests may wait; further ones are told that the queue is full.

    Returns:
        The page; its ``launch`` keeps the safe settings.

    Raises:
        ModelError, WeightsError: the model does not exist, or its weights are not here.
        UsageError: an environment in which the page must not run, or a device that is not there.
    """
    refuse_vibe_mode()
    pool = ModelPool(models, model, random_weights=random_weights, device=device)
    results, work, selection = Results(), Scheduler(max_queue), Selection(pool)
    loaded = pool.load(pool.default)
    style = look.style([(kind.name, kind.shows) for kind in TABS])
    with Page([results.route()], style, title="camapp: see where a vision model looks", fill_width=True) as page:
        with gr.Row(elem_id="topbar"):
            gr.HTML(_title_bar(), elem_id="title", apply_default_css=False)
            selection.draw_model()
            gr.HTML(_badges(device_text(loaded)), elem_id="badges", apply_default_css=False, js_on_load=_BUTTONS)
        if random_weights:
            gr.HTML(RANDOM_BANNER, elem_id="random-weights", apply_default_css=False)
        tabs = navigation([(kind.name, kind.title) for kind in TABS], elem_id="navigation")
        frame = Frame(pool, results, work, selection, tabs)
        opened = [kind(frame) for kind in TABS]
        _draw(frame, opened)
        _connect(page, frame, opened)
        add_api(pool, work)
    page.queue(max_size=MOST_EVENTS, default_concurrency_limit=None, api_open=False)
    return page


def _draw(frame: Frame, tabs: list[Tab]) -> None:
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


def _connect(page: gr.Blocks, frame: Frame, tabs: list[Tab]) -> None:
    """The events of the tabs; what a change of the selection makes stale; what an address asks for."""
    selection = frame.selection
    for tab in tabs:
        tab.connect()
    others = [view for tab in tabs if tab.name != ExplainTab.name for view in tab.views()]
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
            js=f"() => Array({len(others)}).fill({{stale: true}})",
            show_progress="hidden",
            api_visibility="private",
        )

    def read(request: gr.Request) -> dict[Any, Any]:
        query = dict(request.query_params)
        updates, notices = read_address(query, frame.pool, selection)
        model = next((value.value for key, value in updates.items() if key is selection.model), frame.pool.default)
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
    page.load(read, None, outputs, show_progress="hidden", api_visibility="private")


def serve(
    host: str = HOST,
    port: int = PORT,
    *,
    models: str | Path | None = None,
    model: str = DEFAULT_MODEL,
    random_weights: bool = False,
    device: str = "auto",
    open_browser: bool = False,
    max_queue: int = MOST_WAITING,
) -> None:
    """Build the page and serve it until interrupted or terminated.

    Args:
        host: the address to serve on; any other than 127.0.0.1 lets other machines in.
        port: the port to serve on.
        models: as for ``build``.
        model: as for ``build``.
        random_weights: as for ``build``.
        device: as for ``build``.
        open_browser: open the page in the user's browser.
        max_queue: as for ``build``.

    Raises:
        CamappError: as for ``build``; or the port is taken.
    """
    page = build(models=models, model=model, random_weights=random_weights, device=device, max_queue=max_queue)
    page.launch(server_name=host, server_port=port, inbrowser=open_browser)


RANDOM_BANNER = (
    '<p class="random-banner" role="note">RANDOM WEIGHTS: these models have learned nothing. '
    "Predictions and heatmaps mean nothing.</p>"
)


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


def _title_bar() -> str:
    return '<header class="title-bar"><h1>camapp</h1><p>See where a vision model looks.</p></header>'


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
