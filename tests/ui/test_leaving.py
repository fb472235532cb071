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
from camapp.ui.compare import api as compare_api
from camapp.ui.environment import new_result_folder
from camapp.ui.explain import api as explain_api
from camapp.ui.features import api as features_api
from camapp.ui.frame import scheduler
from camapp.ui.frame.models import ModelPool
from camapp.ui.frame.scheduler import Scheduler
from camapp.ui.inspect import api as inspect_api
from camapp.ui.inspect.choices import Looks
from tests.ui.features.made import coloured_zip
from tests.ui.served import ASSETS

CAT = str(ASSETS / "chelsea.jpg")


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set once the work, which here lasts until it is cancelled, was."""
    event = threading.Event()

    def until_cancelled(progress: Callable[[int, int], None], cancelled: Callable[[], bool]) -> None:
        progress(1, 9)
        until = time.monotonic() + 60
        while time.monotonic() < until:
            if cancelled():
                event.set()
                raise StoppedError("stopped")
            time.sleep(0.02)

    def by_task(*given: Any) -> None:
        until_cancelled(given[-1].progress, given[-1].cancelled)

    def by_words(*_: object, progress: Any, cancel: Any) -> None:
        until_cancelled(progress, cancel)

    monkeypatch.setattr(explain_api, "explain_choices", by_task)
    monkeypatch.setattr(compare_api, "compare_choices", by_task)
    monkeypatch.setattr(Looks, "channels", lambda *_: None)
    monkeypatch.setattr(Looks, "inspection", by_task)
    monkeypatch.setattr(features_api, "extract", by_words)
    for room in (explain_api, compare_api, inspect_api, features_api):
        monkeypatch.setattr(room, "PROGRAMS_TOLD_EVERY", scheduler.TOLD_EVERY)
    return event


@pytest.fixture
def events(pool: ModelPool, ended: threading.Event) -> Iterator[dict[str, Callable[..., Any]]]:
    """What answers the events, by name."""
    work = Scheduler()
    with gr.Blocks(analytics_enabled=False) as page:
        explain_api.add_api(pool, work)
        compare_api.add_compare_api(pool, work)
        features_api.add_api(pool, work)
        inspect_api.add_api(Looks(pool), work)
    yield {str(one.api_name): one.fn for one in page.fns.values()}
    del page
    with warnings.catch_warnings():  # of the event loops that gr.Blocks leaves open (Gradio 6.31)
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("explain", [CAT, "efficientnet_lite0", "", "gradcam", "", "", "model"]),
        ("explain", [CAT, "efficientnet_lite0", "", "scorecam", "", "", "model"]),
        ("compare", [CAT, "efficientnet_lite0", "gradcam, layercam", "", ""]),
        ("inspect", [CAT, "efficientnet_lite0", "", "mean", "", 4]),
        ("features", [None, "efficientnet_lite0", "penultimate", "auto", False, "npz"]),
        ("probe", [None, "efficientnet_lite0", "penultimate", "auto", False, "linear", 0.25, ""]),
    ],
)
def test_a_program_that_leaves_ends_its_work(
    name: str, values: list[Any], events: dict[str, Callable[..., Any]], ended: threading.Event
) -> None:
    assert inspect.isgeneratorfunction(events[name])  # which is what Gradio closes
    files = [str(coloured_zip(new_result_folder() / "x.zip", 2))]
    answers = events[name](*(files if value is None else value for value in values), gr.Request())
    told = next(answers)
    status = next(part for part in told if part is not None)
    assert status["status"].startswith("Running… step 1 of 9")
    assert sum(part is not None for part in told) == 1  # no file yet
    assert not ended.is_set()
    answers.close()
    assert ended.wait(10)
