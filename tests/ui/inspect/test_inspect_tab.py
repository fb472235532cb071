"""The Inspect tab in a real browser with a real model: what is seen is what the library gives."""

from __future__ import annotations

import base64
import io
import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect

from camapp.channels import channel_maps
from camapp.loading import load_model
from camapp.resources import resource_folder

pytestmark = pytest.mark.browser

CAT = resource_folder("assets") / "chelsea.jpg"


@pytest.fixture(scope="module")
def model() -> Any:
    return load_model("efficientnet_lite0", device="cpu", download=False)


def opened(open_page: Any, query: str = "", **context: Any) -> Any:
    """The page with the tab open, once the layers are there."""
    page = open_page(f"?tab=inspect{query}", **context).page
    expect(page.locator(".tree")).to_have_attribute("data-state", "result", timeout=30_000)
    return page


def with_cat(page: Any) -> None:
    after(page, page.locator("#samples button[data-sample='chelsea.jpg']").click)


def after(page: Any, action: Callable[[], Any], layer: str = "bn2") -> None:
    """Do something that leads to other channels and another chart, and wait for just these."""
    views = [page.locator(view) for view in (".channels", ".depth")]
    before = [view.get_attribute("data-token") for view in views]
    action()
    for view, token in zip(views, before, strict=True):
        expect(view).not_to_have_attribute("data-token", token or "", timeout=30_000)
    done(page, layer)


def done(page: Any, layer: str = "bn2") -> None:
    """Wait until the channels of a layer and the chart are on show, and nothing runs any more."""
    expect(page.locator(".channels-summary")).to_contain_text(f"{layer} (", timeout=30_000)
    expect(page.locator("#inspect-status")).to_contain_text(f"Done: {layer},", timeout=30_000)
    expect(page.locator(".channels:not([aria-busy])[data-token]")).to_be_visible()
    expect(page.locator(".depth[data-token]")).to_be_visible()


def canvas_of(page: Any, selector: str) -> np.ndarray:
    url = page.locator(selector).evaluate("canvas => canvas.toDataURL('image/png')")
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))).convert("RGB")).astype(int)


def test_the_layers_are_there_without_a_picture_and_the_keyboard_walks_them(open_page: Any) -> None:
    page = opened(open_page)
    expect(page.locator(".tree-summary")).to_contain_text("4,652,008 parameters, 385 million multiply-accumulates")
    expect(page.locator(".channels")).to_have_attribute("data-state", "empty")
    chosen = page.locator(".tree tr[aria-selected=true]")
    expect(chosen).to_have_attribute("data-name", "bn2")
    page.locator(".tree-close").click()
    row = page.locator(".tree tbody tr[tabindex='0']")
    row.focus()
    page.keyboard.press("Home")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    expect(page.locator(".tree tr:focus")).to_have_attribute("data-name", "blocks.0")
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".tree tr:focus")).to_have_attribute("data-name", "blocks")
    expect(page.locator(".tree tr:focus")).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".tree tr:focus")).to_have_attribute("aria-expanded", "false")
    page.locator(".tree-search").fill("5.3.conv_pwl")
    shown = page.locator(".tree tbody tr:visible")
    expect(shown).to_have_count(4)
    expect(shown.last).to_contain_text("192 × 7 × 7")


