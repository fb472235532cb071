"""The picture of a confusion matrix."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure

# Up to so many classes the counts are written into the cells, and up to so many each class is named.
_MOST_COUNTED = 30
_MOST_NAMED = 120
_LONGEST_NAME = 28
# Inches: the side of a cell, and of the whole matrix.
_CELL, _SMALLEST_CELL, _LARGEST_SIDE = 0.62, 0.145, 16.0
_TICKS = {0: "0", 0.01: "1 %", 0.1: "10 %", 0.25: "25 %", 0.5: "50 %", 1: "100 %"}


def confusion_png(confusion: np.ndarray, classes: Sequence[str]) -> bytes:
    """A confusion matrix as a PNG: a row a class that pictures are of, a column a class predicted.

    The colour is the share of the row's pictures, on a scale of square roots, so that few mistakes are seen too.

    Args:
        confusion: (K, K) counts.
        classes: K names.
    """
    count = len(classes)
    side = count * min(max(_CELL - 0.012 * count, _SMALLEST_CELL), _LARGEST_SIDE / count)
    figure = Figure(figsize=(side + 3, side + 2.5), dpi=150)  # the rest is for names, and is cut to what they take
    FigureCanvasAgg(figure)
    axes = figure.add_axes((2 / (side + 3), 2 / (side + 2.5), side / (side + 3), side / (side + 2.5)))
    shares = confusion / np.maximum(confusion.sum(1, keepdims=True), 1)
    norm = PowerNorm(0.5, 0, 1)
    image = axes.imshow(shares, cmap=colormaps["Blues"], norm=norm, interpolation="nearest", aspect="auto")
    _write_names(axes, classes, side / count)
    if count <= _MOST_COUNTED:
        _write_counts(axes, confusion, norm(shares), min(0.32 * 72 * side / count, 10))
    bar = axes.inset_axes((1 + 0.22 / side, 1 - min(3, side) / side, 0.16 / side, min(3, side) / side))
    figure.colorbar(image, cax=bar, ticks=list(_TICKS)).outline.set_visible(False)
    bar.set_yticks(list(_TICKS), list(_TICKS.values()), fontsize=8)
    bar.set_ylabel("of the class's pictures", fontsize=8)
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a name in a script that the font lacks shows as boxes
        figure.savefig(buffer, format="png", bbox_inches="tight", pad_inches=0.12)
    return buffer.getvalue()


def _write_names(axes: Axes, classes: Sequence[str], cell: float) -> None:
    step = math.ceil(len(classes) / _MOST_NAMED)
    places = range(0, len(classes), step)
    names = [_shortened(classes[place]) for place in places]
    size = min(max(0.72 * 72 * cell * step, 4), 9)
    fits = max(map(len, names)) * 0.62 * size < 72 * cell * step
    axes.set_xticks(places, names, rotation=0 if fits else 90, fontsize=size)
    axes.set_yticks(places, names, fontsize=size)
    for name in [*axes.get_xticklabels(), *axes.get_yticklabels()]:
        name.set_parse_math(False)  # a "$" in a name is a dollar
    axes.set_xlabel("predicted")
    axes.set_ylabel("class")
    between = np.arange(len(classes) - 1) + 0.5
    axes.set_xticks(between, minor=True)
    axes.set_yticks(between, minor=True)
    axes.tick_params(which="both", length=0)
    if step == 1:
        axes.grid(which="minor", color="#e4e8ee", linewidth=0.4)
    axes.spines[:].set_color("#9aa4b2")


def _write_counts(axes: Axes, confusion: np.ndarray, darkness: np.ndarray, size: float) -> None:
    for row, column in np.argwhere(confusion):
        color = "white" if darkness[row, column] > 0.6 else "#1c2733"
        axes.text(column, row, str(confusion[row, column]), ha="center", va="center", fontsize=size, color=color)


def _shortened(name: str) -> str:
    line = " ".join(name.split())
    return line if len(line) <= _LONGEST_NAME else f"{line[: _LONGEST_NAME - 1]}…"
