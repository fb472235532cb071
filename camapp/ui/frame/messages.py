"""What the page says: the status line, and errors in their own words."""

from __future__ import annotations

import contextlib
import html
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gradio as gr

from camapp.errors import CamappError, UsageError
from camapp.ui.frame.component import view

UNEXPECTED = "Something went wrong on the server (see its log). Try again, or with another picture."
# Longer ones are no names of models, layers, methods or classes.
LONGEST_TEXT = 2000

STOPPED = "Stopped."
READY = "Ready. Upload or paste a picture, or pick a sample."

_HERE = Path(__file__).parent
_log = logging.getLogger(__name__)


def status_bar(elem_id: str, ready: str = READY) -> gr.HTML:
    """A line that says how things stand, to screen readers too; while something runs it has a button.

    Its value is made by ``status_line``; the button triggers ``stop``.

    Args:
        elem_id: its id.
        ready: what it says at first.
    """
    return view(_HERE, "status", value=status_line("ready", ready), elem_id=elem_id)


def status_line(state: str, text: str = READY) -> dict[str, str]:
    """A value of a status bar: one of ready, running, done, partly (done with failures), error; and a sentence."""
    return {"state": state, "text": text}


def worded(error: Exception) -> tuple[str, gr.Error]:
    """An error as a sentence, and as a message that Gradio shows (as HTML); the unexpected goes to the log."""
    if isinstance(error, CamappError):
        return str(error), gr.Error(html.escape(str(error), quote=False), print_exception=False)
    if isinstance(error, gr.Error):
        return str(error.message), error
    _log.error("the page met an unexpected error", exc_info=error)
    return UNEXPECTED, gr.Error(UNEXPECTED, print_exception=False)


def told(
    status: gr.HTML, steps: Iterator[dict[Any, Any]], failed: Callable[[str], dict[Any, Any]] = lambda message: {}
) -> Iterator[dict[Any, Any]]:
    """The updates of an event; where they fail, the page says why.

    Args:
        status: the status bar that says it.
        steps: the updates.
        failed: what an error, as a sentence, makes of other views.

    Raises:
        gr.Error: the error, after it was told.
    """
    try:
        yield from steps
    except Exception as error:
        message, shown = worded(error)
        yield {**failed(message), status: status_line("error", message)}
        raise shown from error


@contextlib.contextmanager
def in_words() -> Iterator[None]:
    """Turn any error into one with a message, as Gradio shows no text for others."""
    try:
        yield
    except gr.Error:
        raise
    except Exception as error:
        raise worded(error)[1] from error


def text_of(value: Any, name: str) -> str:
    """A text that a program sent; None is an empty one.

    Raises:
        UsageError: something else, or one that is too long to be a name.
    """
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > LONGEST_TEXT:
        what = f"{len(value)} letters" if isinstance(value, str) else type(value).__name__
        raise UsageError(f"{name} is {what}; needed is a text of {LONGEST_TEXT} letters at most.")
    return value


def sent(event: gr.EventData, name: str) -> Any:
    """What the page sent along with an event: a text or a whole number; anyone can send anything.

    Raises:
        gr.Error: there is no such thing.
    """
    value = event._data.get(name) if isinstance(event._data, dict) else None
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise gr.Error(f'The request is missing "{name}".', print_exception=False)
    return value


def owner_of(request: gr.Request) -> str:
    """Who waits for a request, for the fairness of the queue: the window, or else the address."""
    client = getattr(request, "client", None)
    return str(getattr(request, "session_hash", None) or getattr(client, "host", "") or "")
