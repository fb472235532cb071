"""The heatmap viewer: picture and heatmap go to the browser once, and are blended there as the user turns the knobs."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np
from PIL import Image

from camapp.contrast import Contrast
from camapp.explanation import Explanation
from camapp.images.render import COLORMAPS, VEIL, png_bytes
from camapp.ui.frame.look import encoded_colormaps

LONGEST_SIDE = 1280

# The part of the heatmap that counts as hot in the text alternative: the upper tenth of its range.
HOT = 0.9

_HERE = Path(__file__).parent


def viewer(**options: Any) -> gr.HTML:
    """The component; its value is made by ``view_of``, or ``{"error": message}``, or None for the invitation."""
    return gr.HTML(
        value=None,
        html_template=(_HERE / "viewer.html").read_text(encoding="utf-8"),
        css_template=(_HERE / "viewer.css").read_text(encoding="utf-8"),
        js_on_load=(_HERE / "viewer.js").read_text(encoding="utf-8"),
        apply_default_css=False,
        veil=VEIL,
        choices=list(COLORMAPS),
        colormaps=encoded_colormaps(),
        **options,
    )


def view_of(explanation: Explanation, token: str) -> dict[str, Any]:
    """What the viewer shows: the first explained class; of two, both and their difference.

    Args:
        explanation: the result.
        token: under which its files are kept for download.

    Returns:
        The picture and its 8-bit heatmaps as data URLs, of at most ``LONGEST_SIDE`` pixels; where the model looked in
        them; the text alternatives; and what the downloads need.
    """
    picture = explanation.picture.no_larger_than(LONGEST_SIDE).to_pil()
    geometry = explanation.geometry.scaled_to(picture.size)
    rows, columns = geometry.seen_pixels
    maps = [
        _map_of(geometry.to_original(explanation.model_maps[k]), explained.label, explanation.reasons[k])
        for k, explained in enumerate(explanation.classes[:2])
    ]
    if len(maps) == 2:
        contrast = Contrast(explanation)
        maps.append(_signed_map_of(geometry.to_original(contrast.model_map), contrast))
    return {
        "picture": _jpeg_url(picture),
        "maps": maps,
        "size": picture.size,
        "original": explanation.picture.size,
        "seen": [columns.start, rows.start, columns.stop, rows.stop],
        "sees_all": geometry.sees_all,
        "token": token,
    }


def _map_of(heatmap: np.ndarray, label: str, blank: str | None) -> dict[str, Any]:
    return {
        "levels": _png_url((heatmap * 255 + 0.5).astype(np.uint8)),
        "peak": _peak(heatmap),
        "label": label,
        "alternative": text_alternative(heatmap, blank),
        "blank": blank,
    }


def _signed_map_of(heatmap: np.ndarray, contrast: Contrast) -> dict[str, Any]:
    a, b = (contrast.explanation.classes[k].label for k in (contrast.a, contrast.b))
    words = f"Orange speaks for {a}, strongest {_place(heatmap)}; blue for {b}, strongest {_place(-heatmap)}."
    return {
        "levels": _png_url(((heatmap + 1) / 2 * 255 + 0.5).astype(np.uint8)),
        "peak": _peak(heatmap),
        "label": contrast.label,
        "alternative": f"The map is blank: {contrast.reason}." if contrast.reason else words,
        "blank": contrast.reason,
        "signed": True,
    }


def text_alternative(heatmap: np.ndarray, blank: str | None) -> str:
    """The heatmap in words: where it is hottest, and how much of the picture is hot.

    Args:
        heatmap: (H, W) in [0, 1], of any size that has the picture's aspect.
        blank: why it is blank, or None.
    """
    if blank:
        return f"The map is blank: {blank}"
    share = float((heatmap >= HOT).mean())
    covered = f"{share:.0%}" if share >= 0.01 or not share else "less than 1%"
    return f"Hottest {_place(heatmap)}; the top 10% covers {covered} of the picture."


def _peak(heatmap: np.ndarray) -> list[int]:
    y, x = np.unravel_index(int(heatmap.argmax()), heatmap.shape)
    return [int(x), int(y)]


def _place(heatmap: np.ndarray) -> str:
    height, width = heatmap.shape
    x, y = _peak(heatmap)
    return f"at {(x + 0.5) / width:.0%} across, {(y + 0.5) / height:.0%} down"


def _png_url(levels: np.ndarray) -> str:
    return f"data:image/png;base64,{base64.b64encode(png_bytes(levels)).decode()}"


def _jpeg_url(picture: Image.Image) -> str:
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=92, subsampling=0)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"
