"""Events of a view's own, where Gradio 6.31 knows only those of its own components."""

from __future__ import annotations

from typing import Any

import gradio as gr
from gradio.events import EventListener


def trigger_of(view: gr.HTML, name: str) -> Any:
    """The event that a view's script triggers as ``name``, for ``gr.on``, beside those of other components."""
    getattr(view, name)  # raises where the script has no such trigger
    listener = EventListener(event_name=name)
    listener.__self__ = view  # type: ignore[attr-defined]
    return listener
