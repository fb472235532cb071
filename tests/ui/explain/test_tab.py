"""The answers of the Explain tab's events: which of several comes in the end, and what loads a model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr
import pytest

from camapp.backbones.load import LoadedModel
from camapp.resources import resource_folder
from camapp.ui.explain.choices import NO_RIVAL, OWN_FIT
from camapp.ui.explain.tab import ExplainTab
from camapp.ui.frame.models import ModelPool
from camapp.ui.frame.tab import STALE
from tests.ui.drawn import MODEL, REQUEST, drawn

CHELSEA = str(resource_folder("assets") / "chelsea.jpg")
OTHER = "efficientnet_lite1"


class WatchedPool(ModelPool):
    """Knows which threads load models, and lets them wait for a gate."""

    def __init__(self) -> None:
        self.threads: list[str] = []
        self.gate = threading.Event()
        super().__init__(device="cpu")

    def _from_disk(self, card: Any) -> LoadedModel:
        self.threads.append(threading.current_thread().name)
        if card.name == OTHER:
            self.gate.wait(30)
        return super()._from_disk(card)


@pytest.fixture
def tab() -> Iterator[ExplainTab]:
    pool = WatchedPool()
    with drawn(ExplainTab, pool) as one:
        yield one
    pool.gate.set()


def given(tab: ExplainTab, *, tab_open: str = "explain", **instead: Any) -> dict[Any, Any]:
    selection = tab.frame.selection
    values = {"picture": CHELSEA, "model": MODEL, "layers": ["bn2"], "method": ["layercam"], "target": -1}
    own = {"rival": NO_RIVAL, "fit": OWN_FIT, "sign": "positive"}
    return {
        **{getattr(selection, name): instead.get(name, value) for name, value in values.items()},
        **{getattr(tab, name): instead.get(name, value) for name, value in own.items()},
        tab.frame.navigation: tab_open,
    }


def switching(tab: ExplainTab, **instead: Any) -> Iterator[dict[Any, Any]]:
    """Another model is chosen, and begins to load."""
    steps = tab.explain_with_model(given(tab, model=OTHER, **instead), REQUEST)
    assert next(steps)[tab.status]["text"] == "Loading the model…"
    return steps


def loaded(tab: ExplainTab) -> None:
    pool = tab.frame.pool
    assert isinstance(pool, WatchedPool)
    pool.gate.set()


def end_of(steps: Iterator[dict[Any, Any]]) -> dict[Any, Any]:
    """What the page shows in the end."""
    page: dict[Any, Any] = {}
    for update in steps:
        page |= update
    return page


def test_another_model_is_loaded_by_the_queue_and_explains_the_picture(tab: ExplainTab) -> None:
    steps = switching(tab)
    loaded(tab)
    page = end_of(steps)
    assert page[tab.frame.selection.target]["model"] == OTHER
    assert page[tab.frame.selection.method]["chosen"] == ["layercam"]
    assert page[tab.status]["text"].startswith("Done")
    pool = tab.frame.pool
    assert isinstance(pool, WatchedPool)
    assert pool.threads[-1] == "camapp quick lane"


def page_after(tab: ExplainTab, act: Callable[[gr.Request], Any]) -> dict[Any, Any]:
    """What the page shows where the visitor did something while the model was loaded; its controls fit the model."""
    steps = switching(tab)
    next(steps)
    act(REQUEST)
    loaded(tab)
    page = end_of(steps)
    assert page[tab.frame.selection.target]["model"] == OTHER
    return page


def test_stop_while_a_model_loads_fits_the_controls_to_it_and_explains_nothing(tab: ExplainTab) -> None:
    page = page_after(tab, tab.stop)
    assert page[tab.status] == {"state": "ready", "text": "Stopped."}
    assert page[tab.viewer] == {"error": "Stopped."}


def test_a_picture_that_is_cleared_while_a_model_loads_does_not_come_back(tab: ExplainTab) -> None:
    page = page_after(tab, tab.clear)
    assert page[tab.viewer] is None
    assert page[tab.status]["state"] == "ready"


def test_what_is_chosen_while_a_model_loads_is_explained_with_the_controls_that_fit_it(tab: ExplainTab) -> None:
    steps = switching(tab)
    next(steps)
    early = tab.explain_again(given(tab, model=OTHER, method=["gradcam++"]), REQUEST)
    next(early)
    loaded(tab)
    page = end_of(steps)
    assert page[tab.viewer] == STALE, "it asks again, with what is chosen by then"
    assert end_of(early) == {tab.status: gr.skip()}


def test_of_two_models_the_one_chosen_last_is_shown(tab: ExplainTab) -> None:
    early = switching(tab)
    next(early)
    loaded(tab)
    page = end_of(tab.explain_with_model(given(tab), REQUEST))
    assert page[tab.frame.selection.target]["model"] == MODEL
    assert page[tab.status]["text"].startswith("Done")
    assert list(early) == [{tab.status: gr.skip()}]


def test_a_result_does_not_come_over_what_was_selected_in_another_tab(tab: ExplainTab) -> None:
    early = tab.explain_again(given(tab), REQUEST)
    next(early)
    (only,) = tab.explain_again(given(tab, tab_open="compare", layers=["blocks.4.2.conv_pwl"]), REQUEST)
    assert only[tab.viewer] == STALE
    assert list(early) == [{tab.status: gr.skip()}]


def test_an_address_names_a_rival_without_a_model_being_loaded_for_it(tab: ExplainTab) -> None:
    updates = tab.read_address({"vs": "tabby"}, OTHER)
    assert updates[tab.rival]["chosen"] == 281
    assert not tab.frame.pool.is_loaded(OTHER)
