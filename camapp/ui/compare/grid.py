"""The comparison as small multiples: picture and maps go to the browser once, one crosshair moves over all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np

from camapp.cam.methods import METHODS
from camapp.comparison import Cell, Comparison
from camapp.images.geometry import Geometry
from camapp.images.render import COLORMAPS, VEIL, levels_of
from camapp.images.words import describe_map, peak_of
from camapp.ui.frame.component import view
from camapp.ui.frame.look import encoded_colormaps
from camapp.ui.frame.pictures import png_url, shown
from camapp.ui.frame.words import percent

# Six maps beside each other are small.
LONGEST_SIDE, QUALITY = 480, 90

_HERE = Path(__file__).parent


def grid_view(**options: Any) -> gr.HTML:
    """The component; its value is made by ``grid_of``. It triggers ``wanted``, and ``choose`` with method and layer."""
    return view(_HERE, "grid", veil=VEIL, choices=list(COLORMAPS), colormaps=encoded_colormaps(), **options)


def grid_of(
    comparison: Comparison,
    columns: Sequence[tuple[str, str]],
    token: str,
    files: dict[str, str],
    recipes: dict[str, Any],
) -> dict[str, Any]:
    """What the view shows.

    Args:
        comparison: the result.
        columns: name and shape of each of its layers, in their order.
        token: under which its files are kept for download.
        files: their names, as "zip", "sheet" and "json".
        recipes: the same comparison as "python", as "command" and as "address".
    """
    picture, geometry = shown(comparison.picture, comparison.geometry, LONGEST_SIDE, QUALITY)
    letters = _letters(comparison)
    named = dict(zip(comparison.layers, (name for name, _ in columns), strict=True))
    return {
        "token": token,
        "files": files,
        **recipes,
        **picture,
        "label": comparison.target.label,
        "facts": _facts(comparison),
        "rows": [_row(method) for method in comparison.methods],
        "columns": [{"name": name, "detail": detail} for name, detail in columns],
        "cells": [
            _cell(cell, geometry, letter, named.get(cell.layer, ""))
            for cell, letter in zip(comparison.cells, letters, strict=True)
        ],
        "tables": _tables(comparison, letters),
        "words": agreement(comparison, letters),
        "notes": [*comparison.notes, *_cautions(comparison)],
    }


def agreement(comparison: Comparison, letters: Sequence[str]) -> str:
    """Which two maps are most alike and which least, in a sentence; "" where there are no two."""
    values = comparison.correlation
    upper = [
        (float(values[i, j]), letters[i], letters[j])
        for i in range(len(values))
        for j in range(i + 1, len(values))
        if np.isfinite(values[i, j])
    ]
    if not upper:
        return ""
    most, least = max(upper), min(upper)
    if len(upper) == 1:
        return f"{most[1]} and {most[2]} correlate by {signed(most[0])}."
    return (
        f"Most alike: {most[1]} and {most[2]} ({signed(most[0])}). "
        f"Least alike: {least[1]} and {least[2]} ({signed(least[0])})."
    )


def signed(value: float) -> str:
    """A number to two places, with a minus sign and no negative zero."""
    return f"{value:.2f}".replace("-0.00", "0.00").replace("-", "−")


def _cautions(comparison: Comparison) -> list[str]:
    """What to keep in mind about all of the maps."""
    told = [cell.explanation.cautions for cell in comparison.cells if cell.explanation]
    return [one for one in (told[0] if told else ()) if all(one in others for others in told)]


def _letters(comparison: Comparison) -> list[str]:
    """A letter for each cell that has a map, "" for the others."""
    numbers = iter("ABCDEFGHIJKLMNOPQR")
    return [next(numbers) if cell.explanation else "" for cell in comparison.cells]


def _row(method: str) -> dict[str, str]:
    kind = METHODS[method]
    return {"name": method, "title": kind.title, "detail": "" if kind.takes_layer else "the whole network"}


def _facts(comparison: Comparison) -> str:
    target = comparison.target
    likely = "" if np.isnan(target.probability) else f"{percent(target.probability)} · "
    return f"{likely}{comparison.model}"


def _cell(cell: Cell, geometry: Geometry, letter: str, column: str) -> dict[str, Any]:
    kind = METHODS[cell.method]
    facts: dict[str, Any] = {
        "method": cell.method,
        "method_title": kind.title,
        "layer": column if kind.takes_layer else "",
        "column": column if kind.takes_layer else "whole network",
        "letter": letter,
        "title": f"{kind.title} · {column if kind.takes_layer else 'whole network'}",
        "reason": cell.reason or "",
    }
    if cell.explanation is None:
        return facts
    heatmap = geometry.to_original(cell.explanation.model_maps[0])
    blank = cell.explanation.reasons[0]
    looked_at = cell.explanation.layer
    return {
        **facts,
        "levels": png_url(levels_of(heatmap)),
        "peak": None if blank else peak_of(heatmap),
        "blank": blank or "",
        "at": looked_at if looked_at not in ("", column) else "",
        "alternative": f"{letter}: {facts['title']}. {describe_map(heatmap, blank)}",
    }


def _tables(comparison: Comparison, letters: Sequence[str]) -> list[dict[str, Any]]:
    """Correlation and overlap of the cells that have a map; none where there is only one."""
    lettered = [number for number, letter in enumerate(letters) if letter]
    if len(lettered) < 2:
        return []
    names = [_short(comparison.cells[number]) for number in lettered]
    told = [
        ("Correlation", "Spearman’s rank correlation of each two maps; 1 is the same order of places.", "correlation"),
        ("Overlap of the hottest 20%", "Intersection over union of the hottest fifth of the pixels.", "overlap"),
    ]
    return [
        {
            "title": title,
            "about": about,
            "letters": [letters[number] for number in lettered],
            "names": names,
            "values": _finite(getattr(comparison, measure)[np.ix_(lettered, lettered)]),
        }
        for title, about, measure in told
    ]


def _short(cell: Cell) -> str:
    """Method and layer, of a long layer its end: that sets it apart from its neighbours."""
    layer = cell.layer or cell.where.partition(" + ")[0]
    more = "…" if cell.layer is None and " + " in cell.where else ""
    return f"{METHODS[cell.method].title} · {layer if len(layer) <= 15 else f'…{layer[-13:]}'}{more}"


def _finite(matrix: np.ndarray) -> list[list[float | None]]:
    return [[round(float(value), 4) if np.isfinite(value) else None for value in row] for row in matrix]
