"""A tab of the page without a browser: its events are called as Gradio calls them."""

from __future__ import annotations

import contextlib
import gc
import warnings
from collections.abc import Iterator
from typing import TypeVar

import gradio as gr

from camapp.ui.frame.models import ModelPool
from camapp.ui.frame.navigation import navigation
from camapp.ui.frame.results import Results
from camapp.ui.frame.scheduler import Scheduler
from camapp.ui.frame.selection import Selection
from camapp.ui.frame.tab import Frame, Tab

Drawn = TypeVar("Drawn", bound=Tab)

MODEL = "efficientnet_lite0"
REQUEST = gr.Request(session_hash="somebody")


@contextlib.contextmanager
def drawn(kind: type[Drawn], pool: ModelPool) -> Iterator[Drawn]:
    """A tab with the shared controls, drawn and connected, beside Explain and Compare."""
    with gr.Blocks() as page:
        selection = Selection(pool)
        selection.draw_model()
        selection.draw_picture()
        selection.draw_layers()
        selection.draw_method()
        selection.draw_target()
        tabs = navigation(list({"explain": "Explain", "compare": "Compare", kind.name: kind.title}.items()))
        tab = kind(Frame(pool, Results(), Scheduler(), selection, tabs))
        tab.draw_controls()
        tab.draw_results()
        tab.connect()
        yield tab
    del page
    with warnings.catch_warnings():  # of the event loops that gr.Blocks leaves open (Gradio 6.31)
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
