"""The answers of the Inspect tab's events, one view after the other."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import gradio as gr
import pytest

from camapp.resources import resource_folder
from camapp.ui.frame.models import ModelPool
from camapp.ui.frame.scheduler import MOST_WAITING, Scheduler
from camapp.ui.inspect.tab import WAITING, InspectTab
from tests.ui.drawn import MODEL, REQUEST, drawn

CHELSEA = str(resource_folder("assets") / "chelsea.jpg")


@pytest.fixture(scope="module")
def tab(pool: ModelPool) -> Iterator[InspectTab]:
    with drawn(InspectTab, pool) as one:
        yield one


def given(tab: InspectTab, **instead: Any) -> dict[Any, Any]:
    selection = tab.frame.selection
    values = {"picture": CHELSEA, "model": MODEL, "layers": ["bn2"], "method": ["gradcam"], "target": -1}
    own = {"ranking": "mean", "most": 16, "scale": "channel"}
    return {
        **{getattr(selection, name): instead.get(name, value) for name, value in values.items()},
        **{getattr(tab, name): instead.get(name, value) for name, value in own.items()},
    }


def shown(updates: Iterator[dict[Any, Any]]) -> tuple[dict[Any, Any], gr.Error | None]:
    """What the page shows in the end, and the error that it met."""
    page: dict[Any, Any] = {}
    try:
        for update in updates:
            page |= update
    except gr.Error as error:
        return page, error
    return page, None


def test_layers_channels_and_depth_come_one_after_the_other(tab: InspectTab) -> None:
    order = [view for update in tab.look(given(tab), REQUEST) for view in update if view is not tab.status]
    assert order == [tab.tree, tab.channels, tab.depth]
    page, _ = shown(tab.look(given(tab), REQUEST))
    assert page[tab.channels]["layer"] == "bn2"
    assert page[tab.status]["text"].startswith("Done: bn2, ")


def test_without_a_picture_the_layers_are_there_and_the_rest_waits(tab: InspectTab) -> None:
    page, error = shown(tab.look(given(tab, picture=None), REQUEST))
    assert error is None
    assert page[tab.tree]
    assert page[tab.channels] == page[tab.depth] == WAITING


@contextlib.contextmanager
def full_queue(work: Scheduler) -> Iterator[None]:
    """So many others wait that nobody is let in."""
    gate, lane = threading.Event(), work._lanes[True]
    for number in range(MOST_WAITING + 1):
        job = {"owner": f"other {number}", "slow": True}
        threading.Thread(target=work.run, args=(lambda task: gate.wait(30),), kwargs=job, daemon=True).start()
        deadline = time.monotonic() + 10
        while not (lane.running and lane.waiting == number) and time.monotonic() < deadline:
            time.sleep(0.002)
    try:
        yield
    finally:
        gate.set()


def test_an_error_over_depth_leaves_the_channels_on_show(tab: InspectTab) -> None:
    looked = tab.look(given(tab, picture=str(resource_folder("assets") / "rocket.jpg")), REQUEST)
    while tab.channels not in (update := next(looked)):
        pass
    with full_queue(tab.frame.work):
        page, error = shown(looked)
    assert error is not None
    assert update[tab.channels]["layer"] == "bn2"
    assert tab.channels not in page
    assert "queue is full" in page[tab.depth]["error"]
    assert page[tab.status] == {"state": "error", "text": page[tab.depth]["error"]}


def test_an_error_over_channels_is_theirs_and_depth_waits(tab: InspectTab) -> None:
    page, error = shown(tab.look(given(tab, target="no such class"), REQUEST))
    assert error is not None
    assert "no such class" in page[tab.channels]["error"]
    assert page[tab.depth] == WAITING


def test_a_choice_made_while_depth_is_measured_comes_first_and_stays(tab: InspectTab) -> None:
    early = tab.look(given(tab, picture=str(resource_folder("assets") / "coffee.jpg")), REQUEST)
    while tab.channels not in next(early):
        pass
    page, _ = shown(tab.look(given(tab, layers=["blocks.4.2.conv_pwl"]), REQUEST))
    assert page[tab.channels]["layer"] == "blocks.4.2.conv_pwl"
    assert list(early) == [{tab.status: gr.skip()}]
