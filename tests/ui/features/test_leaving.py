"""Programs that leave: Gradio closes the event's generator, and the work that nobody waits for ends."""

from __future__ import annotations

import gc
import inspect
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr
import pytest

from camapp.errors import StoppedError
from camapp.ui.environment import new_result_folder
from camapp.ui.features import api
from camapp.ui.frame.models import ModelPool
from camapp.ui.frame.scheduler import Scheduler
from tests.ui.features.made import coloured_zip


@pytest.fixture(scope="module")
def pool() -> ModelPool:
    return ModelPool(device="cpu")


@pytest.fixture
def events(pool: ModelPool) -> Iterator[dict[str, Callable[..., Any]]]:
    """What answers the events, by name."""
    with gr.Blocks(analytics_enabled=False) as page:
        api.add_api(pool, Scheduler())
    yield {str(one.api_name): one.fn for one in page.fns.values()}
    del page
    with warnings.catch_warnings():  # of the event loops that gr.Blocks leaves open (Gradio 6.31)
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set once an extraction, which here lasts until it is cancelled, was."""
    event = threading.Event()

    def endless(*_: object, progress: Any, cancel: Any) -> None:
        progress(1, 9)
        until = time.monotonic() + 60
        while time.monotonic() < until:
            if cancel():
                event.set()
                raise StoppedError("stopped")
            time.sleep(0.02)

    monkeypatch.setattr(api, "extract", endless)
    return event


@pytest.mark.parametrize(("name", "more"), [("features", ["npz"]), ("probe", ["linear", 0.25, ""])])
def test_a_program_that_leaves_ends_its_work(
    name: str, more: list[Any], pool: ModelPool, events: dict[str, Callable[..., Any]], ended: threading.Event
) -> None:
    assert inspect.isgeneratorfunction(events[name])  # which is what Gradio closes
    archive = coloured_zip(new_result_folder() / "x.zip", 2)
    answers = events[name]([str(archive)], pool.default, "penultimate", "auto", False, *more, gr.Request())
    path, told = next(answers)
    assert path is None
    assert told["status"].startswith("Running… step 1 of 9")
    assert not ended.is_set()
    answers.close()
    assert ended.wait(10)
