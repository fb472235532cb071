"""The Compare tab in a real browser with a real model."""

from __future__ import annotations

import base64
import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect

import camapp
from camapp.comparison import compare_maps
from camapp.patches import patch_similarity
from camapp.resources import resource_folder

pytestmark = pytest.mark.browser

ASSETS = resource_folder("assets")
FINER = "blocks.4.2.conv_pwl"
USUAL = ["gradcam", "fused", "gradcam++", "layercam"]


@pytest.fixture(scope="module")
def model() -> camapp.LoadedModel:
    return camapp.load_model("efficientnet_lite0", device="cpu", download=False)


class Comparer:
    """The Compare tab, open."""

    def __init__(self, explainer: Any) -> None:
        self.page = explainer.page
        self.page.locator("#compare-tab").click()
        expect(self.page.locator("#compare-panel")).to_be_visible()

    def after(self, action: Any, view: str = "grid") -> None:
        """Do something that leads to a new result, and wait for just that one."""
        root = f"#compare-{view} .{view}-view"
        before = self.page.locator(root).get_attribute("data-token")
        action()
        self.page.wait_for_function(
            "([root, before]) => ![undefined, before].includes(document.querySelector(root)?.dataset.token)",
            arg=[root, before],
            timeout=40_000,
        )

    def sample(self, name: str) -> None:
        self.after(lambda: self.page.locator(f"#samples button[data-sample='{name}.jpg']").click())

    def pick(self, picker: str, *values: str) -> None:
        self.page.locator(f"#{picker} .picker-button").click()
        for value in values:
            self.page.locator(f"#{picker} input[value='{value}']").click()
        self.page.keyboard.press("Escape")

    def pixels(self, cell: int) -> np.ndarray:
        url = self.page.locator(f"[data-cell='{cell}'] canvas").evaluate("canvas => canvas.toDataURL()")
        with Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))) as image:
            return np.asarray(image.convert("RGB"))

    @property
    def values(self) -> list[str]:
        return self.page.locator(".grid-value").all_inner_texts()


@pytest.fixture
def comparer(explainer: Any) -> Comparer:
    return Comparer(explainer)


def test_a_picture_is_compared_at_once_and_painted_as_the_library_paints_it(
    comparer: Comparer, model: camapp.LoadedModel
) -> None:
    comparer.sample("chelsea")
    expect(comparer.page.locator("#compare-status")).to_contain_text("Done: 4 maps of tiger cat")
    expected = compare_maps(model, ASSETS / "chelsea.jpg", methods=USUAL)
    for number, cell in enumerate(expected.cells):
        assert cell.explanation is not None
        painted = np.asarray(cell.explanation.overlay(frame=False)).astype(int)
        rows, columns = cell.explanation.geometry.seen_pixels
        inside = slice(rows.start + 6, rows.stop - 6), slice(columns.start + 6, columns.stop - 6)  # within the frame
        shown = comparer.pixels(number).astype(int)
        assert np.abs(shown[inside] - painted[inside]).mean() < 2, "but for the JPEG on the way"
    table = comparer.page.locator(".grid-table").first.locator("tbody tr").first.locator("td").all_inner_texts()
    assert table == [f"{value:.2f}" for value in expected.correlation[0]]


def test_one_crosshair_reads_all_maps_and_answers_to_keys(comparer: Comparer, model: camapp.LoadedModel) -> None:
    comparer.sample("chelsea")
    cells = compare_maps(model, ASSETS / "chelsea.jpg", methods=USUAL).cells
    heatmaps = [cell.explanation.heatmap() for cell in cells if cell.explanation]
    x, y = cells[0].explanation.peak()  # type: ignore[union-attr, misc]
    assert comparer.values == [f"{round(float(heat[y, x]) * 255) / 255:.2f}" for heat in heatmaps]
    comparer.page.locator(".grid-maps").focus()
    comparer.page.keyboard.press("Shift+ArrowRight")
    comparer.page.keyboard.press("ArrowDown")
    expect(comparer.page.locator(".grid-readout")).to_contain_text(f"x {x + 10}, y {y + 1}: A ")
    assert comparer.page.locator(".grid-readout").get_attribute("aria-live") == "polite"
    assert comparer.values == [f"{round(float(heat[y + 1, x + 10]) * 255) / 255:.2f}" for heat in heatmaps]
    canvas = comparer.page.locator("[data-cell='2'] canvas").bounding_box()
    comparer.page.mouse.move(canvas["x"] + 2, canvas["y"] + 2)
    expect(comparer.page.locator(".grid-readout")).to_contain_text("not seen by the model")


