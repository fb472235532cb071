"""The answers of the Features tab's events: none of them leaves the page waiting."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gradio as gr
import pytest

from camapp.resources import resource_folder
from camapp.ui.environment import new_result_folder
from camapp.ui.features import tab as room
from camapp.ui.features.extracting import ALIASES
from camapp.ui.features.tab import FeaturesTab
from camapp.ui.frame.messages import UNEXPECTED
from camapp.ui.frame.models import ModelPool
from tests.ui.drawn import MODEL, REQUEST, drawn


@pytest.fixture(scope="module")
def tab(pool: ModelPool) -> Iterator[FeaturesTab]:
    with drawn(FeaturesTab, pool) as one:
        yield one


@pytest.fixture
def given(tab: FeaturesTab) -> dict[Any, Any]:
    folder = new_result_folder()
    files = [shutil.copy(resource_folder("assets") / name, folder) for name in ("chelsea.jpg", "coffee.jpg")]
    return {
        tab.files: list(map(str, files)),
        tab.frame.selection.model: MODEL,
        tab.layers: ["penultimate"],
        tab.pool: "auto",
        tab.normalize: False,
        tab.labels: "",
        tab.token: "",
        tab.kind: "linear",
        tab.share: 0.25,
    }


def end_of(steps: Iterator[dict[Any, Any]]) -> tuple[dict[Any, Any], gr.Error | None]:
    """What the page shows in the end, and the error that it met."""
    page: dict[Any, Any] = {}
    try:
        for update in steps:
            page |= update
    except gr.Error as error:
        return page, error
    return page, None


def test_pictures_become_features(tab: FeaturesTab, given: dict[Any, Any]) -> None:
    page, error = end_of(tab.extract(given, REQUEST))
    assert error is None
    assert page[tab.status]["text"].startswith("Done: 2 pictures")
    assert page[tab.labels].startswith("chelsea.jpg,")


@pytest.mark.parametrize("event", ["extract", "train"])
def test_an_error_in_making_a_view_is_told_too(
    tab: FeaturesTab, given: dict[Any, Any], event: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "keep_features", lambda *_: Path("/nowhere/at/all").read_bytes())
    page, error = end_of(getattr(tab, event)(given, REQUEST))
    assert error is not None
    assert page[tab.status] == {"state": "error", "text": UNEXPECTED}


def test_a_classifier_without_labels_is_refused_in_its_own_view(tab: FeaturesTab, given: dict[Any, Any]) -> None:
    page, error = end_of(tab.train(given, REQUEST))
    assert error is not None
    assert page[tab.probe] == {"error": page[tab.status]["text"]}


def test_what_was_begun_first_says_nothing_once_something_else_was_begun(
    tab: FeaturesTab, given: dict[Any, Any]
) -> None:
    early = tab.train(given, REQUEST)
    next(early)
    page, _ = end_of(tab.extract(given, REQUEST))
    assert page[tab.status]["state"] == "done"
    assert list(early) == [{tab.status: gr.skip()}]


def test_clearing_the_files_ends_what_runs(tab: FeaturesTab, given: dict[Any, Any]) -> None:
    early = tab.extract(given, REQUEST)
    next(early)
    assert tab.clear(REQUEST)[tab.summary] is None
    assert list(early) == [{tab.status: gr.skip()}]


def test_a_model_that_there_is_not_leaves_the_layers_that_every_model_has(tab: FeaturesTab) -> None:
    *_, last = tab.offer_layers("../secret", REQUEST)
    assert [option["value"] for option in last[tab.layers]["options"]] == list(ALIASES)
    *_, last = tab.offer_layers(MODEL, REQUEST)
    assert "bn2" in [option["value"] for option in last[tab.layers]["options"]]
