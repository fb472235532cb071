"""The heatmap viewer: picture and heatmap go to the browser once, and are blended there as the user turns the knobs."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np
from PIL import Image

from camapp.explanation import Explanation
from camapp.images.render import COLORMAPS, VEIL, colors_of, png_bytes

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
        colormaps={name: base64.b64encode(colors_of(name).tobytes()).decode() for name in COLORMAPS},
        **options,
    )


def view_of(explanation: Explanation, token: str) -> dict[str, Any]:
    """What the viewer shows of the first explained class.

    Args:
        explanation: the result.
        token: under which its files are kept for download.

    Returns:
        The picture and its 8-bit heatmap as data URLs, of at most ``LONGEST_SIDE`` pixels; where the model looked in
        them; the text alternative; and what the downloads need.
    """
    picture = explanation.picture.no_larger_than(LONGEST_SIDE).to_pil()
    geometry = explanation.geometry.scaled_to(picture.size)
    heatmap = geometry.to_original(explanation.model_maps[0])
    rows, columns = geometry.seen_pixels
    y, x = np.unravel_index(int(heatmap.argmax()), heatmap.shape)
    levels = (heatmap * 255 + 0.5).astype(np.uint8)
    return {
        "picture": _jpeg_url(picture),
        "heatmap": f"data:image/png;base64,{base64.b64encode(png_bytes(levels)).decode()}",
        "size": picture.size,
        "original": explanation.picture.size,
        "seen": [columns.start, rows.start, columns.stop, rows.stop],
        "sees_all": geometry.sees_all,
        "peak": [int(x), int(y)],
        "label": explanation.classes[0].label,
        "alternative": text_alternative(explanation, heatmap),
        "blank": explanation.reasons[0],
        "token": token,
    }


def text_alternative(explanation: Explanation, heatmap: np.ndarray) -> str:
    """The heatmap in words: where it is hottest, and how much of the picture is hot.

    Args:
        explanation: the result; its first class is told.
        heatmap: (H, W) in [0, 1], of any size that has the picture's aspect.
    """
    if explanation.reasons[0]:
        return f"The map is blank: {explanation.reasons[0]}"
    height, width = heatmap.shape
    y, x = np.unravel_index(int(heatmap.argmax()), heatmap.shape)
    across, down = (x + 0.5) / width, (y + 0.5) / height
    share = float((heatmap >= HOT).mean())
    covered = f"{share:.0%}" if share >= 0.01 or not share else "less than 1%"
    return f"Hottest at {across:.0%} across, {down:.0%} down; the top 10% covers {covered} of the picture."


def _jpeg_url(picture: Image.Image) -> str:
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=92, subsampling=0)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"
