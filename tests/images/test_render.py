"""Painting: colours, overlays, lossless files."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from camapp.errors import UsageError
from camapp.images.decode import Picture
from camapp.images.geometry import Preprocessing, prepare
from camapp.images.render import COLORMAPS, colorize, colors_of, heatmap_16bit, opacities, overlay, png_bytes, stamp


@pytest.mark.parametrize("colormap", COLORMAPS)
def test_every_colour_map_has_256_colours_that_change_along_it(colormap: str) -> None:
    colors = colors_of(colormap)
    assert colors.shape == (256, 3)
    assert len(np.unique(colors, axis=0)) > 150


def test_viridis_runs_from_violet_to_yellow_in_rgb_order() -> None:
    colors = colors_of("viridis").astype(int)
    np.testing.assert_allclose(colors[0], (68, 1, 84), atol=2)  # matplotlib's published end points
    np.testing.assert_allclose(colors[-1], (253, 231, 37), atol=2)


def test_colours_are_taken_at_the_nearest_level() -> None:
    heatmap = np.array([[0.0, 0.5, 1.0, -3.0, 7.0]], np.float32)
    np.testing.assert_array_equal(colorize(heatmap, "gray")[0, :, 0], [0, 128, 255, 0, 255])


def test_at_the_hottest_an_overlay_is_the_weighted_mean_of_picture_and_colours() -> None:
    rgb = np.full((4, 6, 3), 100, np.uint8)
    painted = overlay(rgb, np.ones((4, 6), np.float32), alpha=0.25, colormap="gray")
    np.testing.assert_array_equal(painted, np.full((4, 6, 3), round(100 * 0.75 + 255 * 0.25), np.uint8))
    assert (rgb == 100).all()  # the picture itself is not painted on


def test_cooler_places_show_more_of_the_picture() -> None:
    heatmap = np.linspace(0, 1, 256, dtype=np.float32)[None]
    painted = overlay(np.zeros((1, 256, 3), np.uint8), heatmap, alpha=0.5, colormap="gray")[0, :, 0].astype(int)
    by_hand = [round(level * 0.5 ** (1 + 4 * (1 - level / 255))) for level in range(256)]
    np.testing.assert_array_equal(painted, by_hand)
    weights = opacities(0.5)
    assert (np.diff(weights) > 0).all()
    assert weights[255] == 0.5
    assert weights[0] == 0.5**5


@pytest.mark.parametrize("colormap", COLORMAPS)
@pytest.mark.parametrize("alpha", [0.3, 0.7])
def test_every_pixel_is_the_weighted_mean_in_exact_arithmetic(colormap: str, alpha: float) -> None:
    rng = np.random.default_rng(1)
    rgb, heatmap = rng.integers(0, 256, (64, 50, 3), dtype=np.uint8), rng.random((64, 50), dtype=np.float32)
    level = np.floor(heatmap * 255 + np.float32(0.5)).astype(int)
    weight = alpha ** (1 + 4 * (1 - level / 255))[..., None]
    expected = np.rint(rgb * (1 - weight) + colors_of(colormap)[level].astype(np.float64) * weight)
    np.testing.assert_array_equal(overlay(rgb, heatmap, alpha=alpha, colormap=colormap), expected)


def test_bands_leave_no_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    rgb, heatmap = rng.integers(0, 256, (37, 23, 3), dtype=np.uint8), rng.random((37, 23), dtype=np.float32)
    whole = overlay(rgb, heatmap)
    monkeypatch.setattr("camapp.images.render.BAND_PIXELS", 50)
    np.testing.assert_array_equal(overlay(rgb, heatmap), whole)


def test_below_the_threshold_the_picture_stays_as_it_is() -> None:
    rgb = np.full((1, 4, 3), 90, np.uint8)
    heatmap = np.array([[0.0, 0.49, 0.5, 1.0]], np.float32)
    painted = overlay(rgb, heatmap, alpha=1, colormap="gray", hide_below=0.5)
    np.testing.assert_array_equal(painted[0, :, 0], [90, 90, 128, 255])


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_the_ends_of_alpha_show_only_one_of_the_two(alpha: float) -> None:
    rng = np.random.default_rng(0)
    rgb, heatmap = rng.integers(0, 256, (5, 5, 3), dtype=np.uint8), rng.random((5, 5), dtype=np.float32)
    painted = overlay(rgb, heatmap, alpha=alpha, colormap="magma")
    np.testing.assert_array_equal(painted, colorize(heatmap, "magma") if alpha else rgb)


def test_what_the_model_did_not_see_is_left_as_it_is() -> None:
    picture = Picture.from_array(np.full((100, 200, 3), 90, np.uint8))
    _, geometry, _ = prepare(picture, Preprocessing(size=(32, 32), resize=36))
    heatmap = geometry.to_original(np.ones((32, 32), np.float32))
    painted = overlay(picture.rgb, heatmap, geometry, alpha=1, colormap="gray", frame=False)
    rows, columns = geometry.seen_pixels
    inside = np.zeros((100, 200), bool)
    inside[rows, columns] = True
    assert (painted[inside] == 255).all()
    assert (painted[~inside] == 90).all()


def test_the_frame_lies_on_the_edge_of_what_was_seen_and_nowhere_else() -> None:
    picture = Picture.from_array(np.full((100, 200, 3), 90, np.uint8))
    _, geometry, _ = prepare(picture, Preprocessing(size=(32, 32), resize=36))
    heatmap = np.zeros((100, 200), np.float32)
    framed = overlay(picture.rgb, heatmap, geometry, alpha=0, frame=True)
    rows, columns = geometry.seen_pixels
    changed = np.argwhere((framed != picture.rgb).any(-1))
    assert changed.min(0).tolist() == [rows.start, columns.start]
    assert changed.max(0).tolist() == [rows.stop - 1, columns.stop - 1]
    assert (
        not (framed != picture.rgb).any(-1)[rows.start + 1 : rows.stop - 1, columns.start + 1 : columns.stop - 1].any()
    )
    assert set(np.unique(framed)) == {0, 90, 255}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"alpha": 1.5}, r"alpha = 1\.5 is not between 0 and 1"),
        ({"alpha": float("nan")}, "alpha = nan"),
        ({"hide_below": -0.1}, r"hide_below = -0\.1 is not between 0 and 1"),
        ({"colormap": "virdis"}, "Did you mean viridis"),
    ],
)
def test_wrong_options_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        overlay(np.zeros((4, 4, 3), np.uint8), np.zeros((4, 4), np.float32), **arguments)  # type: ignore[arg-type]


def test_a_heatmap_of_another_size_is_refused() -> None:
    with pytest.raises(UsageError, match="3x4 does not lie on a picture of 4x4"):
        overlay(np.zeros((4, 4, 3), np.uint8), np.zeros((4, 3), np.float32))


def test_pngs_read_back_as_they_were_written() -> None:
    rng = np.random.default_rng(0)
    rgb = rng.integers(0, 256, (5, 7, 3), dtype=np.uint8)
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(png_bytes(rgb)))), rgb)
    heatmap = rng.random((5, 7), dtype=np.float32)
    levels = heatmap_16bit(heatmap)
    read = np.asarray(Image.open(io.BytesIO(png_bytes(levels))))
    assert np.array_equal(read, levels)
    assert np.abs(read / 65535 - heatmap).max() <= 0.5 / 65535 + 1e-7


@pytest.mark.parametrize("size", [(8, 8), (40, 300), (600, 900)])
def test_a_stamp_is_readable_red_and_inside_the_picture(size: tuple[int, int]) -> None:
    grey = np.full((*size, 3), 128, np.uint8)
    stamped = stamp(grey, "RANDOM WEIGHTS")
    assert stamped.shape == grey.shape
    assert (stamped[0, 0] == (190, 20, 30)).all()
    assert (grey == 128).all()
