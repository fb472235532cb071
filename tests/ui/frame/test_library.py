"""What the scripts of the views share is written once, in library.js."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import camapp.ui

UI = Path(camapp.ui.__file__).parent

# What each shared function is made of, and what uses it instead of its own.
SHARED = {
    "createElementNS": "svg",
    "atob(": "bytesOf",
    "requestAnimationFrame": "onceAFrame",
    "createImageData(256": "drawRamp",
    "ArrowLeft: [": "arrowStep",
    "** (1 +": "opacities",
    "background-position": "face",
    "createObjectURL": "sheetOf",
}


LIBRARY = UI / "frame" / "library.js"
OTHERS = sorted(script for script in UI.rglob("*.js") if script != LIBRARY)


@pytest.mark.parametrize("script", OTHERS, ids=lambda one: f"{one.parent.name}-{one.stem}")
def test_no_view_has_its_own_copy_of_what_all_share(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    assert {name for own, name in SHARED.items() if own in text} == set()


def test_the_library_has_one_of_each_and_hands_it_out() -> None:
    text = LIBRARY.read_text(encoding="utf-8")
    for own, name in SHARED.items():
        assert text.count(own) == 1, own
        assert name in handed_out()


def test_what_the_library_hands_out_is_used() -> None:
    scripts = "".join(script.read_text(encoding="utf-8") for script in OTHERS)
    assert {name for name in handed_out() if not re.search(rf"\b{name}\b", scripts)} == set()


def handed_out() -> set[str]:
    """The names at the library's end."""
    return set(re.findall(r"\w+", LIBRARY.read_text(encoding="utf-8").rpartition("return {")[2]))
