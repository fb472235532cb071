"""The version, in a room of its own so that no floor has to import the whole package for it; and those it stands on."""

from __future__ import annotations

import platform
from functools import lru_cache
from importlib.metadata import version

VERSION = "0.1.0"


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """The versions a result depends on."""
    import cv2

    names = ("torch", "torchvision", "timm", "pillow", "numpy", "pyarrow")
    found = {"camapp": VERSION, "python": platform.python_version(), **{name: version(name) for name in names}}
    return {**found, "opencv": cv2.__version__}
