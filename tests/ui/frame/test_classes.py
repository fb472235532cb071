"""The control for a class: what a request may say, and how the classes are searched in a real browser."""

from __future__ import annotations

from typing import Any

import gradio as gr
import pytest
from playwright.sync_api import expect

from camapp.ui.frame.classes import TOP_PREDICTION, chosen_class, class_picker, class_value, is_top


@pytest.mark.parametrize("target", [-1, "-1", "", None])
def test_nothing_chosen_is_the_top_prediction(target: Any) -> None:
    assert is_top(target)


@pytest.mark.parametrize("target", [0, "0", 281, "tabby", -2, "-2"])
def test_a_class_is_not(target: Any) -> None:
    assert not is_top(target)


def test_of_two_classes_of_one_name_each_says_its_index() -> None:
    assert class_value("m", ("maillot", "crane", "maillot"))["classes"] == ["maillot (0)", "crane", "maillot (2)"]


def test_another_models_classes_say_what_is_chosen_only_where_it_is_known() -> None:
    assert "chosen" not in class_value("m", ("a", "b"))
    assert class_value("m", ("a", "b"), 1)["chosen"] == 1


@pytest.mark.parametrize("chosen", [0, 999, TOP_PREDICTION, -2])
def test_an_event_gets_the_number(chosen: int) -> None:
    picker = class_picker("Class", class_value("m", ("a", "b")))
    assert picker.preprocess(chosen_class(chosen)) == chosen
    assert picker.preprocess(class_value("m", ("a", "b"))) == TOP_PREDICTION  # before the browser has read it


@pytest.mark.parametrize(
    "payload",
    [None, 3, "tabby", [], {"chosen": None}, {"chosen": "3"}, {"chosen": True}, {"chosen": 1.5}, {"chosen": 10**12}],
)
def test_a_forged_request_is_refused(payload: Any) -> None:
    picker = class_picker("Class", class_value("m", ("a", "b")))
    with pytest.raises(gr.Error, match="which class"):
        picker.preprocess(payload)


def _texts(explainer: Any) -> list[str]:
    return explainer.page.locator("#target [role=option] span").all_inner_texts()


def _type(explainer: Any, text: str) -> None:
    explainer.page.locator("#target input").fill(text)


@pytest.mark.browser
def test_the_best_hit_comes_first(explainer: Any) -> None:
    _type(explainer, "plate")
    assert _texts(explainer) == ["plate", "plate rack", "breastplate"]
    _type(explainer, "CAT")
    cats = ["tiger cat", "Persian cat", "Siamese cat", "Egyptian cat", "Madagascar cat"]
    assert _texts(explainer)[:6] == [*cats, "catamaran"]
    _type(explainer, "285")
    assert _texts(explainer) == ["Egyptian cat"]
    _type(explainer, "zzzz")
    assert _texts(explainer) == []
    expect(explainer.page.locator("#target .classes-hint")).to_have_text("No class of that name.")


@pytest.mark.browser
def test_the_class_is_chosen_by_keys_and_put_back_by_escape(explainer: Any) -> None:
    box, panel = explainer.page.locator("#target input"), explainer.page.locator("#target .classes-panel")
    explainer.sample("chelsea")
    box.focus()
    expect(panel).to_be_hidden()
    explainer.page.keyboard.press("ArrowDown")
    expect(box).to_have_attribute("aria-expanded", "true")
    explainer.page.keyboard.press("ArrowDown")
    active = box.get_attribute("aria-activedescendant")
    assert explainer.page.locator(f"#{active} span").inner_text() == "tench"
    explainer.page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    expect(box).to_have_value("Top prediction")

    _type(explainer, "plate r")
    explainer.after(lambda: explainer.page.keyboard.press("Enter"), "Done: plate rack")
    expect(box).to_have_value("plate rack")
    box.click()
    assert _texts(explainer)[:3] == ["Top prediction", "plate rack", "tench"]  # the chosen one can be seen
    expect(explainer.page.locator("#target [role=option][aria-selected=true] span")).to_have_text("plate rack")
    expect(explainer.page.locator("#target .classes-hint")).to_have_text("901 more: type to find them.")

    _type(explainer, "half a na")
    explainer.page.locator(".viewer-opacity").focus()
    expect(box).to_have_value("plate rack")


@pytest.mark.browser
def test_the_names_do_not_travel_with_every_event(explainer: Any) -> None:
    sent: list[int] = []
    explainer.page.on(
        "request",
        lambda request: "queue/join" in request.url and sent.append(len(request.post_data or "")),
    )
    explainer.sample("coffee")
    assert sent
    assert max(sent) < 5_000
