"""The web page: its tabs, its limits, and how to serve it."""

from __future__ import annotations

import html
from pathlib import Path

import gradio as gr

from camapp.backbones.load import DEFAULT_MODEL
from camapp.ui.api import add_api
from camapp.ui.environment import refuse_vibe_mode
from camapp.ui.explain_tab import ExplainTab
from camapp.ui.models import ModelPool
from camapp.ui.results import Results
from camapp.ui.server import HOST, Page
from camapp.ui.summary import device_text

PORT = 7860
MAX_QUEUE = 16


def build(
    *,
    models: str | Path | None = None,
    model: str = DEFAULT_MODEL,
    random_weights: bool = False,
    device: str = "auto",
    max_queue: int = MAX_QUEUE,
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
    results = Results()
    loaded = pool.load(pool.default)
    with Page([results.route()], title="camapp: see where a vision model looks", fill_width=True) as page:
        gr.HTML(_title_bar(device_text(loaded)), elem_id="title", apply_default_css=False, js_on_load=_SHOW_API)
        if random_weights:
            gr.HTML(RANDOM_BANNER, elem_id="random-weights", apply_default_css=False)
        with gr.Tabs(elem_id="tabs"), gr.Tab("Explain", id="explain"):
            ExplainTab(pool, results)
        add_api(pool)
    page.queue(max_size=max_queue, default_concurrency_limit=1, api_open=False)
    return page


def serve(
    host: str = HOST,
    port: int = PORT,
    *,
    models: str | Path | None = None,
    model: str = DEFAULT_MODEL,
    random_weights: bool = False,
    device: str = "auto",
    open_browser: bool = False,
    max_queue: int = MAX_QUEUE,
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


# Gradio's own button opens its description of the API; it stands in the footer, which the style sheet hides.
_SHOW_API = """
element.querySelector(".title-api").addEventListener("click", () => {
  document.querySelector("footer .show-api")?.click();
});
"""


def _title_bar(device: str) -> str:
    return (
        '<header class="title-bar"><h1>camapp</h1><p>See where a vision model looks.</p>'
        f'<p class="title-side"><span>Runs on {html.escape(device)}</span>'
        '<button type="button" class="title-api">Use it from Python</button></p></header>'
    )
