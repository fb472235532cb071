"""Placement: the way to the model's input and the exact way back."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from camapp.errors import UsageError
from camapp.images.decode import Picture
from camapp.images.geometry import FITS, Preprocessing, prepare

PLAIN = Preprocessing(size=(32, 32), resize=36, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
sides = st.integers(min_value=1, max_value=300)


def picture_with_dot(width: int, height: int, x: int, y: int, radius: int = 6) -> Picture:
    """Black, with a white square whose centre is (x + 0.5, y + 0.5)."""
    rgb = np.zeros((height, width, 3), np.uint8)
    rgb[max(0, y - radius) : y + radius + 1, max(0, x - radius) : x + radius + 1] = 255
    return Picture.from_array(rgb)


def centre_of_mass(values: np.ndarray) -> tuple[float, float]:
    y, x = np.mgrid[: values.shape[0], : values.shape[1]] + 0.5
    return float((x * values).sum() / values.sum()), float((y * values).sum() / values.sum())


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize(("width", "height"), [(200, 130), (130, 200), (150, 150), (97, 101)])
def test_a_mark_in_the_picture_is_where_the_geometry_says_in_the_input(fit: str, width: int, height: int) -> None:
    x, y = width // 2 + 11, height // 2 - 7
    tensor, geometry, _ = prepare(picture_with_dot(width, height, x, y), PLAIN, fit)  # type: ignore[arg-type]
    found = centre_of_mass(tensor[0, 0].numpy().clip(0, 1))
    expected = geometry.point_to_model(x + 0.5, y + 0.5)
    assert np.allclose(found, expected, atol=0.2)
    assert np.allclose(geometry.point_to_original(*expected), (x + 0.5, y + 0.5))


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize(("width", "height"), [(200, 130), (130, 200), (64, 64), (33, 35)])
def test_a_mark_in_the_input_comes_back_to_its_place_in_the_picture(fit: str, width: int, height: int) -> None:
    x, y = width // 2 + 3, height // 2 - 4
    tensor, geometry, _ = prepare(picture_with_dot(width, height, x, y, radius=4), PLAIN, fit)  # type: ignore[arg-type]
    back = geometry.to_original(tensor[0, 0].numpy().clip(0, 1))
    assert back.shape == (height, width)
    assert np.allclose(centre_of_mass(back), (x + 0.5, y + 0.5), atol=0.6)


@given(width=sides, height=sides, fit=st.sampled_from([None, *FITS]))
@settings(max_examples=150, deadline=None)
def test_every_size_of_picture_gets_an_input_and_a_way_back(width: int, height: int, fit: str | None) -> None:
    rng = np.random.default_rng(width * 1000 + height)
    picture = Picture.from_array(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))
    tensor, geometry, _ = prepare(picture, PLAIN, fit)  # type: ignore[arg-type]
    assert tensor.shape == (1, 3, 32, 32)
    assert tensor.min() >= 0
    assert tensor.max() <= 1
    left, top, right, bottom = geometry.seen
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height
    heatmap = rng.random((7, 7), dtype=np.float32)
    back = geometry.to_original(heatmap)
    assert back.shape == (height, width)
    assert back.min() >= 0
    assert back.max() <= heatmap.max() + 1e-6  # interpolation never overshoots
    rows, columns = geometry.seen_pixels
    unseen = np.ones((height, width), bool)
    unseen[rows, columns] = False
    assert not back[unseen].any()
    assert (back[rows, columns] >= heatmap.min() - 1e-6).all()


def test_on_a_stretched_picture_the_way_back_is_torchs_bilinear_resize() -> None:
    picture = Picture.from_array(np.zeros((45, 70, 3), np.uint8))
    _, geometry, _ = prepare(picture, PLAIN, "stretch")
    heatmap = np.random.default_rng(0).random((32, 32), dtype=np.float32)
    wide = torch.from_numpy(heatmap)[None, None].double()
    wanted = F.interpolate(wide, size=(45, 70), mode="bilinear", align_corners=False)
    np.testing.assert_allclose(geometry.to_original(heatmap), wanted[0, 0].numpy(), atol=1e-6)


def test_a_linear_ramp_comes_back_as_a_linear_ramp_in_original_coordinates() -> None:
    picture = Picture.from_array(np.zeros((120, 200, 3), np.uint8))
    _, geometry, _ = prepare(picture, PLAIN)
    ramp = np.tile(np.arange(32, dtype=np.float32) + 0.5, (32, 1))  # the model x of each pixel's centre
    back = geometry.to_original(ramp)
    rows, columns = geometry.seen_pixels
    for x in range(columns.start + 4, columns.stop - 4):
        wanted = (x + 0.5 - geometry.left) / geometry.step_x
        np.testing.assert_allclose(back[rows, x], wanted, atol=1e-4)


def test_a_centre_crop_by_hand() -> None:
    # 200x100, short side to 36: 72x36; the 32x32 centre starts at (20, 2); 100/36 original pixels per model pixel.
    picture = Picture.from_array(np.zeros((100, 200, 3), np.uint8))
    _, geometry, notes = prepare(picture, PLAIN)
    step = 100 / 36
    assert (geometry.step_x, geometry.step_y) == (200 / 72, step)
    assert geometry.seen == pytest.approx((20 * step, 2 * step, 52 * step, 34 * step))
    assert notes == []
    assert not geometry.sees_all


def test_very_elongated_pictures_are_letterboxed_and_say_so() -> None:
    picture = Picture.from_array(np.full((20, 200, 3), 200, np.uint8))
    tensor, geometry, notes = prepare(picture, PLAIN)
    assert geometry.fit == "letterbox"
    assert geometry.sees_all
    assert notes == ["10.0:1 is too elongated for a centre crop: letterboxed, so that the model sees it all"]
    assert tensor[0, 0, 16, 16] == pytest.approx(200 / 255)
    _, asked, quiet = prepare(picture, PLAIN, "crop")
    assert asked.fit == "crop"
    assert quiet == []


def test_letterbox_pads_with_the_models_mean_so_that_padding_is_near_zero() -> None:
    how = Preprocessing(size=(32, 32), resize=36)
    tensor, geometry, _ = prepare(Picture.from_array(np.full((50, 100, 3), 255, np.uint8)), how, "letterbox")
    assert tensor[0, :, 0, 0].abs().max() < 0.01  # mean colour, up to the rounding to 8 bits
    assert geometry.top < 0


def test_pixels_are_scaled_and_normalised_per_channel() -> None:
    how = Preprocessing(size=(8, 8), resize=8, mean=(0.1, 0.2, 0.3), std=(0.5, 0.25, 2.0))
    rgb = np.zeros((8, 8, 3), np.uint8)
    rgb[:] = (255, 51, 0)
    tensor, _, _ = prepare(Picture.from_array(rgb), how)
    wanted = [(1 - 0.1) / 0.5, (0.2 - 0.2) / 0.25, (0 - 0.3) / 2.0]
    np.testing.assert_allclose(tensor[0, :, 3, 3].numpy(), wanted, atol=1e-6)


def test_an_unknown_fit_is_refused() -> None:
    with pytest.raises(UsageError, match='fit="zoom"'):
        prepare(Picture.from_array(np.zeros((8, 8, 3), np.uint8)), PLAIN, "zoom")  # type: ignore[arg-type]
