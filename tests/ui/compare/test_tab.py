"""The answers of the Compare tab's events to requests that nobody vouches for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import gradio as gr
import pytest

from camapp.errors import UsageError
from camapp.resources import resource_folder
from camapp.ui.compare.tab import DEFAULT_METHODS, CompareTab
from camapp.ui.frame.models import ModelPool
from tests.ui.drawn import MODEL, REQUEST, drawn

CHELSEA = str(resource_folder("assets") / "chelsea.jpg")


@pytest.fixture(scope="module")
def tab(pool: ModelPool) -> Iterator[CompareTab]:
    with drawn(CompareTab, pool) as one:
        yield one


def handlers(tab: CompareTab, view: str) -> dict[str, Any]:
    """What answers the events that fill a view, by name, as Gradio calls it."""
    shown = getattr(tab, view)
    found = {}
    for event in gr.context.Context.root_block.fns.values():
        if event.fn is not None and shown in event.outputs and event.queue:
            assert event.trigger_mode == "multiple", "a later request must not wait for the one that it replaces"
            found[event.name] = event.fn
    return found


def given(tab: CompareTab, **instead: Any) -> dict[Any, Any]:
    selection = tab.frame.selection
    values = {"picture": CHELSEA, "model": MODEL, "layers": ["bn2"], "method": ["gradcam"], "target": -1, **instead}
    own = {
        tab.methods: instead.get("methods", ["gradcam", "layercam"]),
        tab.second: instead.get("second"),
        tab.patch_layer: instead.get("patch_layer", [""]),
        tab.frame.navigation: "compare",
    }
    return {
        **{getattr(selection, name): values[name] for name in ("picture", "model", "layers", "method", "target")},
        **own,
    }


def event(**sent: Any) -> gr.EventData:
    return gr.EventData(None, sent)


def test_a_comparison_ends_in_a_view_whose_files_are_kept(tab: CompareTab) -> None:
    first, *_, last = tab.compare_now(given(tab), REQUEST)
    assert first[tab.status]["state"] == "running"
    assert last[tab.status]["text"].startswith("Done: 2 maps of tiger cat")
    assert tab.frame.results.holds(last[tab.grid]["token"])
    assert last[tab.grid]["address"]["methods"] == "gradcam,layercam"


def test_what_cannot_be_compared_clears_the_maps_and_says_why(tab: CompareTab) -> None:
    steps = tab.compare_now(given(tab, layers=["<img src=x>"]), REQUEST)
    next(steps)
    failed = next(steps)
    assert 'has no layer "<img src=x>"' in failed[tab.grid]["error"]
    assert failed[tab.status]["state"] == "error"
    with pytest.raises(gr.Error) as shown:
        next(steps)
    assert "&lt;img" in str(shown.value.message)


def test_layers_of_the_model_chosen_before_wait_for_the_new_models_own(tab: CompareTab) -> None:
    (only,) = tab.compare_once_settled(given(tab, layers=["features.8"]), REQUEST)
    assert only == {tab.status: {"state": "running", "text": "Loading the model…"}}


@pytest.mark.parametrize("answer", ["compare_if_quick", "compare_once_settled"])
def test_slow_methods_wait_for_the_button(tab: CompareTab, answer: str) -> None:
    (only,) = getattr(tab, answer)(given(tab, methods=["gradcam", "scorecam"]), REQUEST)
    assert "press Compare" in only[tab.status]["text"]


@pytest.mark.parametrize("later", ["compare_now", "compare_once_settled", "compare_if_quick"])
def test_a_slow_comparison_ends_without_a_word_once_a_quick_one_was_asked_for(tab: CompareTab, later: str) -> None:
    answers = handlers(tab, "grid")
    assert set(answers) == {"compare_now", "compare_once_settled", "compare_if_quick"}
    slow = answers["compare_now"](given(tab, methods=["gradcam", "scorecam"]), REQUEST)
    assert next(slow)[tab.status]["text"] == "Comparing…"
    assert next(slow)[tab.status]["state"] == "running"
    other = answers["compare_now"](given(tab), gr.Request(session_hash="somebody else"))
    next(other)
    *_, last = answers[later](given(tab), REQUEST)
    assert [cell["method"] for cell in last[tab.grid]["cells"]] == ["gradcam", "layercam"]
    assert list(slow) == [{tab.status: gr.skip()}]
    *_, theirs = other
    assert len(theirs[tab.grid]["cells"]) == 2, "what others ask for is not stopped"


def test_patches_of_an_earlier_choice_do_not_come_after_later_ones(tab: CompareTab) -> None:
    (match,) = handlers(tab, "patches").values()
    early = match(given(tab, patch_layer=["bn2"]), REQUEST)
    next(early)
    *_, last = match(given(tab), REQUEST)
    assert last[tab.patches]["grid"] == [14, 14]
    assert list(early) == [{tab.patch_status: gr.skip()}]


def test_a_cell_sets_method_and_layer_and_opens_explain(tab: CompareTab) -> None:
    updates = tab.use(given(tab), event(method="layercam", layer="blocks.4.2.conv_pwl"))
    selection = tab.frame.selection
    assert updates[selection.method]["chosen"] == ["layercam"]
    assert updates[selection.layers]["chosen"] == ["blocks.4.2.conv_pwl"]
    assert updates[tab.frame.navigation] == "explain"
    whole = tab.use(given(tab), event(method="fullgrad", layer=""))
    assert selection.layers not in whole


@pytest.mark.parametrize(
    "sent",
    [
        {},
        {"method": "gradcam"},
        {"method": "<b>", "layer": "bn2"},
        {"method": "gradcam", "layer": "../../etc"},
        {"method": ["gradcam"], "layer": "bn2"},
        {"method": "gradcam", "layer": {"a": 1}},
    ],
)
def test_a_cell_that_there_is_not_changes_nothing(tab: CompareTab, sent: dict[str, Any]) -> None:
    with pytest.raises(gr.Error):
        tab.use(given(tab), event(**sent))


def test_patches_without_a_picture_are_an_invitation_and_with_two_a_view(tab: CompareTab) -> None:
    (only,) = tab.match_patches(given(tab, picture=None), REQUEST)
    assert only[tab.patches] is None
    *_, last = tab.match_patches(given(tab, second=CHELSEA, patch_layer=["bn2"]), REQUEST)
    assert len(last[tab.patches]["pictures"]) == 2
    assert last[tab.patch_status]["text"].startswith("Done: 7 × 7 patches at bn2")


def test_an_address_names_methods_that_suit_the_model(tab: CompareTab) -> None:
    assert tab.read_address({}, MODEL) == {}
    updates = tab.read_address({"methods": "Grad-CAM,cam"}, MODEL)
    assert updates[tab.methods]["chosen"] == ["gradcam", "cam"]
    spaced = tab.read_address({"methods": " gradcam, , cam "}, MODEL)
    assert spaced[tab.methods]["chosen"] == ["gradcam", "cam"]
    assert tab.read_address({"methods": " , "}, MODEL) == {}
    for methods in ("rollout", "nonsense", "gradcam,<b>"):
        with pytest.raises(UsageError):
            tab.read_address({"methods": methods}, MODEL)


def test_another_model_keeps_the_methods_that_suit_it(tab: CompareTab) -> None:
    updates = tab.offer(MODEL, ["cam", "rollout"], REQUEST)
    assert updates[tab.methods]["chosen"] == ["cam"]
    assert tab.offer(MODEL, ["rollout"], REQUEST)[tab.methods]["chosen"] == list(DEFAULT_METHODS)
    unknown = tab.offer("../secret", ["cam"], REQUEST)
    assert {update["__type__"] for update in unknown.values()} == {"update"}, "nothing changes"


def test_no_event_runs_a_model_beside_the_queue(tab: CompareTab) -> None:
    ran = []
    watched = tab.frame.pool.load(MODEL).module.register_forward_pre_hook(
        lambda *_: ran.append(threading.current_thread().name)
    )
    try:
        tab.offer(MODEL, ["cam"], REQUEST)
        list(tab.compare_once_settled(given(tab), REQUEST))
        list(tab.match_patches(given(tab), REQUEST))
    finally:
        watched.remove()
    assert set(ran) == {"camapp quick lane"}
