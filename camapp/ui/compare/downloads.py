"""The files of a comparison, made when they are downloaded."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from camapp.comparison import Comparison
from camapp.files import safe_name, safe_stem, zipped
from camapp.images.render import ALPHA, png_bytes
from camapp.ui.environment import private_folder
from camapp.ui.frame.results import Content, Results
from camapp.version import versions

# The names that the page links to.
FILES = {"zip": "comparison.zip", "sheet": "contact-sheet.png", "json": "comparison.json"}


def keep_comparison(results: Results, comparison: Comparison, owner: str = "") -> str:
    """Keep the files of a comparison of a visitor's for download; the token."""
    makers: dict[str, Content] = {
        FILES["zip"]: lambda query: zip_of(_lent(comparison), *_look(query)),
        FILES["sheet"]: lambda query: sheet_of(_lent(comparison), *_look(query)),
        FILES["json"]: lambda query: json_of(_lent(comparison)),
    }
    label = f"{safe_stem(comparison.picture.name)}-{safe_name(comparison.target.label)[:40]}"
    return results.keep_files(makers, label, size=comparison.picture.rgb.nbytes, owner=owner)


def zip_of(comparison: Comparison, alpha: float = ALPHA, colormap: str = "viridis") -> bytes:
    """All files of ``Comparison.save`` as a zip."""
    with tempfile.TemporaryDirectory(dir=private_folder()) as folder:
        saved = comparison.save(folder, alpha=alpha, colormap=colormap)
        return zipped({path.name: path.read_bytes() for path in saved.files})


def sheet_of(comparison: Comparison, alpha: float = ALPHA, colormap: str = "viridis") -> bytes:
    """The contact sheet as a PNG."""
    return png_bytes(np.asarray(comparison.sheet(alpha=alpha, colormap=colormap)))


def json_of(comparison: Comparison) -> bytes:
    """Everything but the pixels."""
    return json.dumps({**comparison.to_dict(), "versions": versions()}, indent=2, ensure_ascii=False).encode()


def _lent(comparison: Comparison) -> Comparison:
    """The same, for one use: each explanation keeps its last map at the picture's own size, megabytes of a photo."""
    cells = (
        cell if cell.explanation is None else replace(cell, explanation=replace(cell.explanation))
        for cell in comparison.cells
    )
    return replace(comparison, cells=tuple(cells))


def _look(query: Mapping[str, str]) -> tuple[float, str]:
    return float(query.get("opacity", ALPHA)), query.get("colors", "viridis")
