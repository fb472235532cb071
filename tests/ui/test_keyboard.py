"""Everything by keyboard alone: each tab is walked, and what a mouse can press is met on the way."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.browser

# What can be used, as far as it is on show: of a group of radio buttons the one that Tab reaches; of a row of tabs, a
# tree or a grid, the one in the order of Tab, the others being reached by arrows.
_USABLE = """() => {
  const selector = "a[href], button, input, select, textarea, summary, canvas[tabindex], [tabindex='0']";
  const radios = new Set();
  const usable = [...document.querySelectorAll(selector)].filter((one) => {
    if (one.disabled || one.tabIndex < 0 || !one.checkVisibility({ visibilityProperty: true })) return false;
    if (one.closest("dialog:not([open])")) return false;
    const box = one.getBoundingClientRect();
    if (!box.width || !box.height) return false;
    if (one.type !== "radio") return true;
    const group = document.querySelectorAll(`input[type=radio][name="${CSS.escape(one.name)}"]`);
    const reached = [...group].find((other) => other.checked) ?? group[0];
    if (radios.has(one.name) || one !== reached) return false;
    radios.add(one.name);
    return true;
  });
  usable.forEach((one) => (one.dataset.usable = "yes"));
  return usable.length;
}"""
_MISSED = """() => {
  const missed = [...document.querySelectorAll("[data-usable]:not([data-walked])")];
  return missed.map((one) => one.outerHTML.slice(0, 160));
}"""
_WALK = """() => {
  const one = document.activeElement;
  if (!one || one === document.body) return "";
  one.dataset.walked = "yes";
  const style = getComputedStyle(one);
  const around = one.closest("label, .wrap, .block");
  const rings = [style.outlineStyle, around && getComputedStyle(around).outlineStyle];
  const ring = rings.some((ring) => ring && ring !== "none") || style.boxShadow !== "none";
  return ring ? "seen" : one.outerHTML.slice(0, 160);
}"""


@pytest.mark.parametrize("tab", ["explain", "compare", "batch", "features", "inspect"])
def test_tab_reaches_whatever_can_be_used_and_shows_where_it_is(open_page: Any, tab: str) -> None:
    page = open_page(f"?tab={tab}&sample=chelsea.jpg").page
    expect(page.locator(f"#{tab}-panel")).to_be_visible()
    if tab in ("explain", "compare", "inspect"):
        expect(page.locator(f"#{tab}-panel [role=status]").first).to_contain_text("Done", timeout=30_000)
    count = page.evaluate(_USABLE)
    assert count > 10
    unseen = []
    for _ in range(2 * count + 40):
        page.keyboard.press("Tab")
        told = page.evaluate(_WALK)
        if told not in ("", "seen"):
            unseen.append(told)
        if not page.evaluate(_MISSED):
            break
    assert page.evaluate(_MISSED) == []
    assert unseen == []


def test_a_picture_is_chosen_explained_and_its_class_changed_without_a_mouse(explainer: Any) -> None:
    page, keyboard = explainer.page, explainer.page.keyboard
    page.locator("#samples button").first.focus()
    explainer.after(lambda: keyboard.press("Enter"))
    page.locator("#target input").focus()
    keyboard.press("ControlOrMeta+a")
    keyboard.type("tabby", delay=15)
    page.locator("#target [role=option]").filter(has_text="tabby").first.wait_for()
    explainer.after(lambda: keyboard.press("Enter"), "Done: tabby")
    page.locator(".viewer-opacity").focus()
    before = page.locator(".viewer-opacity").input_value()
    keyboard.press("ArrowRight")
    assert int(page.locator(".viewer-opacity").input_value()) > int(before)
    page.locator(".viewer-canvas").focus()
    keyboard.press("Home")
    expect(page.locator(".viewer-readout")).to_contain_text(": 1.00")


def test_tabs_are_walked_by_arrows_and_opened_by_digits(explainer: Any) -> None:
    page, keyboard = explainer.page, explainer.page.keyboard
    page.locator("#explain-tab").focus()
    for name in ("compare", "batch", "features", "inspect", "explain"):
        keyboard.press("ArrowRight")
        expect(page.locator(f"#{name}-panel")).to_be_visible()
        expect(page.locator(f"#{name}-tab")).to_have_attribute("aria-selected", "true")
        expect(page.locator(f"#{name}-panel")).to_have_attribute("role", "tabpanel")
        assert page.locator("[role=tabpanel]:visible").count() == 1
    page.locator("#explain-tab").blur()
    keyboard.press("3")
    expect(page.locator("#batch-panel")).to_be_visible()
    assert "tab=batch" in page.url
