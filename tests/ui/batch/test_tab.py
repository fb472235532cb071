"""The Batch tab in a browser, and its public API: the main path, what is wrong, and what small screens show."""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError
from PIL import Image
from playwright.sync_api import expect

ASSETS = Path(__file__).resolve().parents[3] / "assets"
_PATIENT = 20_000
NAMES = ("cat (1).jpg", "cup <b>bold.jpg", "broken.png")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two pictures, and a file that is none, under names that are no ordinary ones."""
    for name, sample in zip(NAMES, ("chelsea", "coffee"), strict=False):
        with Image.open(ASSETS / f"{sample}.jpg") as picture:
            picture.resize((300, 240)).save(tmp_path / name)
    (tmp_path / NAMES[2]).write_bytes(b"no picture at all, only words")
    return tmp_path


class Batch:
    """The tab in one browser window."""

    def __init__(self, page: Any) -> None:
        self.page = page
        page.locator("#batch-tab").click()
        self.root = page.locator("#batch-view .batch")
        self.rows = page.locator("#batch-view tbody tr")
        self.status = page.locator("#batch-status")
        expect(self.root).to_be_visible()

    def give(self, *paths: Path, listed: bool = True) -> None:
        self.page.set_input_files("#batch-files input[type=file]", list(paths))
        if listed:
            expect(self.rows).to_have_count(len(paths), timeout=_PATIENT)

    def give_table(self, path: Path) -> None:
        self.page.locator("#batch-classes button").first.click()
        self.page.set_input_files("#batch-table input[type=file]", path)
        expect(self.page.locator("#batch-column input")).to_be_visible(timeout=_PATIENT)

    def run(self, phase: str = "done") -> None:
        self.page.locator("#batch-run").click()
        self.over(phase)

    def over(self, phase: str = "done") -> None:
        expect(self.root).to_have_attribute("data-phase", phase, timeout=60_000)
        expect(self.root).to_have_attribute("data-token", re.compile(".+"))

    def statuses(self) -> list[str]:
        return self.rows.evaluate_all("rows => rows.map(row => row.dataset.status)")

    def archive(self) -> dict[str, bytes]:
        with self.page.expect_download() as started:
            self.page.locator(".batch-download").click()
        with zipfile.ZipFile(started.value.path()) as archive:
            return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture
def batch(open_page: Any) -> Batch:
    return Batch(open_page().page)


@pytest.mark.browser
def test_files_are_listed_explained_shown_and_taken_home_and_one_is_opened_in_explain(
    batch: Batch, folder: Path
) -> None:
    page = batch.page
    assert batch.root.get_attribute("data-state") == "empty"
    batch.give(*(folder / name for name in NAMES))
    assert batch.statuses() == ["waiting"] * 3
    batch.run()
    assert batch.statuses() == ["done", "done", "failed"]
    expect(batch.rows.nth(2)).to_contain_text("is text, not a picture")
    expect(batch.rows.nth(1).locator("th")).to_have_text("cup <b>bold.jpg")  # text, not bold
    expect(batch.status).to_contain_text("3 files: 2 done, 1 failed")
    cards = page.locator(".batch-card")
    expect(cards).to_have_count(2)
    assert "Overlay of cat (1).jpg, " in (cards.first.locator("img").get_attribute("alt") or "")

    found = batch.archive()
    rows = list(csv.DictReader(io.StringIO(found["results.csv"].decode())))
    assert [(row["name"], row["status"]) for row in rows] == list(zip(NAMES, ("done", "done", "failed"), strict=True))
    assert json.loads(found["settings.json"])["method"] == "gradcam"
    with Image.open(io.BytesIO(found["overlays/cat (1).jpg"])) as overlay:
        assert overlay.size == (300, 240)

    cards.first.focus()
    page.keyboard.press("Enter")
    dialog = page.locator(".batch-dialog")
    expect(dialog).to_contain_text(rows[0]["label"])
    page.keyboard.press("ArrowRight")
    expect(dialog.locator("h2")).to_have_text("cup <b>bold.jpg")
    page.wait_for_function("document.querySelector('.batch-dialog img').src.includes('/result/')")
    page.keyboard.press("Escape")
    expect(cards.first).to_be_focused()
    page.keyboard.press("Enter")
    page.locator(".batch-open").click()
    expect(page.locator("#explain-tab")).to_have_attribute("aria-selected", "true")
    expect(page.locator("#viewer .viewer")).to_have_attribute("data-state", "result", timeout=30_000)
    expect(page.locator("#summary")).to_contain_text(rows[0]["label"])


@pytest.mark.browser
def test_a_table_gives_each_file_its_own_class(batch: Batch, folder: Path) -> None:
    (folder / "classes.csv").write_text("name,year,class\nCAT (1).jpg,2,lynx\nother.jpg,3,lynx\n")
    batch.give(*(folder / name for name in NAMES[:2]))
    batch.give_table(folder / "classes.csv")
    expect(batch.page.locator("#batch-column input")).to_have_value("class")
    notes = batch.page.locator(".batch-notes")
    expect(notes).to_contain_text("Not among the files given: other.jpg", timeout=_PATIENT)
    batch.run()
    assert batch.statuses() == ["done", "failed"]
    expect(batch.rows.first).to_contain_text("lynx")
    expect(batch.rows.nth(1)).to_contain_text("no row for it")


@pytest.mark.browser
def test_stopped_it_keeps_what_is_done(batch: Batch, folder: Path) -> None:
    paths = [folder / f"{number}.jpg" for number in range(30)]
    with Image.open(folder / NAMES[0]) as small:
        large = small.resize((1500, 1200))
    for path in paths:
        large.save(path)
    batch.give(*paths)
    batch.page.locator("#batch-run").click()
    batch.page.locator(".batch-card").first.wait_for(timeout=60_000)
    batch.page.locator("#batch-status .status-stop").click()
    batch.over("stopped")
    expect(batch.status).to_contain_text("The archive has what is done.")
    done = batch.statuses().count("done")
    assert 1 <= done < 30
    assert len([name for name in batch.archive() if name.startswith("overlays/")]) == done


@pytest.mark.browser
def test_what_cannot_be_explained_is_said_at_once_and_clears_the_old_result(batch: Batch, folder: Path) -> None:
    batch.give(folder / NAMES[0])
    (folder / "none.zip").write_bytes(b"PK no archive")
    batch.page.locator("#batch-files [aria-label='Clear']").click()
    expect(batch.root).to_have_attribute("data-state", "empty", timeout=_PATIENT)
    batch.give(folder / "none.zip", listed=False)
    expect(batch.root).to_have_attribute("data-state", "error", timeout=_PATIENT)
    expect(batch.root).to_contain_text("none.zip cannot be read as .zip")
    expect(batch.status).to_contain_text("none.zip cannot be read")


@pytest.mark.browser
def test_on_a_dark_phone_nothing_is_wider_than_the_screen_and_axe_finds_nothing(open_page: Any, folder: Path) -> None:
    batch = Batch(open_page("?__theme=dark", viewport={"width": 390, "height": 844}).page)
    batch.give(*(folder / name for name in NAMES))
    batch.run()
    assert batch.page.evaluate("document.documentElement.scrollWidth") <= 390
    axe = Axe()
    found = axe.run(batch.page, context="#batch-panel").response["violations"]
    assert [(one["id"], node["html"][:200]) for one in found for node in one["nodes"]] == []
    batch.page.locator(".batch-card").first.click()
    box = batch.page.locator(".batch-dialog").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390
    found = axe.run(batch.page, context=".batch-dialog").response["violations"]
    assert [(one["id"], node["html"][:200]) for one in found for node in one["nodes"]] == []


@pytest.fixture(scope="module")
def client(server: Any, tmp_path_factory: pytest.TempPathFactory) -> Client:
    return Client(server.url, verbose=False, download_files=tmp_path_factory.mktemp("answers"))


def test_the_api_answers_with_an_archive_and_a_row_for_each_file(client: Client, folder: Path) -> None:
    files = [handle_file(folder / name) for name in NAMES]
    archive, rows = client.predict(files, target="282", api_name="/batch")
    assert [row["status"] for row in rows] == ["done", "done", "failed"]
    assert [row["index"] for row in rows] == [282, 282, None]
    with zipfile.ZipFile(archive) as opened:
        assert {name for row in rows for name in row["files"]} <= set(opened.namelist())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"model": "<b>"}, "is not available on this page"),
        ({"layer": "nowhere"}, "nowhere"),
        ({"method": "tarot"}, "No method"),
        ({"target": "unicorn"}, "unicorn"),
    ],
)
def test_the_api_refuses_in_words_what_does_not_exist(
    client: Client, folder: Path, options: dict[str, str], said: str
) -> None:
    with pytest.raises(AppError, match=said):
        client.predict([handle_file(folder / NAMES[0])], **options, api_name="/batch")


def test_the_api_takes_no_file_of_the_server(client: Client) -> None:
    with pytest.raises(AppError):
        client.predict([{"path": "/etc/hostname"}], api_name="/batch")
