"""What was extracted: the layers with their sizes and norms, what could not be read, and the files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr

from camapp.features.formats import FORMATS
from camapp.features.formats.packed import PROJECTOR, missing_for
from camapp.features.info import FeatureInfo
from camapp.ui.features.code import extract_code
from camapp.ui.features.extracting import Extraction
from camapp.ui.frame.component import view
from camapp.ui.frame.words import shape_text

# What a button says of each format.
FORMAT_TITLES = {
    "parquet": "Parquet",
    "npy": "NumPy .npy",
    "npz": "NumPy .npz",
    "safetensors": "safetensors",
    "hdf5": "HDF5",
    "csv": "CSV",
    "mat": "MATLAB",
    PROJECTOR: "Embedding Projector",
}
_PACKED = ("npy", "csv", PROJECTOR)

_HERE = Path(__file__).parent


def summary_view(**options: Any) -> gr.HTML:
    """The component; its value is made by ``summary_of``, or ``{"error": message}``, or None for the invitation."""
    return view(_HERE, "summary_view", **options)


def download_names(stem: str) -> dict[str, str]:
    """What the file of each format is called on the page, by format."""
    return {
        name: f"{stem}.{name}.zip" if name in _PACKED else f"{stem}{FORMATS[name].suffixes[0]}"
        for name in FORMAT_TITLES
    }


def summary_of(extraction: Extraction, token: str, downloads: str) -> dict[str, Any]:
    """What the view shows: plain data, which the page writes as text and never as HTML.

    Args:
        extraction: the result.
        token: of the result.
        downloads: the token of its files.
    """
    table = extraction.table
    names = download_names(extraction.stem)
    return {
        "title": _title(len(table), None if table.labels is None else len(table.classes)),
        "model": extraction.model.name,
        "seconds": f"{extraction.seconds:.1f} s",
        "layers": [_layer(extraction, name, info) for name, info in table.info.items()],
        "failures": [list(one) for one in table.failures],
        "downloads": [
            {"format": name, "title": title, "file": names[name], "missing": missing_for(name)}
            for name, title in FORMAT_TITLES.items()
        ],
        "code": extract_code(extraction.request, extraction.model, extraction.stem),
        "files": downloads,
        "token": token,
    }


def _title(pictures: int, classes: int | None) -> str:
    counted = f"{pictures} picture" if pictures == 1 else f"{pictures} pictures"
    if classes is None:
        return f"{counted} without labels"
    return f"{counted} of {classes} class" if classes == 1 else f"{counted} of {classes} classes"


def _layer(extraction: Extraction, name: str, info: FeatureInfo) -> dict[str, Any]:
    seen = extraction.overviews[name]
    return {
        "name": name,
        "from": f"{info.layer} ({info.kind})" if info.layer != name else info.kind,
        "shape": shape_text(info.shape),
        "pool": "not needed" if info.pool == "none" and len(info.shape) == 1 else info.pool,
        "size": " × ".join(f"{side:,}" for side in info.size) or "1",
        "norm": f"{seen.mean_norm:.3g}",
        "deviation": f"{seen.norm_deviation:.2g}",
    }
