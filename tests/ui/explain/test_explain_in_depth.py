"""What an expert does in the Explain tab: two classes, the check, addresses, keys, long runs; in a real browser."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gradio_client import Client, handle_file
from PIL import Image
from playwright.sync_api import expect
from typer.testing import CliRunner

from camapp.cli import app
from camapp.contrast import Contrast
from camapp.explainer import explain
from camapp.faithfulness import check_faithfulness
from camapp.loading import load_model
from tests.ui.served import ASSETS

pytestmark = pytest.mark.browser


def test_two_classes_and_what_sets_them_apart(explainer: Any) -> None:
    explainer.sample("chelsea")
    explainer.after(lambda: explainer.choose("rival", "The next likeliest class"), "against Egyptian cat")
    modes = explainer.page.locator(".viewer-modes button")
    expect(modes).to_have_text(["A: tiger cat", "B: Egyptian cat", "A − B"])
    expect(modes.nth(2)).to_have_attribute("aria-pressed", "true")
    expect(explainer.page.locator(".viewer-words")).to_contain_text("Orange speaks for tiger cat")
    model = load_model("efficientnet_lite0", device="cpu", download=False)
    contrast = Contrast(explain(model, ASSETS / "chelsea.jpg", top_k=2))
    values = np.load(io.BytesIO(Path(explainer.download("values").path()).read_bytes()))
    np.testing.assert_array_equal(values, contrast.heatmap())
    with Image.open(explainer.download("overlay").path()) as overlay:
        np.testing.assert_array_equal(np.asarray(overlay), np.asarray(contrast.overlay()))
    modes.nth(1).click()
    values = np.load(io.BytesIO(Path(explainer.download("values").path()).read_bytes()))
    np.testing.assert_array_equal(values, contrast.explanation.heatmap(1))


def test_the_picture_on_show_is_the_overlay_to_a_rounding(explainer: Any) -> None:
    explainer.sample("chelsea")
    explainer.after(lambda: explainer.choose("rival", "The next likeliest class"))
    model = load_model("efficientnet_lite0", device="cpu", download=False)
    overlay = np.asarray(Contrast(explain(model, ASSETS / "chelsea.jpg", top_k=2)).overlay()).astype(int)
    for x, y in ((150, 150), (220, 200), (30, 40), (300, 120)):  # the page shows a JPEG of the picture
        np.testing.assert_allclose(explainer.pixel(x, y), overlay[y, x], atol=12)


def test_the_check_says_whether_the_map_beats_chance(explainer: Any) -> None:
    explainer.sample("chelsea")
    check = explainer.page.locator("#check .check")
    expect(check).to_have_attribute("data-state", "ready")
    check.get_by_role("button", name="Check this map").click()
    expect(check).to_have_attribute("data-state", "result", timeout=90_000)
    model = load_model("efficientnet_lite0", device="cpu", download=False)
    found = check_faithfulness(model, explain(model, ASSETS / "chelsea.jpg"))
    expect(check).to_contain_text(f"The map of tiger cat. {found.verdict}")
    expect(check.locator("svg")).to_have_count(2)
    expect(check.locator("tbody tr")).to_have_count(2)
    expect(explainer.page.locator("#status")).to_contain_text("Checked.")
    explainer.sample("coffee")  # and the check of the cat goes
    expect(check).to_have_attribute("data-state", "ready")


def test_a_long_run_tells_its_steps_and_stops_on_demand(explainer: Any) -> None:
    explainer.sample("chelsea")
    explainer.pick("method", "scorecam")
    status = explainer.page.locator("#status")
    expect(status).to_contain_text("step ", timeout=30_000)
    status.get_by_role("button", name="Stop").click()
    expect(status).to_contain_text("Stopped.")
    explainer.after(lambda: explainer.pick("method", "layercam"))  # and the page goes on


def test_a_quick_choice_takes_the_place_of_a_slow_one_that_runs_and_stays(explainer: Any) -> None:
    explainer.sample("chelsea")
    explainer.pick("method", "scorecam")
    expect(explainer.page.locator("#status")).to_contain_text("step ", timeout=30_000)
    explainer.after(lambda: explainer.pick("method", "layercam"))
    assert explainer.facts["Method"].startswith("LayerCAM: ")
    token = explainer.token
    explainer.page.wait_for_timeout(1500)
    assert explainer.token == token  # and nothing old comes after it


def test_the_check_of_one_map_never_comes_under_the_next(explainer: Any) -> None:
    explainer.sample("chelsea")
    check = explainer.page.locator("#check .check")
    check.get_by_role("button", name="Check this map").click()
    expect(explainer.page.locator("#status")).to_contain_text("Running", timeout=10_000)
    explainer.sample("coffee")
    explainer.page.wait_for_timeout(2000)
    expect(check).to_have_attribute("data-state", "ready")


def test_an_address_brings_back_what_it_was_copied_from(open_page: Any) -> None:
    first = open_page()
    first.sample("coffee")
    first.after(lambda: first.pick("method", "layercam"))
    first.pick_only("layers", "blocks.4.2.conv_pwl")
    first.settles_on("blocks.4.2.conv_pwl")
    first.after(lambda: first.choose("target", "eggnog"), "Done: eggnog")
    first.turn("opacity", 40)
    first.page.locator(".viewer-opacity").dispatch_event("change")
    first.page.locator(".viewer-colors").select_option("magma")
    query = "?" + first.page.url.partition("?")[2]
    for part in ("sample=coffee.jpg", "method=layercam", "layer=blocks.4.2.conv_pwl", "opacity=40", "colors=magma"):
        assert part in query
    second = open_page(query, ready="eggnog")
    second.wait_for_result("Done: eggnog")
    assert second.facts == {**first.facts, "Time": second.facts["Time"]}
    expect(second.page.locator(".viewer-opacity")).to_have_value("40")
    expect(second.page.locator(".viewer-colors")).to_have_value("magma")


def test_an_address_names_another_model_with_all_that_belongs_to_it(open_page: Any) -> None:
    address = "?model=efficientnet_lite1&sample=chelsea.jpg&vs=tabby"
    explainer = open_page(address)
    explainer.wait_for_result("against tabby")
    assert explainer.facts["Model"] == "EfficientNet-Lite1"
    expect(explainer.page.locator("#model input")).to_have_value("EfficientNet-Lite1")


def test_an_address_that_asks_for_what_is_not_there_is_told_and_the_page_works(open_page: Any) -> None:
    explainer = open_page("?model=resnet5000&layer=nowhere&method=magic&sample=../../etc/passwd&opacity=900&colors=x")
    told = explainer.page.locator("[data-testid=toast-body]")
    for words in ("resnet5000", 'no layer "nowhere"', 'the method "magic"', "no sample picture"):
        expect(told).to_contain_text(words)
    explainer.sample("chelsea")
    assert explainer.facts["Method"].startswith("Grad-CAM")


def test_a_layer_is_stepped_through_by_key_and_the_keys_are_listed(explainer: Any) -> None:
    explainer.sample("chelsea")
    explainer.page.locator(".viewer-canvas").focus()
    explainer.after(lambda: explainer.page.keyboard.press("]"))
    assert explainer.picked("layers") != ["bn2"]
    explainer.after(lambda: explainer.page.keyboard.press("["))
    assert explainer.picked("layers") == ["bn2"]
    explainer.page.keyboard.press("?")
    keys = explainer.page.locator("#keys")
    expect(keys).to_be_visible()
    expect(keys).to_contain_text("the layer before, the layer after")
    explainer.page.keyboard.press("Escape")
    expect(keys).to_be_hidden()


def test_the_same_call_is_copied_as_a_program_and_as_a_command(open_page: Any) -> None:
    explainer = open_page(permissions=["clipboard-read", "clipboard-write"])
    explainer.sample("chelsea")
    for name, words in (
        ("Copy Python", "camapp.explain("),
        ("Copy command", "camapp explain chelsea.jpg --model efficientnet_lite0 --target 282"),
        ("Copy link", explainer.url + "?model=efficientnet_lite0&sample=chelsea.jpg"),
    ):
        explainer.page.get_by_role("button", name=name, exact=True).click()
        expect(explainer.page.locator("#summary .copy-told")).to_have_text("Copied.")
        assert words in explainer.page.evaluate("navigator.clipboard.readText()")


def test_a_method_without_a_class_and_a_coarse_layer_carry_their_cautions(explainer: Any) -> None:
    explainer.sample("chelsea")
    explainer.after(lambda: explainer.pick("method", "eigencam"))
    expect(explainer.page.locator("#summary .summary-warning")).to_contain_text("EigenCAM ignores the class")
    explainer.page.locator("#method .picker-button").click()
    row = explainer.page.locator("#method label").filter(has=explainer.page.locator("input[value=eigencam]"))
    expect(row).to_contain_text("ignores the class")
    expect(row).to_contain_text("Cost: one forward.")


def test_pickers_are_searched_and_used_by_keyboard_alone(explainer: Any) -> None:
    explainer.sample("chelsea")
    keyboard = explainer.page.keyboard
    explainer.page.locator("#method .picker-button").focus()
    keyboard.press("Enter")
    expect(explainer.page.locator("#method input[value=gradcam]")).to_be_focused()
    keyboard.press("Shift+Tab")
    keyboard.type("hires")
    expect(explainer.page.locator("#method label:visible")).to_have_count(1)
    explainer.after(lambda: keyboard.press("Enter"))
    assert explainer.picked("method") == ["hirescam"]
    expect(explainer.page.locator("#method .picker-button")).to_be_focused()
    expect(explainer.page.locator("#method .picker-panel")).to_be_hidden()


@pytest.mark.parametrize(
    ("picker", "button", "below"),
    [
        ("layers", ".picker-button", ("#target label", "#rival label")),
        ("method", ".picker-button", ("#target label", "#rival label")),
        ("target", "input", ("#rival label", "#more button")),
    ],
)
def test_nothing_shows_through_an_open_list(explainer: Any, picker: str, button: str, below: tuple[str, str]) -> None:
    page = explainer.page
    page.locator(f"#{picker} {button}").first.click()
    on_top = """([picker, other]) => {
      const panel = document.querySelector(`#${picker} :is(.picker-panel, .classes-panel)`);
      const area = panel.getBoundingClientRect();
      const label = document.querySelector(other).getBoundingClientRect();
      const [x, y] = [label.left + 5, label.top + label.height / 2];
      if (y < area.top || y > area.bottom) return "not below";
      return panel.contains(document.elementFromPoint(x, y)) ? "covered" : "shows through";
    }"""
    page.locator(f"#{picker}").scroll_into_view_if_needed()
    page.evaluate("window.scrollBy(0, 300)")
    told = [page.evaluate(on_top, [picker, other]) for other in below]
    assert "covered" in told
    assert "shows through" not in told


def test_methods_that_do_not_suit_the_model_are_not_offered(explainer: Any) -> None:
    offered = explainer.page.locator("#method input").evaluate_all("boxes => boxes.map(one => one.value)")
    assert "cam" in offered
    assert not {"legrad", "rollout"} & set(offered)


SETTINGS: list[tuple[str, dict[str, Any], list[str]]] = [
    ("", {}, []),
    ("&fit=letterbox&class=281", {"fit": "letterbox", "target": "281"}, ["--fit", "letterbox", "-t", "281"]),
    (
        "&method=layercam&layer=blocks.5.0.bn1,bn2",
        {"method": "layercam", "layer": "blocks.5.0.bn1,bn2"},
        [
            "--method",
            "layercam",
            "--layer",
            "blocks.5.0.bn1",
            "--layer",
            "bn2",
        ],
    ),
    ("&method=fused", {"method": "fused"}, ["--method", "fused"]),
]


@pytest.mark.parametrize(("address", "options", "words"), SETTINGS)
def test_the_page_the_api_and_the_command_give_the_same_pixels(
    open_page: Any, server: Any, tmp_path: Path, address: str, options: dict[str, Any], words: list[str]
) -> None:
    page = open_page(f"?sample=chelsea.jpg{address}", ready="tabby" if "class" in address else "Top prediction")
    page.wait_for_result()
    client = Client(server.url, verbose=False, download_files=str(tmp_path))
    from_api = client.predict(handle_file(str(ASSETS / "chelsea.jpg")), **options, api_name="/explain")[:3]
    arguments = ["explain", str(ASSETS / "chelsea.jpg"), *words, "--out", str(tmp_path / "cli"), "--device", "cpu"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    kinds = ("overlay", "heatmap", "values")
    from_page = [Path(page.download(kind).path()) for kind in kinds]
    patterns = ("*.overlay.png", "*.heatmap.png", "*.npy")
    from_shell = [next((tmp_path / "cli").glob(pattern)) for pattern in patterns]
    for three in zip(from_page, map(Path, from_api), from_shell, strict=True):
        first, *others = (pixels(path) for path in three)
        for other in others:
            np.testing.assert_array_equal(first, other)


def pixels(path: Path) -> Any:
    content = path.read_bytes()
    if content.startswith(b"\x93NUMPY"):
        return np.load(io.BytesIO(content))
    with Image.open(io.BytesIO(content)) as picture:
        return np.asarray(picture)