def test_layers_are_columns_a_refusal_is_told_and_all_files_come_as_a_zip(comparer: Comparer) -> None:
    comparer.sample("chelsea")
    comparer.after(lambda: comparer.pick("compare-methods", "cam", "fused", "gradcam++"))
    comparer.after(lambda: comparer.pick("layers", FINER))
    expect(comparer.page.locator(".grid-column")).to_have_count(2)
    expect(comparer.page.locator(".grid-refused")).to_contain_text("linear head takes 1280")
    expect(comparer.page.locator("#compare-status")).to_contain_text("5 maps of tiger cat")
    with comparer.page.expect_download() as started:
        comparer.page.locator(".grid-zip").click()
    assert started.value.suggested_filename == "chelsea-tiger_cat.comparison.zip"
    with zipfile.ZipFile(io.BytesIO(Path(started.value.path()).read_bytes())) as archive:
        names = archive.namelist()
        facts = json.loads(archive.read("comparison.json"))
    assert sum(name.endswith(".overlay.png") for name in names) == 5
    assert {"correlation.csv", "overlap.csv", "chelsea-contact-sheet.png"} < set(names)
    assert facts["layers"] == [None, FINER]


def test_a_cell_is_carried_over_to_explain(comparer: Comparer) -> None:
    comparer.sample("chelsea")
    comparer.after(lambda: comparer.pick("layers", FINER))
    comparer.page.get_by_role("button", name=f"Use LayerCAM · {FINER} in Explain").click()
    expect(comparer.page.locator("#explain-tab")).to_have_attribute("aria-selected", "true")
    expect(comparer.page.locator("#viewer .viewer")).to_have_attribute("data-state", "result", timeout=30_000)
    expect(comparer.page.locator("#layers .picker-shown")).to_contain_text(FINER)
    expect(comparer.page.locator("#method .picker-shown")).to_have_text("LayerCAM")
    facts = comparer.page.locator("#summary")
    expect(facts).to_contain_text("LayerCAM", timeout=30_000)
    expect(facts).to_contain_text(FINER)


def test_a_point_finds_its_likes_in_both_pictures_as_the_library_does(
    comparer: Comparer, model: camapp.LoadedModel
) -> None:
    comparer.sample("chelsea")
    comparer.page.locator("#compare-two button").first.click()
    second = comparer.page.locator("#second-samples button[data-sample='astronaut.jpg']")
    comparer.after(second.click, "patches")
    canvases = comparer.page.locator(".patches-canvas")
    expect(canvases).to_have_count(2)
    canvases.first.focus()
    for key in ["ArrowUp", "ArrowUp", "ArrowLeft"]:
        comparer.page.keyboard.press(key)
    alike = patch_similarity(model, ASSETS / "chelsea.jpg", ASSETS / "astronaut.jpg")
    row, column = alike.grid[0] // 2 - 2, alike.grid[1] // 2 - 1
    own, other = alike.best_matches(*alike.centre_of(row, column))
    words = comparer.page.locator(".patches-words")
    expect(words).to_contain_text(f"Patch in row {row + 1}, column {column + 1} of 14 × 14")
    told = re.findall(r"([−\d.]+) at x (\d+), y (\d+)", words.inner_text())
    for (cosine, x, y), match in zip(told, (own, other), strict=True):
        assert float(cosine.replace("−", "-")) == pytest.approx(match.cosine, abs=0.011)
        assert alike.cosines.reshape(2, 14, 14, 2, 14, 14)[0, row, column, match.picture][
            alike.patch_at(int(x), int(y), match.picture)
        ] == pytest.approx(match.cosine, abs=0.011)
    box = canvases.nth(1).bounding_box()
    comparer.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(words).to_contain_text("of the second picture)")


def test_what_cannot_be_compared_is_said_and_clears_the_old_maps(comparer: Comparer) -> None:
    comparer.page.locator("#compare-run").click()
    expect(comparer.page.locator("#compare-status")).to_contain_text("There is no picture yet")
    comparer.sample("chelsea")
    comparer.pick("compare-methods", "fused", "gradcam++", "layercam")
    grid = comparer.page.locator("#compare-grid .grid-view")
    expect(grid).to_have_attribute("data-state", "error", timeout=30_000)
    expect(grid).to_contain_text("nothing to compare it with")
    expect(comparer.page.locator(".grid-result")).to_be_hidden()


