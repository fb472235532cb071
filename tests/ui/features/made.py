"""Tiny labelled pictures, made on the spot: noisy squares of three colours."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

COLOURS = {"red": (220, 40, 30), "green": (30, 200, 60), "blue": (40, 60, 220)}


def noisy(colour: tuple[int, int, int], seed: int) -> bytes:
    """A PNG of noise around a colour."""
    noise = np.random.default_rng(seed).normal(0, 25, (40, 52, 3))
    buffer = io.BytesIO()
    Image.fromarray(np.clip(np.array(colour) + noise, 0, 255).astype(np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def coloured_zip(path: Path, each: int = 6, **more: bytes) -> Path:
    """An archive of one folder a colour within a folder, and further members by name."""
    with zipfile.ZipFile(path, "w") as archive:
        for place, (name, colour) in enumerate(COLOURS.items()):
            for number in range(each):
                archive.writestr(f"set/{name}/{number}.png", noisy(colour, 100 * place + number))
        for name, content in more.items():
            archive.writestr(name, content)
    return path
