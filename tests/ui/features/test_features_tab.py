"""The main paths through the Features tab, in a real browser with a real model."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

import camapp
from camapp.features.formats import load_features
from tests.ui.features.made import COLOURS, coloured_zip, noisy

pytestmark = pytest.mark.browser

ODD = "<img src=x onerror=alert(1)>.png"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    more = {f"set/red/{ODD}": noisy(COLOURS["red"], 0), "set/red/broken.png": b"no picture"}
    return coloured_zip(tmp_path_factory.mktemp("pictures") / "colours.zip", 4, **more)


@pytest.fixture
def features(open_page: Any) -> Any:
    return opened(open_page)


def opened(open_page: Any, query: str = "", **context: Any) -> Any:
    page = open_page(query, **context).page
    page.locator("#features-tab").click()
    expect(page.locator("#features-files")).to_be_visible()
    return page


def send(page: Any, *files: Path) -> None:
    page.set_input_files("#features-files input[type=file]", list(files))
    expect(page.locator("#features-files")).to_contain_text(files[0].stem[:8])


def run(page: Any, button: str, view: str) -> None:
    """Press a button, and wait for the view's result."""
    page.locator(f"#features-{button}").click()
    expect(page.locator(f"#features-{view} [data-token]")).to_be_attached(timeout=40_000)
    expect(page.locator("#features-status")).to_contain_text("Done")


def download(page: Any, link: str, folder: Path) -> Path:
    with page.expect_download() as started:
        page.locator(link).click()
    path = folder / started.value.suggested_filename
    started.value.save_as(path)
    return path


def test_a_zip_becomes_features_a_map_and_a_classifier_that_explain_opens(
    features: Any, archive: Path, tmp_path: Path
) -> None:
    page = features
    send(page, archive)
    run(page, "run", "map")
    expect(page.locator("#features-summary h2")).to_contain_text("13 pictures of 3 classes")
    expect(page.locator("#features-summary .features-failures")).to_contain_text("red/broken.png")
    table = load_features(download(page, "[data-format=parquet]", tmp_path))
    assert (len(table), table.classes) == (13, ("blue", "green", "red"))
    assert load_features(download(page, "[data-format=safetensors]", tmp_path)).names == table.names

    plot = page.locator(".map-plot")
    plot.press("Home")
    plot.press("ArrowRight")
    chosen = page.locator(".map-point[aria-selected=true]")
    expect(chosen).to_have_count(1)
    expect(page.locator(".map-near li")).to_have_count(8)
    name = (chosen.get_attribute("aria-label") or "").rpartition(",")[0]
    expect(page.locator(".map-name")).to_contain_text(name)
    expect(page.locator(".map-axes")).to_contain_text("of the variance")
    expect(page.locator(f'.map-duplicates [title="red/{ODD}"]')).to_have_count(1)

    run(page, "train", "probe")
    expect(page.locator(".probe-figures")).to_contain_text("Majority baseline")
    path = download(page, "[data-file='.camapp']", tmp_path)
    assert path.name == "colours.camapp"
    assert camapp.load_model(path, device="cpu").labels == table.classes
    with zipfile.ZipFile(download(page, "[data-file='.zip']", tmp_path)) as report:
        told = json.loads(report.read("report.json"))
    assert f"{told['accuracy']:.1%}" in page.locator(".probe-figures").inner_text()

    # a picture, a class and a rival of the other model are chosen: nothing of it may be asked of the classifier
    page.locator("#explain-tab").click()
    page.locator("#samples button").first.click()
    expect(page.locator("#status")).to_contain_text("Done", timeout=40_000)
    for control, name in (("target", "teddy"), ("rival", "brown bear")):
        page.locator(f"#{control} input").fill(name)
        page.locator(f"#{control} input").press("Enter")
    expect(page.locator("#status")).to_contain_text("against brown bear", timeout=40_000)
    page.locator("#features-tab").click()
    page.locator(".probe-open").click()
    expect(page.locator("#explain-panel")).to_be_visible(timeout=30_000)
    expect(page.locator("#model input")).to_have_value("colours classifier (trained here)")
    expect(page.locator("#rival input")).to_have_value("Nothing")
    expect(page.locator("#summary")).to_contain_text("colours", timeout=40_000)
    expect(page.locator("[data-testid=toast-body]")).to_have_count(0)
    picture = tmp_path / "green.png"
    picture.write_bytes(noisy(COLOURS["green"], 99))
    page.set_input_files("#picture input[type=file]", picture)
    expect(page.locator("#summary")).to_contain_text("green", timeout=40_000)


def test_typed_labels_train_where_folders_say_nothing(features: Any, tmp_path: Path) -> None:
    page = features
    for place, (name, colour) in enumerate(COLOURS.items()):
        for number in range(2):
            (tmp_path / f"{name}{number}.png").write_bytes(noisy(colour, 10 * place + number))
    send(page, *sorted(tmp_path.glob("*.png")))
    page.locator("#features-train").click()
    expect(page.locator("#features-status")).to_contain_text("have no labels", timeout=40_000)
    expect(page.locator("#features-probe")).to_contain_text("No classifier")
    page.locator("#features-labels-box button").first.click()
    waiting = page.locator("#features-labels textarea")
    lines = waiting.input_value().splitlines()
    assert lines[0] == "blue0.png,"
    waiting.fill("\n".join(f"{line}{line[:3]}" for line in lines))
    run(page, "train", "probe")
    expect(page.locator(".map-legend button")).to_have_count(3)
    expect(page.locator(".probe-figures")).to_contain_text("of 3 classes")


def test_errors_clear_the_result_and_say_what_to_do(features: Any, archive: Path, tmp_path: Path) -> None:
    page = features
    page.locator("#features-run").click()
    expect(page.locator("#features-status")).to_contain_text("There are no pictures yet")
    (tmp_path / "torn.zip").write_bytes(archive.read_bytes()[:2000])
    send(page, tmp_path / "torn.zip")
    page.locator("#features-run").click()
    expect(page.locator("#features-summary .features")).to_have_attribute("data-state", "error")
    expect(page.locator("#features-summary")).to_contain_text("torn.zip cannot be read as .zip")
    expect(page.locator("#features-map .map")).to_have_attribute("data-state", "empty")


def test_on_a_dark_phone_nothing_is_wider_than_the_screen(open_page: Any, archive: Path) -> None:
    page = opened(open_page, "?__theme=dark", viewport={"width": 390, "height": 844})
    send(page, archive)
    run(page, "train", "probe")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for part in (".probe-figures", ".map-plot", ".features-downloads"):
        box = page.locator(part).bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
