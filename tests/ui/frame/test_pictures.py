"""Data URLs hold the picture that went in: exactly, or as a photo nearly so; a large one is made smaller."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from PIL import Image

from camapp.images.geometry import Preprocessing, place
from camapp.images.picture import Picture
from camapp.ui.frame.pictures import data_url, jpeg_url, png_url, shown


def opened(url: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2])))


@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 3)])
def test_levels_come_back_exactly(shape: tuple[int, ...]) -> None:
    levels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    assert png_url(levels).startswith("data:image/png;base64,")
    np.testing.assert_array_equal(np.asarray(opened(png_url(levels))), levels)


def test_a_photo_keeps_sharp_edges_of_colour_and_says_what_it_is() -> None:
    pixels = np.zeros((16, 16, 3), np.uint8)
    pixels[:, ::2, 0] = pixels[:, 1::2, 2] = 255  # red and blue stripes, which coarser colours would make one purple
    url = jpeg_url(Image.fromarray(pixels), 90)
    assert url.startswith("data:image/jpeg;base64,")
    assert opened(url).format == "JPEG"
    assert np.abs(np.asarray(opened(url)).astype(int) - pixels).max() < 40
    assert len(jpeg_url(Image.fromarray(pixels), 50)) < len(url)


def test_any_bytes_come_back_as_they_were() -> None:
    kind, _, content = data_url("image/heic", bytes(range(256))).partition(";base64,")
    assert kind == "data:image/heic"
    assert base64.b64decode(content) == bytes(range(256))


def test_a_large_picture_is_shown_smaller_and_what_was_seen_of_it_shrinks_with_it() -> None:
    picture = Picture(np.zeros((200, 400, 3), np.uint8))
    geometry = place(picture, Preprocessing(size=(32, 32), resize=32)).geometry  # the square in the middle
    facts, scaled = shown(picture, geometry, 100)
    assert opened(facts["picture"]).size == facts["size"] == (100, 50)
    assert facts["original"] == (400, 200)
    assert (facts["seen"], facts["sees_all"]) == ([25, 0, 75, 50], False)
    assert scaled == geometry.scaled_to((100, 50))


def test_a_picture_that_fits_is_shown_at_its_own_size_and_in_the_quality_asked_for() -> None:
    picture = Picture(np.random.default_rng(0).integers(0, 256, (30, 40, 3), np.uint8))
    geometry = place(picture, Preprocessing(size=(32, 32), resize=32), "stretch").geometry
    fine, scaled = shown(picture, geometry, 40)
    assert (fine["size"], fine["seen"], fine["sees_all"]) == ((40, 30), [0, 0, 40, 30], True)
    assert scaled == geometry
    assert len(shown(picture, geometry, 40, 50)[0]["picture"]) < len(fine["picture"])
