"""The files of an explanation, made when they are downloaded, as the viewer shows them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np

from camapp.contrast import Contrast
from camapp.errors import UsageError
from camapp.explanation import Explanation
from camapp.files import safe_name, safe_stem, write_atomically
from camapp.images.render import ALPHA, heatmap_16bit, png_bytes
from camapp.images.saved import npy_bytes
from camapp.ui.frame.results import Results

Query = Mapping[str, str]

# Which map a download is of: of the first class or the second, or their difference.
MAPS = ("a", "b", "difference")


def keep_explanation(results: Results, explanation: Explanation, owner: str = "") -> str:
    """Keep the files of an explanation of a visitor's for download; the token."""
    makers = {"overlay.png": _overlay, "heatmap.png": _heatmap, "npy": _values, "json": _summary}
    files = {name: partial(make, explanation) for name, make in makers.items()}
    rgb = explanation.picture.rgb
    size = rgb.nbytes + rgb.size // 3 * 4  # the picture, and the one map of its size that an explanation keeps
    return results.keep_files(files, _label(explanation), size=size, owner=owner)


def write_maps(explanation: Explanation, folder: Path) -> tuple[Path, Path, Path]:
    """Write overlay, heatmap and values of the first class, or of what sets two classes apart, into a folder."""
    which = {"map": "difference" if len(explanation) > 1 else "a"}
    stem = _label(explanation)
    made = {"overlay.png": _overlay, "heatmap.png": _heatmap, "npy": _values}
    paths = []
    for name, make in made.items():
        paths.append(folder / f"{stem}.{name}")
        write_atomically(paths[-1], make(explanation, which))
    return paths[0], paths[1], paths[2]


def _label(explanation: Explanation) -> str:
    return f"{safe_stem(explanation.picture.name)}-{safe_name(explanation.classes[0].label)[:40]}"


def _overlay(explanation: Explanation, query: Query) -> bytes:
    which, alpha = _which(explanation, query), float(query.get("opacity", ALPHA))
    hide_below = float(query.get("threshold", 0.0))
    if which == "difference":
        painted = Contrast(explanation).overlay(alpha=alpha, hide_below=hide_below)
    else:
        colormap = query.get("colors", "viridis")
        painted = explanation.overlay(MAPS.index(which), alpha=alpha, colormap=colormap, hide_below=hide_below)
    return png_bytes(np.asarray(painted))


def _heatmap(explanation: Explanation, query: Query) -> bytes:
    values = _map_of(explanation, query)
    return png_bytes(heatmap_16bit((values + 1) / 2 if _which(explanation, query) == "difference" else values))


def _values(explanation: Explanation, query: Query) -> bytes:
    return npy_bytes(_map_of(explanation, query))


def _summary(explanation: Explanation, query: Query) -> bytes:
    return json.dumps(explanation.to_dict(), indent=2, ensure_ascii=False).encode()


def _map_of(explanation: Explanation, query: Query) -> np.ndarray:
    which = _which(explanation, query)
    return Contrast(explanation).heatmap() if which == "difference" else explanation.heatmap(MAPS.index(which))


def _which(explanation: Explanation, query: Query) -> str:
    which = query.get("map", "a")
    if which not in MAPS or (which != "a" and len(explanation) < 2):
        raise UsageError(f'There is no map "{which[:20]}" of this result.')
    return which