def test_a_slow_comparison_does_not_come_over_the_quick_one_asked_for_after_it(comparer: Comparer) -> None:
    comparer.sample("chelsea")
    comparer.pick("compare-methods", "scorecam")
    status = comparer.page.locator("#compare-status")
    expect(status).to_contain_text("press Compare")
    comparer.page.locator("#compare-run").click()
    expect(status).to_contain_text("Running… step", timeout=30_000)
    comparer.after(lambda: comparer.pick("compare-methods", "scorecam"))
    expect(status).to_contain_text("Done: 4 maps")
    comparer.page.wait_for_timeout(2000)
    expect(status).to_contain_text("Done: 4 maps")
    expect(comparer.page.locator(".grid-cell")).to_have_count(4)


def test_the_map_carried_over_to_explain_stands_alone(comparer: Comparer) -> None:
    comparer.sample("chelsea")
    comparer.page.locator("#explain-tab").click()
    comparer.page.locator("#rival input").fill("lynx")
    comparer.page.locator("#rival input").press("Enter")
    expect(comparer.page.locator("#status")).to_contain_text("against lynx")
    comparer.page.locator("#compare-tab").click()
    comparer.page.locator("[data-cell='3'] .grid-use").click()
    expect(comparer.page.locator("#status")).to_have_text(re.compile("Done: tiger cat, [\\d.]+%, in"), timeout=40_000)
    expect(comparer.page.locator("#rival input")).to_have_value("Nothing")
    expect(comparer.page.locator("#summary dt:text-is('Method') + dd")).to_contain_text("LayerCAM")


def test_a_slow_comparison_waits_for_the_button_and_says_so_in_place_of_the_old_maps(comparer: Comparer) -> None:
    comparer.sample("chelsea")
    comparer.pick("compare-methods", "scorecam")
    expect(comparer.page.locator(".grid-view")).to_have_attribute("data-state", "error")
    expect(comparer.page.locator(".grid-empty-text")).to_contain_text("press Compare to begin")
    comparer.page.locator("#compare-run").click()
    comparer.page.locator("#compare-status .status-stop").click()
    expect(comparer.page.locator(".grid-empty-text")).to_have_text("Stopped.")


@pytest.mark.parametrize("pause", [0, 100, 250])
def test_what_is_chosen_while_a_comparison_runs_is_compared_too(comparer: Comparer, pause: int) -> None:
    comparer.sample("chelsea")
    comparer.page.locator("#layers .picker-button").click()
    for layer in (FINER, "blocks.5.0.bn1"):
        comparer.page.locator(f"#layers input[value='{layer}']").click()
        comparer.page.wait_for_timeout(pause)
    expect(comparer.page.locator(".grid-cell")).to_have_count(12)
    expect(comparer.page.locator("#compare-status")).to_contain_text("Done: 12 maps")


def test_on_a_dark_phone_nothing_is_wider_than_the_screen(open_page: Any) -> None:
    comparer = Comparer(open_page("?__theme=dark", viewport={"width": 390, "height": 844}, has_touch=True))
    comparer.sample("chelsea")
    comparer.after(lambda: comparer.pick("layers", FINER, "blocks.5.0.bn1"))
    expect(comparer.page.locator(".grid-cell")).to_have_count(12)
    assert comparer.page.evaluate("document.documentElement.scrollWidth") <= 390
    wide = comparer.page.evaluate(
        """() => [...document.querySelectorAll('#compare-panel *')].filter((one) =>
          !one.closest('.grid-scroll') && one.getBoundingClientRect().right > 391).map((one) => one.className)"""
    )
    assert wide == []


def test_the_api_gives_a_contact_sheet_and_the_numbers(server: Any) -> None:
    from gradio_client import Client, handle_file
    from gradio_client.exceptions import AppError

    client = Client(server.url, verbose=False)
    picture = handle_file(str(ASSETS / "chelsea.jpg"))
    sheet, facts = client.predict(
        picture, "efficientnet_lite0", "gradcam, layercam, cam", f"bn2, {FINER}", "tabby", api_name="/compare"
    )
    with Image.open(sheet) as image:
        assert image.format == "PNG"
    assert facts["target"]["label"] == "tabby"
    assert [cell["method"] for cell in facts["cells"]] == ["gradcam", "gradcam", "layercam", "layercam", "cam", "cam"]
    assert "linear head" in facts["cells"][5]["reason"]
    with pytest.raises(AppError, match="No method"):
        client.predict(picture, "efficientnet_lite0", "gradcam, graddog", "", "", api_name="/compare")
