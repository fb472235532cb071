"""Pictures as data URLs, as the views' scripts get them."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image

from camapp.images.render import png_bytes


def jpeg_url(picture: Image.Image, quality: int = 92) -> str:
    """A photo, in colours as sharp as its brightness: maps are laid over it."""
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=quality, subsampling=0)
    return _url("image/jpeg", buffer.getvalue())


def png_url(levels: np.ndarray) -> str:
    """Levels (H, W) or (H, W, 3) uint8, exactly."""
    return _url("image/png", png_bytes(levels))


def _url(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
