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


def toast(error: CamappError) -> gr.Error:
    """A message for the page, which shows it as HTML."""
    return gr.Error(html.escape(str(error), quote=False), print_exception=False)


@contextlib.contextmanager
def in_words() -> Iterator[None]:
    """Turn any error into one with a message, as Gradio shows no text for others; the unexpected goes to the log."""
    try:
        yield
    except gr.Error:
        raise
    except CamappError as error:
        raise toast(error) from error
    except Exception as error:
        _log.exception("the page met an unexpected error")
        raise gr.Error(UNEXPECTED, print_exception=False) from error
