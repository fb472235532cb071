"""The main paths through the page, in a real browser with a real model."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect

from camapp.explainer import explain
from camapp.loading import load_model

pytestmark = pytest.mark.browser

ASSETS = Path(__file__).resolve().parents[2] / "assets"


_COPY = """async (encoded) => {
  const bytes = Uint8Array.from(atob(encoded), (c) => c.charCodeAt(0));
  const image = await createImageBitmap(new Blob([bytes], { type: "image/jpeg" }));
  const sheet = new OffscreenCanvas(image.width, image.height);
  sheet.getContext("2d").drawImage(image, 0, 0);
  const blob = await sheet.convertToBlob({ type: "image/png" });
  await navigator.clipboard.write([new ClipboardItem({ "image/png": blob })]);
}"""


@pytest.fixture(scope="module")
def explained() -> Any:
    """The cat, explained without the page."""
    model = load_model("efficientnet_lite0", device="cpu", download=False)
    return lambda **options: explain(model, ASSETS / "chelsea.jpg", **options)


def test_a_click_on_the_sample_cat_shows_a_cat_with_the_peak_on_its_face(explainer: Any, explained: Any) -> None:
    explainer.sample("chelsea")
    assert explainer.classes[0] == "tiger cat"
    assert explainer.page.locator("#summary button").first.get_attribute("aria-pressed") == "true"
    assert explainer.canvas_size == [451, 300]
    x, y = explained().peak()
    readout = explainer.page.locator(".viewer-readout")
    expect(readout).to_have_text(f"x {x}, y {y}: 1.00")
    assert 110 < x < 360
    assert 60 < y < 270


def test_the_overlay_download_is_pixel_for_pixel_what_explain_paints(explainer: Any, explained: Any) -> None:
    explainer.sample("chelsea")
    download = explainer.download("overlay")
    assert download.suggested_filename == "chelsea-tiger_cat.overlay.png"
    with Image.open(download.path()) as overlay:
        assert overlay.size == (451, 300)
        np.testing.assert_array_equal(np.asarray(overlay), np.asarray(explained().overlay()))


def test_the_overlay_download_has_the_opacity_and_colours_on_show(explainer: Any, explained: Any) -> None:
    explainer.sample("chelsea")
    explainer.turn("opacity", 80)
    explainer.page.locator(".viewer-colors").select_option("magma")
    explainer.painted()
    with Image.open(explainer.download("overlay").path()) as overlay:
        expected = explained().overlay(alpha=0.8, colormap="magma")
        np.testing.assert_array_equal(np.asarray(overlay), np.asarray(expected))


def test_heatmap_values_and_summary_downloads_agree_with_explain(explainer: Any, explained: Any) -> None:
    explainer.sample("chelsea")
    expected = explained()
    values = np.load(io.BytesIO(Path(explainer.download("values").path()).read_bytes()))
    np.testing.assert_array_equal(values, expected.heatmap())
    with Image.open(explainer.download("heatmap").path()) as heatmap:
        assert heatmap.mode == "I;16"
        np.testing.assert_allclose(np.asarray(heatmap) / 65535, expected.heatmap(), atol=1e-5)
    summary = json.loads(Path(explainer.download("summary").path()).read_text())
    assert summary["maps"][0]["label"] == "tiger cat"
    assert summary["maps"][0]["logit"] == pytest.approx(expected.classes[0].logit, abs=1e-4)


def test_an_uploaded_picture_is_explained_at_once_at_its_own_size(explainer: Any, tmp_path: Path) -> None:
    wide = tmp_path / "mein Kaffee.png"
    with Image.open(ASSETS / "coffee.jpg") as coffee:
        coffee.resize((1500, 900)).save(wide)
    explainer.after(lambda: explainer.upload(wide))
    assert explainer.classes[0] == "espresso"
    assert "1500 × 900" in explainer.facts["Picture"]
    with Image.open(explainer.download("overlay").path()) as overlay:
        assert overlay.size == (1500, 900)


def test_a_click_on_a_prediction_explains_that_class(explainer: Any, explained: Any) -> None:
    explainer.sample("chelsea")
    second = explainer.classes[1]
    explainer.after(lambda: explainer.page.locator("#summary button").nth(1).click(), f"Done: {second}")
    pressed = explainer.page.locator("#summary button[aria-pressed=true] > span").first
    expect(pressed).to_have_text(second)
    expect(explainer.page.locator("#target input")).to_have_value(second)
    values = np.load(io.BytesIO(Path(explainer.download("values").path()).read_bytes()))
    np.testing.assert_array_equal(values, explained(targets=second).heatmap())


def test_any_of_the_thousand_classes_is_found_by_typing_and_explained(explainer: Any) -> None:
    explainer.sample("chelsea")
    explainer.after(lambda: explainer.choose("target", "Siamese cat"), "Done: Siamese cat")
    assert explainer.facts["Class"] == "Siamese cat (284)"
    assert "Siamese cat" in explainer.classes  # listed although it is none of the five likeliest


def test_a_new_picture_is_explained_for_its_own_top_class(explainer: Any) -> None:
    explainer.sample("chelsea")
    explainer.after(lambda: explainer.page.locator("#summary button").nth(2).click())
    explainer.sample("coffee")
    expect(explainer.page.locator("#target input")).to_have_value("Top prediction")
    assert explainer.facts["Class"].startswith("espresso")


def test_another_layer_gives_another_map_of_that_layers_size(explainer: Any, explained: Any) -> None:
    explainer.sample("chelsea")
    expect(explainer.page.locator("#layers .picker-button")).to_have_text("bn2 · 1280 × 7 × 7")
    explainer.pick_only("layers", "blocks.4.2.conv_pwl")
    explainer.settles_on("blocks.4.2.conv_pwl (112 × 14 × 14)")
    values = np.load(io.BytesIO(Path(explainer.download("values").path()).read_bytes()))
    np.testing.assert_array_equal(values, explained(layer="blocks.4.2.conv_pwl").heatmap())


def test_another_method_gives_its_own_map_and_chooses_its_own_layers(explainer: Any, explained: Any) -> None:
    explainer.sample("chelsea")
    expect(explainer.page.locator("#method .picker-button")).to_have_text("Grad-CAM")
    explainer.after(lambda: explainer.pick("method", "fused"))
    assert explainer.facts["Layer"].startswith("bn2 + blocks.6.0.bn1 + blocks.5.0.bn1")
    values = np.load(io.BytesIO(Path(explainer.download("values").path()).read_bytes()))
    np.testing.assert_array_equal(values, explained(method="fused").heatmap())
    explainer.after(lambda: explainer.pick("method", "fullgrad"))  # looks at no layer, whichever is chosen
    assert explainer.facts["Method"].startswith("FullGrad: ")
    assert explainer.facts["Layer"] == "the whole network"
    values = np.load(io.BytesIO(Path(explainer.download("values").path()).read_bytes()))
    np.testing.assert_array_equal(values, explained(method="fullgrad").heatmap())


def test_of_choices_made_in_a_hurry_the_last_one_is_shown(explainer: Any) -> None:
    explainer.sample("chelsea")
    for method in ("layercam", "eigencam", "xgradcam"):
        explainer.pick("method", method)
    expect(explainer.page.locator("#summary")).to_contain_text("XGrad-CAM: ")
    assert explainer.picked("method") == ["xgradcam"]


def test_another_model_brings_its_own_layers_and_explains_again(explainer: Any) -> None:
    explainer.sample("chelsea")
    explainer.after(lambda: explainer.choose("model", "EfficientNet-Lite1"))
    assert explainer.facts["Model"] == "EfficientNet-Lite1"
    assert "cat" in explainer.classes[0]
    explainer.pick_only("layers", "blocks.6.0.conv_pwl")
    explainer.settles_on("blocks.6.0.conv_pwl (320 × ")


def test_only_models_with_weights_here_are_offered_and_the_others_are_named(explainer: Any) -> None:
    explainer.page.locator("#model input").click()
    options = explainer.page.locator("#model [role=option]")
    expect(options).to_contain_text([f"EfficientNet-Lite{number}" for number in range(3)])
    expect(options).to_have_count(3)
    explainer.page.keyboard.press("Escape")
    others = explainer.page.locator("#other-models")
    others.locator("summary").click()
    expect(others).to_contain_text("ResNet-50")
    expect(others).to_contain_text("camapp models")


def test_a_file_that_is_no_picture_is_refused_in_words_and_the_old_result_goes(explainer: Any, tmp_path: Path) -> None:
    fake = tmp_path / "holiday.jpg"
    fake.write_text("This is not a picture at all.")
    explainer.sample("chelsea")
    explainer.upload(fake)
    expect(explainer.page.locator("[data-testid=toast-body]")).to_contain_text("This is text, not a picture.")
    expect(explainer.page.locator("#status")).to_contain_text("This is text, not a picture.")
    expect(explainer.viewer).to_have_attribute("data-state", "empty")
    expect(explainer.viewer).to_contain_text("No heatmap")
    assert explainer.classes == []
    explainer.sample("coffee")  # and the page goes on
    assert explainer.classes[0] == "espresso"


def test_clearing_the_picture_clears_the_result(explainer: Any) -> None:
    explainer.sample("chelsea")
    explainer.page.get_by_label("Remove Image").click()
    expect(explainer.viewer).to_have_attribute("data-state", "empty")
    expect(explainer.viewer).to_contain_text("No picture yet")
    expect(explainer.page.locator("#status")).to_contain_text("Ready")
    assert explainer.classes == []
    explainer.page.locator("#explain-run").click()
    expect(explainer.page.locator("#status")).to_contain_text("There is no picture yet")


def test_a_picture_is_pasted_from_the_clipboard(open_page: Any, server: Any) -> None:
    explainer = open_page(permissions=["clipboard-read", "clipboard-write"])
    picture = base64.b64encode((ASSETS / "coffee.jpg").read_bytes()).decode()
    explainer.page.evaluate(_COPY, picture)
    explainer.after(lambda: explainer.page.get_by_label("Paste from clipboard").click())
    assert explainer.classes[0] == "espresso"


def test_a_picture_that_browsers_do_not_show_is_still_explained(explainer: Any, tmp_path: Path) -> None:
    with Image.open(ASSETS / "coffee.jpg") as coffee:
        coffee.save(tmp_path / "coffee.tiff")
    explainer.after(lambda: explainer.upload(tmp_path / "coffee.tiff"))
    assert explainer.classes[0] == "espresso"
    expect(explainer.page.locator("#picture img")).to_have_attribute("alt", "The browser has no preview of this file.")


def test_a_long_thin_picture_is_letterboxed_and_the_note_says_so(explainer: Any, tmp_path: Path) -> None:
    Image.effect_noise((1000, 100), 90).convert("RGB").save(tmp_path / "thin.png")
    explainer.after(lambda: explainer.upload(tmp_path / "thin.png"))
    expect(explainer.page.locator("#summary")).to_contain_text("letterboxed")


def test_a_blank_map_says_why_and_is_not_painted(explainer: Any) -> None:
    explainer.sample("chelsea")
    explainer.turn("opacity", 0)
    plain = explainer.pixel(150, 150)
    explainer.after(lambda: explainer.choose("target", "oxcart"), "The map is blank")
    explainer.turn("opacity", 100)
    assert explainer.pixel(150, 150) == plain
    expect(explainer.page.locator("#summary .summary-warning")).to_contain_text("no positive evidence")
    expect(explainer.page.locator(".viewer-words")).to_contain_text("The map is blank: no positive evidence")


def test_sixteen_bit_grey_is_read_right_and_the_note_says_so(explainer: Any, tmp_path: Path) -> None:
    with Image.open(ASSETS / "chelsea.jpg") as cat:
        deep = np.asarray(cat.convert("L")).astype(np.uint16) * 257
    Image.fromarray(deep).save(tmp_path / "deep.png")
    explainer.after(lambda: explainer.upload(tmp_path / "deep.png"))
    assert "cat" in " ".join(explainer.classes[:3])
    expect(explainer.page.locator("#summary")).to_contain_text("16-bit grey")


def test_file_names_are_shown_as_text_and_never_run(explainer: Any, tmp_path: Path) -> None:
    ran: list[str] = []
    explainer.page.on("dialog", lambda dialog: (ran.append(dialog.message), dialog.dismiss()))
    evil = tmp_path / "<img src=x onerror=alert(1)>${alert(2)}{{value}}.png"
    Image.new("RGB", (300, 200), "orange").save(evil)
    explainer.after(lambda: explainer.upload(evil))
    assert explainer.page.locator("#summary img").count() == 0
    assert ran == []


def test_control_and_enter_explains_again_wherever_the_focus_is(explainer: Any) -> None:
    explainer.sample("chelsea")
    explainer.page.locator(".viewer-opacity").focus()
    explainer.after(lambda: explainer.page.keyboard.press("Control+Enter"))


def test_the_title_bar_opens_the_description_of_the_api(explainer: Any) -> None:
    explainer.page.get_by_role("button", name="Use it from Python").click()
    described = explainer.page.locator(".api-docs")
    expect(described).to_contain_text("/explain")
    expect(described).to_contain_text("Show where a model looks in one picture.")
    expect(described).to_contain_text("picture.jpg")
    described.get_by_text("Accepts 7 parameters").wait_for()
    # Gradio's panel asks for two services that are switched off
    known = ("/mcp/", "/monitoring/", "console: Failed to load resource")
    explainer.faults[:] = [one for one in explainer.faults if not any(part in one for part in known)]


def test_on_a_dark_phone_the_result_comes_right_below_the_picture(open_page: Any) -> None:
    phone = open_page("?__theme=dark", viewport={"width": 390, "height": 844}, has_touch=True)
    phone.sample("chelsea")
    parts = ("selection-picture", "explain-panel", "choices")
    above, result, below = (phone.page.locator(f"#{name}").bounding_box() for name in parts)
    assert above["y"] < result["y"] < below["y"]
    assert phone.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert phone.page.evaluate("document.body.classList.contains('dark')")
