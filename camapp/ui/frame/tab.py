"""A tab: what it draws beside and below the shared selection, and what the frame gives it to work with."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import gradio as gr

from camapp.ui.frame.messages import owner_of
from camapp.ui.frame.models import ModelPool
from camapp.ui.frame.results import Results
from camapp.ui.frame.scheduler import Scheduler
from camapp.ui.frame.selection import Selection, Update


@dataclass(frozen=True)
class Frame:
    """What all tabs share.

    Args:
        pool: the models on offer.
        results: files for download.
        work: runs whatever needs a model.
        selection: picture, model, layers, method and class, one selection for all tabs.
        navigation: its value is the open tab's name; as an output it opens one.
    """

    pool: ModelPool
    results: Results
    work: Scheduler
    selection: Selection
    navigation: gr.HTML


class Tab:
    """A tab; its parts are drawn by ``camapp.ui.app`` inside the open ``gr.Blocks``.

    Args:
        frame: what all tabs share.
    """

    #: What it is called in ids and addresses.
    name: ClassVar[str]
    title: ClassVar[str]
    #: Which parts of the shared selection it shows: of "picture", "layers", "method", "target".
    shows: ClassVar[tuple[str, ...]] = ("picture", "layers", "method", "target")

    #: Whether it answers changes of the selection itself, so that nobody needs to tell it that its views are stale.
    keeps_up: ClassVar[bool] = False

    def __init__(self, frame: Frame) -> None:
        self.frame = frame

    def draw_controls(self) -> None:
        """Draw its own controls, below the shared ones; shown while it is open."""

    def draw_results(self) -> None:
        """Draw its panel."""

    def connect(self) -> None:
        """Answer its events; called when all tabs are drawn."""

    def read_address(self, query: Mapping[str, str], model: str) -> dict[Any, Any]:
        """Updates of its own controls that an address asks for.

        Raises:
            CamappError: nothing can be made of one of its parameters.
        """
        return {}

    def addressed(self) -> list[Any]:
        """Its own controls that an address may set."""
        return []

    def views(self) -> list[gr.HTML]:
        """Views whose result belongs to the selection: where that changes they are told ``STALE``, in the browser."""
        return []

    def loaded(self, model: str, request: gr.Request, say: Callable[[str], Update]) -> Generator[Update, None, None]:
        """Load a model by way of the queue, so that what is asked of it afterwards is quick; at once where it is ready.

        Args:
            model: its name.
            request: who waits for it.
            say: makes what is yielded of a sentence.

        Raises:
            ModelError, WeightsError: there is no such model, or it cannot be loaded.
            UsageError: the queue is full.
        """
        if self.frame.pool.is_loaded(model):
            return
        yield say("Loading the model…")
        yield from self.frame.work.follow(lambda task: self.frame.pool.load(model), say, owner=owner_of(request))

    def hands_over(self) -> list[Any]:
        """Its events that set the selection and open Explain, which then explains what is selected."""
        return []


# The value of a view whose result belongs to another selection than the present one.
STALE: dict[str, Any] = {"stale": True}
