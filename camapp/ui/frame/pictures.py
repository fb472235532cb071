"""Pictures as the views' scripts get them: as data URLs, and with what the model saw of them."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
from PIL import Image

from camapp.images.geometry import Geometry
from camapp.images.picture import Picture
from camapp.images.render import png_bytes


def shown(picture: Picture, geometry: Geometry, longest: int, quality: int = 92) -> tuple[dict[str, Any], Geometry]:
    """A picture as the browser gets it, made smaller where it is large.

    Args:
        picture: the picture.
        geometry: how the model's input lies in it.
        longest: of its sides as it is shown, in pixels.
        quality: of the JPEG.

    Returns:
        ``picture``, a data URL; its ``size``, and that of the ``original``; what was ``seen`` of it (left, top, right,
        bottom, in pixels of ``size``), and whether the model ``sees_all``. And the geometry at that size.
    """
    small = picture.no_larger_than(longest).to_pil()
    scaled = geometry.scaled_to(small.size)
    rows, columns = scaled.seen_pixels
    facts = {
        "picture": jpeg_url(small, quality),
        "size": small.size,
        "original": picture.size,
        "seen": [columns.start, rows.start, columns.stop, rows.stop],
        "sees_all": scaled.sees_all,
    }
    return facts, scaled


def jpeg_url(picture: Image.Image, quality: int = 92) -> str:
    """A photo, in colours as sharp as its brightness: maps are laid over it."""
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=quality, subsampling=0)
    return data_url("image/jpeg", buffer.getvalue())


def png_url(levels: np.ndarray) -> str:
    """Levels (H, W) or (H, W, 3) uint8, exactly."""
    return data_url("image/png", png_bytes(levels))


def data_url(kind: str, content: bytes) -> str:
    """A file as an address that holds it.

    Args:
        kind: its MIME type.
        content: its bytes.
    """
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
