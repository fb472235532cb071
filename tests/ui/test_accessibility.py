"""What axe-core finds on the page: nothing."""

from __future__ import annotations

from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

pytestmark = pytest.mark.browser


def violations(page: Any) -> list[str]:
    found = Axe().run(page).response["violations"]
    return [f"{one['id']}: {node['html'][:200]} {node['failureSummary']}" for one in found for node in one["nodes"]]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_violation_before_and_after_a_result(open_page: Any, theme: str) -> None:
    explainer = open_page(f"?__theme={theme}")
    assert violations(explainer.page) == []
    explainer.sample("chelsea")
    explainer.page.mouse.move(0, 0)
    assert violations(explainer.page) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("tab", ["compare", "batch", "features", "inspect"])
def test_axe_finds_no_violation_on_any_tab(open_page: Any, tab: str, theme: str) -> None:
    page = open_page(f"?tab={tab}&sample=chelsea.jpg&__theme={theme}").page
    expect(page.locator(f"#{tab}-panel")).to_be_visible()
    if tab in ("compare", "inspect"):
        expect(page.locator(f"#{tab}-panel [role=status]").first).to_contain_text("Done", timeout=30_000)
    page.mouse.move(0, 0)
    assert violations(page) == []


def test_axe_finds_no_violation_in_the_error_state(open_page: Any, tmp_path: Any) -> None:
    explainer = open_page()
    (tmp_path / "empty.png").touch()
    explainer.upload(tmp_path / "empty.png")
    expect(explainer.page.locator("#status")).to_contain_text("empty")
    toast = explainer.page.locator("[data-testid=toast-body]")
    expect(toast).to_have_css("opacity", "1")
    assert violations(explainer.page) == []


def test_the_status_is_a_live_region_that_stays_while_its_text_changes(explainer: Any) -> None:
    page = explainer.page
    live = page.locator("#status [aria-live=polite]")
    expect(live).to_have_attribute("role", "status")
    live.evaluate("node => { node.dataset.same = 'yes'; }")
    explainer.sample("chelsea")
    expect(live).to_contain_text("Done")
    expect(live).to_have_attribute("data-same", "yes")
