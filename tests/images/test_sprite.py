"""Sprites: each thumbnail whole, in its aspect and at its place."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from camapp.errors import UsageError
from camapp.images.sprite import sprite, thumbnail


def plain(height: int, width: int, colour: tuple[int, int, int]) -> np.ndarray:
    return np.full((height, width, 3), colour, np.uint8)


@pytest.mark.parametrize(("height", "width"), [(100, 200), (200, 100), (1, 500), (3, 3)])
def test_a_thumbnail_shows_all_of_the_picture_in_its_aspect(height: int, width: int) -> None:
    small = thumbnail(plain(height, width, (250, 0, 0)), 32)
    assert small.shape == (32, 32, 3)
    red = (small == (250, 0, 0)).all(2)
    scale = 32 / max(height, width)
    assert (red.any(1).sum(), red.any(0).sum()) == (max(1, round(height * scale)), max(1, round(width * scale)))


def test_each_thumbnail_lies_at_its_place() -> None:
    colours = [(250, 0, 0), (0, 250, 0), (0, 0, 250), (250, 250, 0), (0, 250, 250)]
    made = sprite([plain(16, 16, colour) for colour in colours])
    assert (made.columns, made.rows, made.side) == (3, 2, 16)
    with Image.open(io.BytesIO(made.jpeg)) as image:
        assert image.size == (48, 32)
        pixels = np.asarray(image).astype(int)
    for place, colour in enumerate(colours):
        row, column = divmod(place, 3)
        tile = pixels[row * 16 : row * 16 + 16, column * 16 : column * 16 + 16]
        assert np.abs(tile - colour).max() <= 6  # JPEG


def test_thumbnails_of_several_sizes_or_none_are_refused() -> None:
    with pytest.raises(UsageError, match="one size"):
        sprite([])
    with pytest.raises(UsageError, match="one size"):
        sprite([plain(8, 8, (0, 0, 0)), plain(9, 9, (0, 0, 0))])
