"""How the page's events run, and events of a view's own, where Gradio 6.31 knows only those of its own components."""

from __future__ import annotations

from typing import Any

import gradio as gr
from gradio.events import EventListener

#: Of an event that is nothing for programs: the tab itself says how far it is, and the queue of models, not Gradio's,
#: decides what runs.
PRIVATE: dict[str, Any] = {"concurrency_limit": None, "api_visibility": "private", "show_progress": "hidden"}

#: Likewise, of one that begins at once, whatever runs, and takes its place.
LATEST: dict[str, Any] = {**PRIVATE, "trigger_mode": "multiple"}

#: Of one that runs no model and waits for nothing.
QUIET: dict[str, Any] = {"queue": False, "api_visibility": "private", "show_progress": "hidden"}


def trigger_of(view: gr.HTML, name: str) -> Any:
    """The event that a view's script triggers as ``name``, for ``gr.on``, beside those of other components."""
    getattr(view, name)  # raises where the script has no such trigger
    listener = EventListener(event_name=name)
    listener.__self__ = view  # type: ignore[attr-defined]
    return listener
