"""The picture of a confusion matrix."""

from __future__ import annotations

import io
import math
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


def confusion_png(confusion: np.ndarray, classes: Sequence[str]) -> bytes:
    """A confusion matrix as a PNG: a row a class that pictures are of, a column a class predicted.

    The colour is the share of the row's pictures, on a scale of square roots, so that few mistakes are seen too.

    Args:
        confusion: (K, K) counts.
        classes: K names.
    """
    count = len(classes)
    shares = confusion / np.maximum(confusion.sum(1, keepdims=True), 1)
    cell = min(max(0.62 - 0.012 * count, 0.145), 16 / count)  # inches
    side = max(cell * count, 1.3)
    letters = 72 * side / count
    names = [_shortened(name) for name in classes]
    margin = 0.062 * min(max(map(len, names)), _LONGEST_NAME) * min(letters * 0.72, 9) / 9 + 0.55
    figure = Figure(figsize=(side + margin + 1.1, side + margin + 0.35), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    colors = colormaps["Blues"]
    norm = PowerNorm(0.5, 0, 1)
    image = axes.imshow(shares, cmap=colors, norm=norm, interpolation="nearest")
    step = math.ceil(count / _MOST_NAMED)
    size = min(max(letters * 0.72 * step, 4), 9)
    places = range(0, count, step)
    axes.set_xticks(places, [names[place] for place in places], rotation=90, fontsize=size)
    axes.set_yticks(places, [names[place] for place in places], fontsize=size)
    for label in [*axes.get_xticklabels(), *axes.get_yticklabels()]:
        label.set_parse_math(False)  # a "$" in a name is a dollar
    axes.set_xlabel("predicted")
    axes.set_ylabel("class")
    axes.tick_params(length=0)
    axes.set_xticks(np.arange(count - 1) + 0.5, minor=True)
    axes.set_yticks(np.arange(count - 1) + 0.5, minor=True)
    if count <= _MOST_NAMED:
        axes.grid(which="minor", color="#e4e8ee", linewidth=0.4)
    axes.tick_params(which="minor", length=0)
    axes.spines[:].set_color("#9aa4b2")
    if count <= _MOST_COUNTED:
        _write_counts(axes, confusion, shares, norm, min(letters * 0.32, 10))
    bar = figure.colorbar(image, ax=axes, ticks=[0, 0.01, 0.1, 0.25, 0.5, 1], shrink=0.9 if count < 5 else 0.6)
    bar.ax.set_yticklabels(["0", "1 %", "10 %", "25 %", "50 %", "100 %"], fontsize=8)
    bar.set_label("of the class's pictures", fontsize=8)
    bar.outline.set_visible(False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def _write_counts(axes: Axes, confusion: np.ndarray, shares: np.ndarray, norm: PowerNorm, size: float) -> None:
    for row, column in np.argwhere(confusion):
        color = "white" if norm(shares[row, column]) > 0.6 else "#1c2733"
        axes.text(column, row, str(confusion[row, column]), ha="center", va="center", fontsize=size, color=color)


def _shortened(name: str) -> str:
    line = " ".join(name.split())
    return line if len(line) <= _LONGEST_NAME else f"{line[: _LONGEST_NAME - 1]}…"
