"""Of one visitor's requests for one view only the latest is answered; the ones before it are stopped."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator, Iterator
from functools import wraps
from typing import Any, TypeAlias

import gradio as gr

from camapp.ui.frame.messages import owner_of
from camapp.ui.frame.selection import Update

# Answers an event: the values of the controls, and who asks, become one update after the other.
Answer: TypeAlias = Callable[[dict[Any, Any], gr.Request], Generator[Update, None, None]]


class Latest:
    """Knows which request of each visitor is the latest, among all the events that fill one view.

    Gradio 6.31 makes the requests of one event wait for each other at best, and knows nothing of those of other events:
    a slow result would come over the quick one that was asked for after it.
    """

    def __init__(self) -> None:
        self._latest: dict[str, object] = {}
        self._lock = threading.Lock()

    def only(self, answer: Answer) -> Callable[[dict[Any, Any], gr.Request], Iterator[Update]]:
        """``answer``, as a handler that ends without a word once the same visitor has asked anew."""

        @wraps(answer)
        def answered(given: dict[Any, Any], request: gr.Request) -> Iterator[Update]:
            owner, ticket = owner_of(request), object()
            with self._lock:
                self._latest[owner] = ticket
            try:
                with contextlib.closing(answer(given, request)) as steps:  # a task that it follows is cancelled
                    for step in steps:
                        if self._latest.get(owner) is not ticket:
                            return
                        yield step
            finally:
                with self._lock:
                    if self._latest.get(owner) is ticket:
                        del self._latest[owner]

        return answered
