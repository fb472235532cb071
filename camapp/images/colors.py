"""Values as colours: colour maps, levels, and PNG files of what they paint. NumPy and OpenCV; no tensors."""

from __future__ import annotations

import cv2
import numpy as np

from camapp.errors import UsageError, did_you_mean

# The first ones are readable for colour-blind eyes and rise evenly in lightness; turbo and jet are for habit.
COLORMAPS = {
    "viridis": cv2.COLORMAP_VIRIDIS,
    "magma": cv2.COLORMAP_MAGMA,
    "inferno": cv2.COLORMAP_INFERNO,
    "cividis": cv2.COLORMAP_CIVIDIS,
    "gray": None,
    "turbo": cv2.COLORMAP_TURBO,
    "jet": cv2.COLORMAP_JET,
}

# Of signed values: blue below zero, orange above, as colour-blind eyes tell them apart, and near white at zero.
DIVERGING = "difference"
_DIVERGING_STOPS = ((0, 66, 157), (93, 150, 214), (244, 244, 244), (236, 142, 60), (158, 60, 0))


def diverging_colors() -> np.ndarray:
    """The 256 colours of values from -1 to 1: (256, 3) uint8 RGB; no one sign is lighter than the other."""
    stops = np.array(_DIVERGING_STOPS, float)
    at = np.linspace(0, len(stops) - 1, 256)
    channels = [np.interp(at, range(len(stops)), stops[:, channel]) for channel in range(3)]
    return np.stack(channels, 1).round().astype(np.uint8)


def colors_of(colormap: str) -> np.ndarray:
    """The 256 colours of a colour map, from 0 to 1: (256, 3) uint8 RGB.

    Raises:
        UsageError: no such colour map.
    """
    if colormap not in COLORMAPS:
        raise UsageError(
            f'No colour map "{colormap}".{did_you_mean(colormap, COLORMAPS)} Colour maps: {", ".join(COLORMAPS)}.'
        )
    ramp = np.arange(256, dtype=np.uint8)
    code = COLORMAPS[colormap]
    if code is None:
        return np.repeat(ramp[:, None], 3, axis=1)
    column = ramp[:, None]  # OpenCV 5 reads a 1-D array as one row, OpenCV 4 as one column
    return np.ascontiguousarray(cv2.applyColorMap(column, code)[:, 0, ::-1])


def colorize(heatmap: np.ndarray, colormap: str = "viridis") -> np.ndarray:
    """A heatmap (H, W) in [0, 1] as colours (H, W, 3) uint8 RGB."""
    return colors_of(colormap)[levels_of(heatmap)]


def levels_of(heatmap: np.ndarray) -> np.ndarray:
    """A heatmap in [0, 1] as the nearest of 256 levels, (H, W) uint8."""
    return (np.clip(heatmap, 0, 1) * 255 + 0.5).astype(np.uint8)


def png_bytes(pixels: np.ndarray) -> bytes:
    """A PNG of (H, W, 3) uint8 RGB, or of (H, W) uint8 or uint16; no metadata."""
    ordered = pixels[..., ::-1] if pixels.ndim == 3 else pixels
    done, encoded = cv2.imencode(".png", np.ascontiguousarray(ordered))
    if not done:
        raise UsageError(f"A picture of {pixels.shape} {pixels.dtype} cannot be written as PNG.")
    return encoded.tobytes()
