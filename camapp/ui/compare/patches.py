"""Patches that look alike: all cosines go to the browser once, which answers a moving point by itself."""

from __future__ import annotations

import base64
import secrets
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np

from camapp.images.geometry import Geometry
from camapp.images.render import VEIL
from camapp.patches import PatchSimilarity
from camapp.ui.compare.grid import LONGEST_SIDE, QUALITY
from camapp.ui.frame.component import view
from camapp.ui.frame.look import encoded_colormaps
from camapp.ui.frame.pictures import shown

_HERE = Path(__file__).parent


def patches_view(**options: Any) -> gr.HTML:
    """The component; its value is made by ``patches_of``. It triggers ``wanted``."""
    return view(_HERE, "patches", veil=VEIL, colormaps=encoded_colormaps(), **options)


def patches_of(alike: PatchSimilarity, python: str, start: tuple[int, int] | None = None) -> dict[str, Any]:
    """What the view shows.

    Args:
        alike: the result.
        python: the same call as a program.
        start: row and column of the patch of the first picture to begin with; the middle one by default.
    """
    rows, columns = alike.grid
    return {
        "token": secrets.token_urlsafe(8),  # sets this result apart from others
        "python": python,
        "grid": [rows, columns],
        "start": list(start or (rows // 2, columns // 2)),
        "pictures": [_picture(alike, of) for of in range(len(alike.pictures))],
        "cosines": base64.b64encode(levels_of_cosines(alike.cosines).tobytes()).decode(),
        "lowest": round(float(alike.cosines.min()), 4),
        "notes": list(alike.notes),
    }


def levels_of_cosines(cosines: np.ndarray) -> np.ndarray:
    """Cosines as uint8: 0 is -1, 127 is 0 and 254 is 1."""
    return np.rint((cosines + 1) * 127).astype(np.uint8)


def _picture(alike: PatchSimilarity, of: int) -> dict[str, Any]:
    picture, geometry = shown(alike.pictures[of], alike.geometries[of], LONGEST_SIDE, QUALITY)
    return {**picture, "name": alike.pictures[of].name, "patch": _patch(geometry, alike.grid)}


def _patch(geometry: Geometry, grid: tuple[int, int]) -> dict[str, float]:
    """Where the first patch begins in the picture shown, and how large each is, in its pixels."""
    return {
        "left": geometry.left,
        "top": geometry.top,
        "width": geometry.step_x * geometry.model[0] / grid[1],
        "height": geometry.step_y * geometry.model[1] / grid[0],
    }
