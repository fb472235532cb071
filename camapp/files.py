"""Names and writes of files: safe names, no two alike, and each file whole or not there."""

from __future__ import annotations

import re
from pathlib import Path
from uuid import uuid4

# File systems take 255 bytes a name; the rest is left for what is appended.
LONGEST_STEM_BYTES = 120


def safe_stem(name: str) -> str:
    """``name`` without folder and extension, safe and short enough for any file system; letters of any script stay."""
    return safe_name(Path(name.replace("\\", "/")).stem) or "picture"


def safe_name(text: str) -> str:
    """``text`` as part of a file name: signs but letters, digits and ``. ( ) + -`` become ``_``; may be empty."""
    name = re.sub(r"[^\w.()+-]+", "_", text).strip("._")
    return name.encode()[:LONGEST_STEM_BYTES].decode(errors="ignore")


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
    part = path.with_name(f".{path.name[:80]}.{uuid4().hex[:12]}.part")
    try:
        part.write_bytes(content)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
