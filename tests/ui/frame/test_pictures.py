"""Data URLs hold the picture that went in: exactly, or as a photo nearly so."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from PIL import Image

from camapp.ui.frame.pictures import jpeg_url, png_url


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
