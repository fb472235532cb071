"""Sprite: many small pictures side by side in one JPEG, as pages and the Embedding Projector show them."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from camapp.errors import UsageError

SIDE = 96
_QUALITY = 80
_GROUND = (226, 232, 240)


@dataclass(frozen=True)
class Sprite:
    """Thumbnails on a grid, row by row.

    Args:
        jpeg: the file, without metadata.
        columns: thumbnails in a row.
        rows: rows of them.
        side: of each thumbnail, in pixels.
    """

    jpeg: bytes
    columns: int
    rows: int
    side: int


def thumbnail(pixels: np.ndarray, side: int = SIDE) -> np.ndarray:
    """A picture shrunk and centred on a square of a plain colour: all of it, in its own aspect.

    Args:
        pixels: (H, W, 3) uint8.
        side: of the square.

    Returns:
        (side, side, 3) uint8.
    """
    height, width = pixels.shape[:2]
    scale = side / max(height, width)
    size = max(1, round(width * scale)), max(1, round(height * scale))
    small = Image.fromarray(pixels).resize(size, Image.Resampling.LANCZOS, reducing_gap=3.0)
    square = Image.new("RGB", (side, side), _GROUND)
    square.paste(small, ((side - size[0]) // 2, (side - size[1]) // 2))
    return np.asarray(square)


def sprite(thumbnails: Sequence[np.ndarray]) -> Sprite:
    """Thumbnails as one JPEG, on a grid as square as can be.

    Args:
        thumbnails: each (side, side, 3) uint8, all of one side.

    Raises:
        UsageError: none, or of several sides.
    """
    sides = {one.shape for one in thumbnails}
    if len(sides) != 1:
        raise UsageError(f"A sprite takes thumbnails of one size, one or more; these are {sorted(sides) or 'none'}.")
    side = thumbnails[0].shape[0]
    columns = math.ceil(math.sqrt(len(thumbnails)))
    rows = math.ceil(len(thumbnails) / columns)
    sheet = np.full((rows * side, columns * side, 3), _GROUND, np.uint8)
    for place, one in enumerate(thumbnails):
        row, column = divmod(place, columns)
        sheet[row * side : (row + 1) * side, column * side : (column + 1) * side] = one
    buffer = io.BytesIO()
    Image.fromarray(sheet).save(buffer, "JPEG", quality=_QUALITY, subsampling=0)
    return Sprite(buffer.getvalue(), columns, rows, side)
