"""Paint heatmaps: overlays, opacities, stamps; all that paints can be had from here. NumPy and OpenCV; no tensors."""

from __future__ import annotations

from functools import lru_cache

import cv2
import numpy as np

from camapp.errors import UsageError
from camapp.images.channels import channel_grid
from camapp.images.colors import COLORMAPS, DIVERGING, colorize, colors_of, diverging_colors, levels_of, png_bytes
from camapp.images.geometry import Geometry

__all__ = [
    "ALPHA",
    "COLORMAPS",
    "DIVERGING",
    "VEIL",
    "channel_grid",
    "checked_paint",
    "colorize",
    "colors_of",
    "diverging_colors",
    "heatmap_16bit",
    "levels_of",
    "opacities",
    "overlay",
    "png_bytes",
    "stamp",
]


# The default opacity at the hottest place, and how much faster it falls than the heat.
ALPHA, VEIL = 0.7, 4.0

BAND_PIXELS = 2**18


def opacities(alpha: float, *, signed: bool = False) -> np.ndarray:
    """The opacity of each of 256 levels of heat, (256,): ``alpha ** (1 + 4 * (1 - heat))``.

    It is ``alpha`` at the hottest and rises with the heat, so that cold parts are not veiled; 0 and 1 are 0 and 1 at
    every level.

    Args:
        alpha: 0 to 1.
        signed: levels 0 to 255 are values from -1 to 1, whose heat is their magnitude.
    """
    levels = np.arange(256) / 255
    heat = np.abs(2 * levels - 1) if signed else levels
    return alpha ** (1 + VEIL * (1 - heat))


def checked_paint(alpha: float, colormap: str, hide_below: float = 0.0) -> None:
    """Raise a UsageError for an alpha or a threshold outside 0-1, or an unknown colour map."""
    for name, value in (("alpha", alpha), ("hide_below", hide_below)):
        if not 0 <= value <= 1:
            raise UsageError(f"{name} = {value} is not between 0 and 1.")
    colors_of(colormap)


def overlay(
    rgb: np.ndarray,
    heatmap: np.ndarray,
    geometry: Geometry | None = None,
    *,
    alpha: float = ALPHA,
    colormap: str = "viridis",
    hide_below: float = 0.0,
    frame: bool = True,
    signed: bool = False,
) -> np.ndarray:
    """A heatmap laid over its picture.

    Args:
        rgb: (H, W, 3) uint8.
        heatmap: (H, W) in [0, 1], of the same size; in [-1, 1] where ``signed``.
        geometry: says which part the model saw; the rest of the picture is left as it is.
        alpha: opacity where the map is hottest; cooler places show more of the picture, see ``opacities``. 0 shows
            only the picture, 1 only the heatmap.
        colormap: one of ``COLORMAPS``; for signed maps there is one, blue for negative and orange for positive values.
        hide_below: leave the picture as it is where the heatmap (its magnitude) is below this value, 0-1.
        frame: outline what the model saw, where that is not all.
        signed: the values have signs.

    Returns:
        (H, W, 3) uint8 RGB.

    Raises:
        UsageError: sizes that differ, an alpha or threshold outside 0-1, an unknown colour map.
    """
    if rgb.shape[:2] != heatmap.shape:
        raise UsageError(f"A heatmap of {_size(heatmap)} does not lie on a picture of {_size(rgb)}.")
    checked_paint(alpha, colormap, hide_below)
    rows, columns = geometry.seen_pixels if geometry else (slice(None), slice(None))
    painted = np.array(rgb)
    part = heatmap[rows, columns]
    if signed:
        _mix(painted[rows, columns], (part + 1) / 2, alpha, DIVERGING, np.abs(part) < hide_below)
    else:
        _mix(painted[rows, columns], part, alpha, colormap, part < hide_below)
    if frame and geometry and not geometry.sees_all:
        _dashed_frame(painted, rows, columns)
    return painted


def _mix(painted: np.ndarray, heat: np.ndarray, alpha: float, colormap: str, hidden: np.ndarray) -> None:
    """Lay the colours over ``painted`` in place, band by band: the indices of 50 megapixels at once take gigabytes."""
    tables = _mixtures(colormap, alpha)
    rows = max(1, BAND_PIXELS // max(1, heat.shape[1]))
    for top in range(0, len(heat), rows):
        band, away = painted[top : top + rows], hidden[top : top + rows]
        level = levels_of(heat[top : top + rows]).astype(np.intp) << 8
        for channel, table in enumerate(tables):
            band[..., channel] = np.where(away, band[..., channel], table.take(level | band[..., channel]))


@lru_cache(maxsize=8)
def _mixtures(colormap: str, alpha: float) -> np.ndarray:
    """What becomes of each value of a channel under each level of heat: (3, 65536) uint8, at ``level * 256 + value``.

    Looked up, a picture takes a fifth of the time that it takes computed, and comes out the same.
    """
    signed = colormap == DIVERGING
    colors = (diverging_colors() if signed else colors_of(colormap)).astype(np.float64)
    weights = opacities(alpha, signed=signed)[:, None]
    values = np.arange(256.0)[:, None]
    mixed = np.rint(values * (1 - weights)[:, None] + (colors * weights)[:, None])  # (level, value, channel)
    return np.ascontiguousarray(np.moveaxis(mixed.astype(np.uint8), -1, 0).reshape(3, -1))


def stamp(rgb: np.ndarray, text: str) -> np.ndarray:
    """The picture with ``text`` across its top in white on red, for results that must not be taken for real ones."""
    stamped = np.array(rgb)
    height, width = rgb.shape[:2]
    scale = max(0.3, min(width / 420, height / 120, 3.0))
    thickness = max(1, round(scale * 1.5))
    (text_width, text_height), base = cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, scale, thickness)
    pad = max(2, round(5 * scale))
    cv2.rectangle(stamped, (0, 0), (min(width, text_width + 2 * pad), text_height + base + 2 * pad), (190, 20, 30), -1)
    cv2.putText(
        stamped,
        text,
        (pad, pad + text_height),
        cv2.FONT_HERSHEY_SIMPLEX,
        scale,
        (255, 255, 255),
        thickness,
        cv2.LINE_AA,
    )
    return stamped


def heatmap_16bit(heatmap: np.ndarray) -> np.ndarray:
    """A heatmap in [0, 1] as (H, W) uint16, 1 being 65535."""
    return (np.clip(heatmap, 0, 1).astype(np.float64) * 65535 + 0.5).astype(np.uint16)


def _dashed_frame(rgb: np.ndarray, rows: slice, columns: slice) -> None:
    """A frame of white and black dashes, which shows on any ground; drawn just inside the seen part."""
    height, width = rgb.shape[:2]
    line = max(1, round(min(height, width) / 250))
    dash = 6 * line
    inside = np.zeros((height, width), bool)
    inside[rows, columns] = True
    inside[rows.start + line : rows.stop - line, columns.start + line : columns.stop - line] = False
    y, x = np.nonzero(inside)
    white = ((x + y) // dash) % 2 == 0
    rgb[y[white], x[white]] = 255
    rgb[y[~white], x[~white]] = 0


def _size(pixels: np.ndarray) -> str:
    return f"{pixels.shape[1]}x{pixels.shape[0]}"
