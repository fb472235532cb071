"""What the page says: the status line, and errors in their own words."""

from __future__ import annotations

import contextlib
import html
import logging
from collections.abc import Iterator

import gradio as gr

from camapp.errors import CamappError

UNEXPECTED = "Something went wrong on the server (see its log). Try again, or with another picture."

_log = logging.getLogger(__name__)


def status_line(state: str, text: str = "Ready. Upload or paste a picture, or pick a sample.") -> str:
    """The status line: one of ready, running, done, error; and a sentence."""
    return f'<p class="status status-{state}">{html.escape(text)}</p>'


def worded(error: Exception) -> tuple[str, gr.Error]:
    """An error as a sentence, and as a message that Gradio shows (as HTML); the unexpected goes to the log."""
    if isinstance(error, CamappError):
        return str(error), gr.Error(html.escape(str(error), quote=False), print_exception=False)
    _log.error("the page met an unexpected error", exc_info=error)
    return UNEXPECTED, gr.Error(UNEXPECTED, print_exception=False)


@contextlib.contextmanager
def in_words() -> Iterator[None]:
    """Turn any error into one with a message, as Gradio shows no text for others."""
    try:
        yield
    except gr.Error:
        raise
    except Exception as error:
        raise worded(error)[1] from error
