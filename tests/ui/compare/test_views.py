"""What the views of the Compare tab are given: the same numbers as the library's, in words and levels."""

from __future__ import annotations

import base64
import io
import json
import zipfile
from typing import Any

import numpy as np
import pytest
from PIL import Image

import camapp
from camapp.comparison import Comparison, compare_maps
from camapp.patches import patch_similarity
from camapp.resources import resource_folder
from camapp.ui.compare.downloads import zip_of
from camapp.ui.compare.grid import grid_of, signed
from camapp.ui.compare.patches import levels_of_cosines, patches_of

ASSETS = resource_folder("assets")
FINER = "blocks.4.2.conv_pwl"


@pytest.fixture(scope="module")
def model() -> camapp.LoadedModel:
    return camapp.load_model("efficientnet_lite0", device="cpu", download=False)


@pytest.fixture(scope="module")
def comparison(model: camapp.LoadedModel) -> Comparison:
    methods = ["gradcam", "cam", "fullgrad"]
    return compare_maps(model, ASSETS / "chelsea.jpg", methods=methods, layers=[None, FINER])


@pytest.fixture(scope="module")
def view(comparison: Comparison) -> dict[str, Any]:
    columns = [("bn2", "1280 × 7 × 7"), (FINER, "112 × 14 × 14")]
    return grid_of(comparison, columns, "token", {"zip": "a.zip"}, {"python": "", "command": "", "address": {}})


def decoded(url: str) -> np.ndarray:
    with Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))) as image:
        return np.asarray(image)


def test_each_cell_holds_its_map_as_the_picture_is_shown(comparison: Comparison, view: dict[str, Any]) -> None:
    assert tuple(view["size"]) == (451, 300)
    for cell, shown in zip(comparison.cells, view["cells"], strict=True):
        if cell.explanation is None:
            assert "levels" not in shown
            continue
        levels = decoded(shown["levels"])
        np.testing.assert_allclose(levels / 255, cell.explanation.heatmap(), atol=0.5 / 255 + 1e-6)
        x, y = shown["peak"]
        assert levels[y, x] == levels.max()


def test_cells_are_lettered_and_a_refused_one_says_why(view: dict[str, Any]) -> None:
    assert [cell["letter"] for cell in view["cells"]] == ["A", "B", "C", "", "D"]
    assert "linear head takes 1280" in view["cells"][3]["reason"]
    assert view["cells"][4]["column"] == "whole network"
    assert view["cells"][0]["alternative"].startswith("A: Grad-CAM · bn2. Hottest at ")


def test_tables_hold_the_numbers_of_the_cells_that_have_a_map(comparison: Comparison, view: dict[str, Any]) -> None:
    correlation, overlap = view["tables"]
    shown = [0, 1, 2, 4]
    np.testing.assert_allclose(correlation["values"], comparison.correlation[np.ix_(shown, shown)], atol=1e-4)
    np.testing.assert_allclose(overlap["values"], comparison.overlap[np.ix_(shown, shown)], atol=1e-4)
    assert correlation["letters"] == ["A", "B", "C", "D"]
    best = np.array(correlation["values"])
    i, j = np.unravel_index(np.argmax(np.triu(best, 1) - np.tril(np.ones_like(best)) * 9), best.shape)
    assert f"Most alike: {'ABCD'[i]} and {'ABCD'[j]} ({signed(best[i, j])})" in view["words"]


def test_the_view_is_json_and_small(view: dict[str, Any]) -> None:
    assert len(json.dumps(view, allow_nan=False)) < 500_000


def test_a_minus_is_a_minus_and_zero_has_none() -> None:
    assert [signed(value) for value in (-0.314, -0.001, 0.5, 1)] == ["−0.31", "0.00", "0.50", "1.00"]


def test_the_zip_holds_what_save_writes(comparison: Comparison, tmp_path: Any) -> None:
    saved = comparison.save(tmp_path)
    with zipfile.ZipFile(io.BytesIO(zip_of(comparison))) as archive:
        assert sorted(archive.namelist()) == sorted(path.name for path in saved.files)
        name = saved.overlays[0].name  # type: ignore[union-attr]
        assert archive.read(name) == saved.overlays[0].read_bytes()  # type: ignore[union-attr]


def test_cosines_in_levels_are_exact_at_the_ends_and_at_zero() -> None:
    cosines = np.array([-1, 0, 1, 0.3], np.float32)
    levels = levels_of_cosines(cosines)
    assert levels.tolist()[:3] == [0, 127, 254]
    assert levels[3] / 127 - 1 == pytest.approx(0.3, abs=0.5 / 127)


def test_patches_lie_in_the_shown_picture_where_the_library_finds_them(model: camapp.LoadedModel) -> None:
    alike = patch_similarity(model, ASSETS / "rocket.jpg", ASSETS / "chelsea.jpg")
    view = patches_of(alike, "")
    sent = np.frombuffer(base64.b64decode(view["cosines"]), np.uint8).reshape(alike.cosines.shape)
    np.testing.assert_allclose(sent / 127 - 1, alike.cosines, atol=0.5 / 127 + 1e-6)
    for of, picture in enumerate(view["pictures"]):
        across = picture["original"][0] / picture["size"][0]
        patch = picture["patch"]
        for row, column in ((0, 0), (5, 9), (13, 13)):
            x = (patch["left"] + (column + 0.5) * patch["width"]) * across
            y = (patch["top"] + (row + 0.5) * patch["height"]) * picture["original"][1] / picture["size"][1]
            assert alike.patch_at(x, y, of) == (row, column)