def test_channels_are_those_of_the_library_and_one_lies_on_the_picture(open_page: Any, model: Any) -> None:
    page = opened(open_page)
    with_cat(page)
    maps = channel_maps(model, CAT, "bn2")
    shown = page.locator(".channels-tile b").all_inner_texts()
    assert [int(number) for number in shown] == list(maps.top(36))
    tile = canvas_of(page, ".channels-tile:nth-child(2) canvas")
    expected = maps.grid(2, colormap="viridis", columns=2)
    painted = expected.pixels[expected.place(1)]
    cell = painted.shape[0] // 7
    assert np.abs(tile - painted[cell // 2 :: cell, cell // 2 :: cell].astype(int)).max() <= 4  # a level of rounding
    page.locator(".channels-tile").nth(1).click()
    page.keyboard.press("ArrowRight")
    third = maps.top(3)[2]
    expect(page.locator(".channels-title")).to_have_text(f"Channel {third} on the picture")
    overlay = np.asarray(maps.overlay(third, alpha=0.75)).astype(int)
    seen = canvas_of(page, ".channels-canvas")
    assert seen.shape == overlay.shape
    inside = (slice(3, -3), slice(80, -80))  # without the frame, whose dashes differ
    assert np.abs(seen - overlay)[inside].mean() < 2.5  # the picture is a JPEG on its way
    where = page.locator(".channels-canvas").get_attribute("aria-label")
    x, y = maps.peak(third) or (0, 0)
    assert f"Strongest at {x:.0%} across, {y:.0%} down" in where
    facts = page.locator(".channels-facts").inner_text()
    assert f"{len(maps.dead)} of 1,280" in facts
    page.locator("#inspect-scale").get_by_text("One for all").click()
    expect(page.locator(".channels-low")).to_have_text("0", timeout=30_000)
    expect(page.locator(".channels-high")).to_have_text("6.00")
    expect(page).to_have_url(re.compile(r"tab=inspect.*sample=chelsea\.jpg.*scale=common"))
    again = opened(open_page, "&sample=chelsea.jpg&scale=common&rank=max&channels=16")
    done(again)
    expect(again.locator(".channels-summary")).to_contain_text("the best 16 of 1,280, by largest activation")
    expect(again.locator(".channels-high")).to_have_text("6.00")


def test_a_click_on_a_layer_makes_it_the_layer_of_all_tabs(open_page: Any, model: Any) -> None:
    page = opened(open_page)
    with_cat(page)
    after(page, page.locator(".tree tr[data-name=conv_head] .tree-label").click, "conv_head")
    expect(page.locator("#layers")).to_contain_text("conv_head")
    expect(page.locator(".tree tr[data-name=conv_head]")).to_have_attribute("aria-selected", "true")
    chart = page.locator(".depth-chart")
    chart.focus()
    page.keyboard.press("Home")
    expect(page.locator(".depth-readout")).to_contain_text("conv_stem (Conv2dSame): gradient 1.55, activation 1,100")
    after(page, lambda: page.keyboard.press("Enter"), "conv_stem")
    expect(page.locator(".depth-verdicts")).to_contain_text("Nothing wrong was found")
    with page.expect_download() as started:
        page.locator(".channels-download-zip").click()
    assert started.value.suggested_filename == "chelsea-conv_stem.channels.zip"
    with zipfile.ZipFile(started.value.path()) as archive:
        values = np.load(io.BytesIO(archive.read("channels.npy")))
    np.testing.assert_allclose(values, channel_maps(model, CAT, "conv_stem").values, atol=1e-4)
    with page.expect_download() as started:
        page.locator(".depth-download-zip").click()
    with zipfile.ZipFile(started.value.path()) as archive:
        assert json.loads(archive.read("snapshot.json"))["pictures"][0]["target"] == "tiger cat"


def test_a_file_that_is_no_picture_clears_the_old_channels_and_is_told(open_page: Any, tmp_path: Path) -> None:
    explainer = open_page("?tab=inspect")
    page = explainer.page
    with_cat(page)
    (tmp_path / "<b>broken.jpg").write_bytes(CAT.read_bytes()[:2000])
    explainer.upload(tmp_path / "<b>broken.jpg")
    expect(page.locator(".channels")).to_have_attribute("data-state", "error", timeout=30_000)
    expect(page.locator("#inspect-status .status-bar")).to_have_attribute("data-state", "error")
    expect(page.locator(".channels-tile:visible")).to_have_count(0)
    expect(page.locator(".depth")).to_have_attribute("data-state", "empty")
    expect(page.locator(".tree")).to_have_attribute("data-state", "result")


def test_on_a_dark_phone_nothing_is_wider_than_the_screen(open_page: Any) -> None:
    page = opened(open_page, "&__theme=dark", viewport={"width": 390, "height": 844}, has_touch=True)
    with_cat(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    wide = page.evaluate(
        "() => [...document.querySelectorAll('#inspect-panel *')].filter((one) => one.offsetParent "
        "&& !one.closest('.tree-frame, .depth-frame') && one.getBoundingClientRect().right > 391)"
        ".map((one) => one.className)"
    )
    assert wide == []
