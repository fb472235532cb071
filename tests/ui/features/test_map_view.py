"""What the plane of pictures is given: thumbnails as one picture that the page takes apart."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image

from camapp.ui.features.map_view import sprite_of


def test_a_thumbnail_lies_where_columns_and_side_say_and_a_missing_one_is_grey() -> None:
    red, blue = (np.full((24, 24, 3), colour, np.uint8) for colour in ((200, 20, 20), (20, 20, 200)))
    sprite = sprite_of([red, None, blue])
    assert sprite is not None
    columns, rows, side = (sprite[name] for name in ("columns", "rows", "side"))
    sheet = Image.open(io.BytesIO(base64.b64decode(sprite["jpeg"])))
    assert sheet.size == (columns * side, rows * side) == (48, 48)
    pixels = np.asarray(sheet).astype(int)
    for place, colour in enumerate([(200, 20, 20), (160, 160, 160), (20, 20, 200)]):
        row, column = divmod(place, columns)
        middle = pixels[row * side + side // 2, column * side + side // 2]
        assert np.abs(middle - colour).max() < 8


def test_of_no_thumbnails_there_is_no_picture() -> None:
    assert sprite_of([]) is None
