"""The viewer in the browser: every knob works on pixels that are already there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect

from camapp.images.render import COLORMAPS, colors_of

pytestmark = pytest.mark.browser

ASSETS = Path(__file__).resolve().parents[2] / "assets"
PEAK = (150, 150)
UNSEEN = (20, 150)


@pytest.fixture
def cat(explainer: Any) -> Any:
    explainer.sample("chelsea")
    return explainer


def test_opacity_goes_from_the_plain_picture_to_the_plain_heatmap(cat: Any) -> None:
    with Image.open(ASSETS / "chelsea.jpg") as picture:
        plain = picture.convert("RGB").getpixel(PEAK)
    cat.turn("opacity", 0)
    assert np.abs(np.subtract(cat.pixel(*PEAK), plain)).max() <= 12  # the preview is a JPEG
    cat.turn("opacity", 100)
    np.testing.assert_array_equal(cat.pixel(*PEAK), colors_of("viridis")[255])
    expect(cat.page.locator(".viewer-opacity-value")).to_have_text("100%")


@pytest.mark.parametrize("name", ["magma", "turbo", "gray"])
def test_colour_maps_are_the_very_colours_of_the_files(cat: Any, name: str) -> None:
    cat.turn("opacity", 100)
    cat.page.locator(".viewer-colors").select_option(name)
    cat.painted()
    np.testing.assert_array_equal(cat.pixel(*PEAK), colors_of(name)[255])


def test_all_colour_maps_are_offered_and_viridis_comes_first(cat: Any) -> None:
    assert cat.page.locator(".viewer-colors option").all_inner_texts() == list(COLORMAPS)
    assert cat.page.locator(".viewer-colors").input_value() == "viridis"


def test_the_threshold_hides_what_lies_below_it_and_nothing_else(cat: Any) -> None:
    cat.turn("opacity", 100)
    cold = (300, 40)
    before = cat.pixel(*cold)
    cat.turn("threshold", 90)
    assert cat.pixel(*cold) != before
    np.testing.assert_array_equal(cat.pixel(*PEAK), colors_of("viridis")[255])


def test_the_split_shows_the_plain_picture_on_its_left(cat: Any) -> None:
    cat.turn("opacity", 0)
    plain = cat.pixel(*PEAK)
    cat.turn("opacity", 100)
    cat.turn("split", 50)
    assert cat.pixel(*PEAK) == plain


def test_what_the_model_did_not_see_stays_as_it_is(cat: Any) -> None:
    cat.turn("opacity", 0)
    plain = cat.pixel(*UNSEEN)
    cat.turn("opacity", 100)
    assert cat.pixel(*UNSEEN) == plain
    box = cat.page.locator(".viewer-canvas").bounding_box()
    scale = box["width"] / 451
    cat.page.mouse.move(box["x"] + UNSEEN[0] * scale, box["y"] + UNSEEN[1] * scale)
    expect(cat.page.locator(".viewer-readout")).to_contain_text("not seen by the model")


def test_no_knob_asks_the_server_for_anything(cat: Any) -> None:
    before = len(cat.requests)
    cat.turn("opacity", 20)
    cat.turn("threshold", 40)
    cat.turn("split", 60)
    cat.page.locator(".viewer-colors").select_option("inferno")
    cat.page.locator(".viewer-canvas").hover()
    cat.painted()
    assert cat.requests[before:] == []


def test_the_value_under_the_mouse_is_the_heatmaps(cat: Any) -> None:
    box = cat.page.locator(".viewer-canvas").bounding_box()
    scale = box["width"] / 451
    cat.page.mouse.move(box["x"] + (PEAK[0] + 0.5) * scale, box["y"] + (PEAK[1] + 0.5) * scale)
    expect(cat.page.locator(".viewer-readout")).to_have_text("x 150, y 150: 1.00")


def test_arrow_keys_read_the_values_and_home_returns_to_the_peak(cat: Any) -> None:
    readout = cat.page.locator(".viewer-readout")
    cat.page.locator(".viewer-canvas").focus()
    cat.page.keyboard.press("ArrowRight")
    expect(readout).to_contain_text("x 151, y 150:")
    cat.page.keyboard.press("Shift+ArrowDown")
    expect(readout).to_contain_text("x 151, y 160:")
    assert readout.get_attribute("aria-live") == "polite"
    cat.page.keyboard.press("Home")
    expect(readout).to_have_text("x 150, y 150: 1.00")


def test_all_of_the_page_is_reached_and_used_by_keyboard_alone(explainer: Any) -> None:
    page = explainer.page
    first = page.locator("#samples button").first
    for _ in range(20):
        page.keyboard.press("Tab")
        if first.evaluate("node => node === document.activeElement"):
            break
    explainer.after(lambda: page.keyboard.press("Enter"))
    reached: set[str] = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.className + ' ' + document.activeElement.tagName"))
    for part in ("canvas", "opacity", "threshold", "split", "colors", "download-overlay", "download-summary"):
        assert any(f"viewer-{part} " in one for one in reached), part
    second = page.locator("#summary button").nth(1)
    second.focus()
    explainer.after(lambda: page.keyboard.press("Space"))
    expect(second).to_have_attribute("aria-pressed", "true")
    expect(second).to_be_focused()  # the buttons are new ones, but whoever walks through them keeps the place


def test_the_heatmap_is_told_in_words(cat: Any) -> None:
    words = cat.page.locator(".viewer-words")
    expect(words).to_have_text("Hottest at 33% across, 50% down; the top 10% covers less than 1% of the picture.")
    label = cat.page.locator(".viewer-canvas").get_attribute("aria-label")
    assert label.startswith("Heatmap of tiger cat. Hottest at 33% across, 50% down")


def test_a_large_picture_is_previewed_small_and_downloaded_whole(explainer: Any, tmp_path: Path) -> None:
    with Image.open(ASSETS / "rocket.jpg") as rocket:
        rocket.resize((2600, 1734)).save(tmp_path / "large.jpg", quality=80)
    explainer.after(lambda: explainer.upload(tmp_path / "large.jpg"))
    assert explainer.canvas_size == [1280, 854]
    with Image.open(explainer.download("overlay").path()) as overlay:
        assert overlay.size == (2600, 1734)
