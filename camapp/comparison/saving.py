"""A comparison as files: overlays, contact sheet, JSON and tables."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from camapp.errors import UsageError
from camapp.files import safe_name, unused_stem, write_atomically
from camapp.images.render import checked_paint, png_bytes
from camapp.version import versions

if TYPE_CHECKING:
    from camapp.comparison.comparison import Comparison

# What a spreadsheet takes for a formula at the beginning of a cell.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class SavedComparison:
    """The files of a comparison.

    Args:
        overlays: one a cell, None where it has no map.
        sheet: the contact sheet.
        summary: the JSON.
        correlation: the table of rank correlations.
        overlap: the table of overlaps.
    """

    overlays: tuple[Path | None, ...]
    sheet: Path
    summary: Path
    correlation: Path
    overlap: Path

    @property
    def files(self) -> list[Path]:
        """All of them."""
        return [*(path for path in self.overlays if path), self.sheet, self.summary, self.correlation, self.overlap]


def save_comparison(comparison: Comparison, folder: Path, stem: str, *, alpha: float, colormap: str) -> SavedComparison:
    """``Comparison.save``, of a folder and a stem that are settled."""
    if not stem or Path(stem).name != stem:
        raise UsageError(f'stem="{stem}" is not a file name; give one without folders.')
    checked_paint(alpha, colormap)
    folder.mkdir(parents=True, exist_ok=True)
    used: set[str] = set()
    overlays: list[Path | None] = []
    for cell in comparison.cells:
        if cell.explanation is None:
            overlays.append(None)
            continue
        layer = safe_name(cell.layer or cell.explanation.layer.partition(" ")[0] or "network")[:60]
        name = unused_stem(f"{stem}-{safe_name(cell.method)}-{layer}", used)
        overlays.append(folder / f"{name}.overlay.png")
        painted = cell.explanation.overlay(alpha=alpha, colormap=colormap)
        write_atomically(folder / f"{name}.overlay.png", png_bytes(np.asarray(painted)))
    sheet = folder / f"{stem}-contact-sheet.png"
    write_atomically(sheet, png_bytes(np.asarray(comparison.sheet(alpha=alpha, colormap=colormap))))
    titles = [cell.title for cell in comparison.cells]
    for name, matrix in (("correlation", comparison.correlation), ("overlap", comparison.overlap)):
        write_atomically(folder / f"{name}.csv", table_csv(titles, matrix))
    facts = comparison.to_dict()
    for told, path in zip(facts["cells"], overlays, strict=True):
        told["overlay"] = path.name if path else None
    text = json.dumps({**facts, "versions": versions()}, indent=2, ensure_ascii=False)
    write_atomically(folder / "comparison.json", text.encode())
    return SavedComparison(
        tuple(overlays), sheet, folder / "comparison.json", folder / "correlation.csv", folder / "overlap.csv"
    )


def table_csv(titles: Sequence[str], matrix: np.ndarray) -> bytes:
    """A square matrix with the titles of its rows and columns, UTF-8; empty where there is no number."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    named = [_no_formula(title) for title in titles]
    writer.writerow(["", *named])
    for title, row in zip(named, matrix, strict=True):
        writer.writerow([title, *("" if np.isnan(one) else f"{one:.6f}" for one in row)])
    return text.getvalue().encode()


def _no_formula(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text
