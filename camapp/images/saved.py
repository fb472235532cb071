"""A map as three files: painted on its picture, as 16-bit levels, and as numbers."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from camapp.errors import UsageError
from camapp.files import write_atomically
from camapp.images.render import heatmap_16bit, png_bytes


@dataclass(frozen=True)
class SavedFiles:
    """The files of one map."""

    overlay: Path
    heatmap: Path
    values: Path


def save_map(folder: Path, base: str, painted: Image.Image, values: np.ndarray, levels: np.ndarray) -> SavedFiles:
    """Write ``BASE.overlay.png``, ``BASE.heatmap.png`` and ``BASE.npy``, each whole or not at all.

    Args:
        folder: there already.
        base: how the names begin.
        painted: the picture with the map on it.
        values: (H, W) float32.
        levels: (H, W) the same in [0, 1], for the 16 bits.
    """
    files = SavedFiles(folder / f"{base}.overlay.png", folder / f"{base}.heatmap.png", folder / f"{base}.npy")
    write_atomically(files.overlay, png_bytes(np.asarray(painted)))
    write_atomically(files.heatmap, png_bytes(heatmap_16bit(levels)))
    write_atomically(files.values, npy_bytes(values))
    return files


def npy_bytes(values: np.ndarray) -> bytes:
    """What ``numpy.save`` writes."""
    buffer = io.BytesIO()
    np.save(buffer, values)
    return buffer.getvalue()


def checked_stem(stem: str) -> str:
    """The beginning of files' names.

    Raises:
        UsageError: it has a folder in it.
    """
    if Path(stem).name != stem:
        raise UsageError(f'stem="{stem}" is not a file name; give one without folders.')
    return stem
