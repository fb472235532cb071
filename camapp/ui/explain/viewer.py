"""The heatmap viewer: picture and heatmap go to the browser once, and are blended there as the user turns the knobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np

from camapp.contrast import Contrast
from camapp.explanation import Explanation
from camapp.images.render import COLORMAPS, VEIL, levels_of
from camapp.images.words import describe_difference, describe_map, peak_of
from camapp.ui.frame.component import view
from camapp.ui.frame.look import encoded_colormaps
from camapp.ui.frame.pictures import png_url, shown

LONGEST_SIDE = 1280

_HERE = Path(__file__).parent


def viewer(**options: Any) -> gr.HTML:
    """The component; its value is made by ``view_of``, or ``{"error": message}``, or None for the invitation."""
    return view(_HERE, "viewer", veil=VEIL, choices=list(COLORMAPS), colormaps=encoded_colormaps(), **options)


def view_of(explanation: Explanation, token: str) -> dict[str, Any]:
    """What the viewer shows: the first explained class; of two, both and their difference.

    Args:
        explanation: the result.
        token: under which its files are kept for download.

    Returns:
        The picture and its 8-bit heatmaps as data URLs, of at most ``LONGEST_SIDE`` pixels; where the model looked in
        them; the text alternatives; and what the downloads need.
    """
    picture, geometry = shown(explanation.picture, explanation.geometry, LONGEST_SIDE)
    maps = [
        _map_of(geometry.to_original(explanation.model_maps[k]), explained.label, explanation.reasons[k])
        for k, explained in enumerate(explanation.classes[:2])
    ]
    if len(maps) == 2:
        contrast = Contrast(explanation)
        maps.append(_signed_map_of(geometry.to_original(contrast.model_map), contrast))
    return {**picture, "maps": maps, "token": token}


def _map_of(heatmap: np.ndarray, label: str, blank: str | None) -> dict[str, Any]:
    return {
        "levels": png_url(levels_of(heatmap)),
        "peak": list(peak_of(heatmap)),
        "label": label,
        "alternative": describe_map(heatmap, blank),
        "blank": blank,
    }


def _signed_map_of(heatmap: np.ndarray, contrast: Contrast) -> dict[str, Any]:
    a, b = (contrast.explanation.classes[k].label for k in (contrast.a, contrast.b))
    return {
        "levels": png_url(levels_of((heatmap + 1) / 2)),
        "peak": list(peak_of(np.abs(heatmap))),
        "label": contrast.label,
        "alternative": describe_difference(heatmap, a, b, contrast.reason),
        "blank": contrast.reason,
        "signed": True,
    }
