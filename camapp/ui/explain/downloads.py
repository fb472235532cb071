"""The files of an explanation, made when they are downloaded, as the viewer shows them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from camapp.contrast import Contrast
from camapp.errors import UsageError
from camapp.explanation import Explanation
from camapp.files import safe_name, safe_stem
from camapp.images.render import ALPHA, heatmap_16bit, png_bytes
from camapp.images.saved import SavedFiles, npy_bytes, save_map
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


def write_maps(explanation: Explanation, folder: Path) -> SavedFiles:
    """Write overlay, heatmap and values of the first class, or of what sets two classes apart, into a folder."""
    which = {"map": "difference" if len(explanation) > 1 else "a"}
    painted, values = _painted(explanation, which), _map_of(explanation, which)
    return save_map(folder, _label(explanation), painted, values, _levels(explanation, which))


def _label(explanation: Explanation) -> str:
    return f"{safe_stem(explanation.picture.name)}-{safe_name(explanation.classes[0].label)[:40]}"


def _overlay(explanation: Explanation, query: Query) -> bytes:
    return png_bytes(np.asarray(_painted(explanation, query)))


def _painted(explanation: Explanation, query: Query) -> Image.Image:
    which, alpha = _which(explanation, query), float(query.get("opacity", ALPHA))
    hide_below = float(query.get("threshold", 0.0))
    if which == "difference":
        return Contrast(explanation).overlay(alpha=alpha, hide_below=hide_below)
    colormap = query.get("colors", "viridis")
    return explanation.overlay(MAPS.index(which), alpha=alpha, colormap=colormap, hide_below=hide_below)


def _heatmap(explanation: Explanation, query: Query) -> bytes:
    return png_bytes(heatmap_16bit(_levels(explanation, query)))


def _levels(explanation: Explanation, query: Query) -> np.ndarray:
    """The map in [0, 1]."""
    values = _map_of(explanation, query)
    return (values + 1) / 2 if _which(explanation, query) == "difference" else values


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
