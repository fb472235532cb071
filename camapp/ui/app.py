"""The web page: its tabs, its limits, and how to serve it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from camapp.backbones.load import DEFAULT_MODEL
from camapp.ui.batch.tab import BatchTab
from camapp.ui.compare.api import add_compare_api
from camapp.ui.compare.tab import CompareTab
from camapp.ui.environment import refuse_vibe_mode
from camapp.ui.explain.api import add_api
from camapp.ui.explain.summary import device_text
from camapp.ui.explain.tab import ExplainTab
from camapp.ui.features.api import add_api as add_features_api
from camapp.ui.features.tab import FeaturesTab
from camapp.ui.frame import look
from camapp.ui.frame.models import ModelPool
from camapp.ui.frame.navigation import navigation
from camapp.ui.frame.results import Results
from camapp.ui.frame.scheduler import MOST_WAITING, Scheduler
from camapp.ui.frame.selection import Selection
from camapp.ui.frame.tab import Frame, Tab
from camapp.ui.inspect.tab import InspectTab
from camapp.ui.layout import connect_tabs, draw_tabs, draw_top_bar
from camapp.ui.passwords import Passwords
from camapp.ui.server import HOST, Page

PORT = 7860

# Events that Gradio keeps waiting for a thread; how many may wait for a model is the scheduler's to say.
MOST_EVENTS = 200

TABS: tuple[type[Tab], ...] = (ExplainTab, CompareTab, BatchTab, FeaturesTab, InspectTab)


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
        draw_top_bar(selection, device_text(loaded), random_weights=random_weights)
        tabs = navigation([(kind.name, kind.title) for kind in TABS], elem_id="navigation")
        frame = Frame(pool, results, work, selection, tabs)
        opened = [kind(frame) for kind in TABS]
        draw_tabs(frame, opened)
        connect_tabs(page, frame, opened)
        add_api(pool, work)
        add_features_api(pool, work)
        add_compare_api(pool, work)
    page.queue(max_size=MOST_EVENTS, default_concurrency_limit=None, api_open=False)
    return page


def mount(app: FastAPI, path: str = "/camapp", *, auth_file: str | Path | None = None, **options: Any) -> FastAPI:
    """Make the page a part of another application.

    Args:
        app: the application.
        path: where the page lies in it; ``PATH/healthz`` says that it is up.
        auth_file: as for ``serve``.
        options: as for ``build``.

    Returns:
        The application.

    Raises:
        CamappError: as for ``build`` and ``serve``.

    Example:
        >>> app = mount(FastAPI(), "/camapp")  # uvicorn MODULE:app
    """
    passwords = None if auth_file is None else Passwords.from_file(auth_file)
    build(**options).mount(app, "/" + path.strip("/"), passwords)
    return app


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
    auth_file: str | Path | None = None,
    root_path: str | None = None,
    trusted_hosts: Sequence[str] = (),
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
        auth_file: a file of lines ``name:password`` that only its owner may read; by default nobody is asked.
        root_path: the page's path (or whole address) behind a proxy, such as ``/camapp``.
        trusted_hosts: further names under which it is reached, where a proxy hands requests on to 127.0.0.1.

    Raises:
        CamappError: as for ``build``; the port is taken; or the file of passwords cannot be used.
    """
    passwords = None if auth_file is None else Passwords.from_file(auth_file)
    print(f"camapp: loading {model}…", flush=True)
    page = build(models=models, model=model, random_weights=random_weights, device=device, max_queue=max_queue)
    page.launch(
        server_name=host,
        server_port=port,
        inbrowser=open_browser,
        root_path=root_path,
        passwords=passwords,
        trusted_hosts=trusted_hosts,
    )
