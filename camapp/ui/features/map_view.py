"""How the pictures lie in a layer's features: a plane of two principal components, neighbours and near-duplicates."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np

from camapp.features.analysis.duplicates import NearDuplicates
from camapp.features.analysis.overview import Overview
from camapp.features.table import FeatureTable
from camapp.images.sprite import SIDE, sprite
from camapp.ui.features.extracting import Extraction
from camapp.ui.frame.component import view

# Further groups of near-duplicates are counted, not shown.
MOST_GROUPS = 30

_HERE = Path(__file__).parent


def map_view(**options: Any) -> gr.HTML:
    """The component; its value is made by ``map_of``, or None for nothing."""
    return view(_HERE, "map_view", **options)


def map_of(extraction: Extraction, token: str, labelled: FeatureTable | None = None) -> dict[str, Any]:
    """What the view shows: plain data, which the page writes as text and never as HTML.

    Args:
        extraction: the result.
        token: of the result.
        labelled: some of its pictures, with other labels than those of the folders.
    """
    table, source = extraction.table, labelled or extraction.table
    label_of = dict(zip(source.names, source.labels or (), strict=False))
    return {
        "pictures": list(table.names),
        "labels": [label_of.get(name, "") for name in table.names] if label_of else None,
        "classes": list(source.classes),
        "sprite": sprite_of(extraction.thumbnails),
        "layers": [_layer(name, extraction.overviews[name]) for name in table.layers],
        "token": token,
    }


def sprite_of(thumbnails: list[np.ndarray | None]) -> dict[str, Any] | None:
    """Thumbnails as a picture that the page takes apart; a grey square for each that is missing.

    Args:
        thumbnails: (side, side, 3) uint8 each, or None.
    """
    if not thumbnails:
        return None
    side = next((one.shape[0] for one in thumbnails if one is not None), SIDE)
    grey = np.full((side, side, 3), 160, np.uint8)
    made = sprite([grey if one is None else one for one in thumbnails])
    return {
        "jpeg": base64.b64encode(made.jpeg).decode(),
        "columns": made.columns,
        "rows": made.rows,
        "side": made.side,
    }


def _layer(name: str, seen: Overview) -> dict[str, Any]:
    reasons = seen.reasons
    plane, near, same = seen.projection, seen.neighbours, seen.duplicates
    return {
        "name": name,
        "plane": {"reason": reasons["projection"]}
        if plane is None
        else {
            "points": [[_short(value) for value in point] for point in plane.coordinates.tolist()],
            "explained": [f"{share:.1%}" for share in plane.explained_variance_ratio.tolist()],
        },
        "neighbours": {"reason": reasons["neighbours"]}
        if near is None
        else {
            "rows": near.indices.tolist(),
            "cosines": [[f"{value:.3f}" for value in row] for row in near.similarities.tolist()],
        },
        "duplicates": {"reason": reasons["duplicates"]} if same is None else _groups(same),
    }


def _groups(same: NearDuplicates) -> dict[str, Any]:
    cosines: dict[int, list[float]] = {}
    group_of = {row: place for place, group in enumerate(same.groups) for row in group}
    for (first, _), cosine in zip(same.pairs.tolist(), same.similarities.tolist(), strict=True):
        cosines.setdefault(group_of[first], []).append(cosine)
    return {
        "threshold": f"{same.threshold:g}",
        "groups": [
            {"rows": list(group), "cosine": _range(cosines[place])}
            for place, group in enumerate(same.groups[:MOST_GROUPS])
        ],
        "more": max(0, len(same.groups) - MOST_GROUPS),
    }


def _range(cosines: list[float]) -> str:
    lowest, highest = f"{min(cosines):.3f}", f"{max(cosines):.3f}"
    return lowest if lowest == highest else f"{lowest} to {highest}"


def _short(value: float) -> float:
    return float(f"{value:.5g}")
