"""Thumbnails of a source: in its order, and none for what cannot be read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from camapp.sources.pictures import PictureFile
from camapp.sources.thumbnails import read_thumbnails


def test_thumbnails_come_in_order_with_a_gap_for_a_broken_picture(tmp_path: Path) -> None:
    Image.new("RGB", (900, 600), (200, 10, 10)).save(tmp_path / "red.jpg")
    (tmp_path / "broken.jpg").write_bytes(b"no picture")
    Image.new("RGB", (10, 10), (10, 200, 10)).save(tmp_path / "green.png")
    names = ("red.jpg", "broken.jpg", "green.png")
    red, broken, green = read_thumbnails([PictureFile(tmp_path / name, name) for name in names], side=24)
    assert broken is None
    assert red is not None
    assert green is not None
    np.testing.assert_allclose(red[12, 12], (200, 10, 10), atol=4)
    np.testing.assert_array_equal(green[12, 12], (10, 200, 10))
