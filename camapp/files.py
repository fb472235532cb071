"""Names and writes of files: safe names, no two alike, and each file whole or not there."""

from __future__ import annotations

import os
import re
from pathlib import Path

# File systems take 255 bytes a name; the rest is left for what is appended.
LONGEST_STEM_BYTES = 120


def safe_stem(name: str) -> str:
    """``name`` without folder and extension, safe and short enough for any file system; letters of any script stay."""
    stem = Path(name.replace("\\", "/")).stem
    stem = re.sub(r"[^\w.()+-]+", "_", stem).strip("._")
    cut = stem.encode()[:LONGEST_STEM_BYTES].decode(errors="ignore")
    return cut or "picture"


def unused_stem(stem: str, used: set[str]) -> str:
    """``stem``, or ``stem_2``, ``stem_3`` ... where it is taken, ignoring case; the answer is added to ``used``."""
    number, free = 1, stem
    while free.casefold() in used:
        number += 1
        free = f"{stem}_{number}"
    used.add(free.casefold())
    return free


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file that is there whole or not at all: under a temporary name first, then renamed."""
    part = path.with_name(f".{path.name[:80]}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
