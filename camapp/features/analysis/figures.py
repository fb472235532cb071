"""The pictures of an analysis: a heatmap of layers against layers, and points coloured by class."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from camapp.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from camapp.features.analysis.cka import CKAMatrix
    from camapp.features.analysis.projection import Projection

# Numbers in the cells are readable up to so many columns.
MOST_NUMBERED = 16
# Names beside the cells are readable up to so many; of more, every second, third ... is written.
MOST_NAMED = 64
# Seven colours times three signs: so many classes are told apart; of more, the rarest are grey.
MOST_CLASSES = 20
# Okabe and Ito's colours, told apart by colour-blind eyes, with a darker yellow.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_MARKERS = ("o", "^", "s")
_GREY = "#999999"


def heatmap_png(matrix: CKAMatrix) -> bytes:
    """The values as colours from 0 (dark) to 1 (bright), undefined ones grey, with their numbers if they fit."""
    from matplotlib import colormaps

    rows, columns = matrix.values.shape
    numbered = columns <= MOST_NUMBERED
    cell = 0.55 if numbered else max(0.12, 9 / columns)
    names = [_shortened(name, 28) for name in matrix.names]
    others = [_shortened(name, 28) for name in matrix.others]
    beside, below = (0.085 * max(map(len, some)) + 0.3 for some in (names, others))
    size = (max(columns * cell, 1.5) + beside + 1.1, max(rows * cell, 1.5) + below + 0.5)
    figure, axes = _figure(*size)
    colors = colormaps["viridis"].with_extremes(bad=_GREY)
    image = axes.imshow(np.ma.masked_invalid(matrix.values), cmap=colors, vmin=0, vmax=1)
    axes.set_xticks(_ticks(columns), [others[i] for i in _ticks(columns)], rotation=90, fontsize=8)
    axes.set_yticks(_ticks(rows), [names[i] for i in _ticks(rows)], fontsize=8)
    axes.tick_params(length=0)
    if numbered:
        _write_numbers(axes, matrix.values)
    kind = "unbiased" if matrix.unbiased else "biased"
    axes.set_title(f"linear CKA ({kind}), {matrix.pictures} pictures", fontsize=9)
    figure.colorbar(image, ax=axes, shrink=0.8).ax.tick_params(labelsize=8)
    return _saved(figure)


def scatter_png(projection: Projection, labels: Sequence[object] | None = None, *, title: str = "") -> bytes:
    """The first two components as a PNG: a point a picture, a colour and a sign a class.

    Args:
        projection: of two dimensions or more.
        labels: the class of each row, numbers or names. Of more than 20 classes the most frequent 19 are told apart,
            the others are grey. By default all points are alike.
        title: above the picture.

    Raises:
        UsageError: one dimension only, or labels of another number than rows.
    """
    points = projection.coordinates
    if points.shape[1] < 2:
        raise UsageError("The projection has one dimension; a picture needs two: pca(features, dimensions=2).")
    names = None if labels is None else [str(label) for label in labels]
    if names is not None and len(names) != len(points):
        raise UsageError(f"There are {len(names)} labels for {len(points)} rows. Give one a row, in the same order.")
    figure, axes = _figure(6.4 if names is None else 8.6, 5.6)
    size = float(np.clip(6000 / len(points), 6, 36))
    if names is None:
        axes.scatter(points[:, 0], points[:, 1], s=size, c=_COLORS[0], alpha=0.75, linewidths=0)
    else:
        _scatter_classes(axes, points, names, size)
        figure.legend(loc="outside right upper", frameon=False, fontsize=9, markerscale=max(1, (24 / size) ** 0.5))
    for axis, number in ((axes.xaxis, 0), (axes.yaxis, 1)):
        axis.set_label_text(
            f"component {number + 1} ({projection.explained_variance_ratio[number]:.1%} of the variance)"
        )
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(title, fontsize=11)
    return _saved(figure)


def shown_classes(names: Sequence[str]) -> tuple[list[str], int]:
    """The classes that get a colour of their own, in the order in which people sort them, and how many are left."""
    counts = Counter(names)
    if len(counts) <= MOST_CLASSES:
        return sorted(counts, key=_by_number), 0
    kept = sorted(counts, key=lambda name: (-counts[name], _by_number(name)))[: MOST_CLASSES - 1]
    return sorted(kept, key=_by_number), len(counts) - len(kept)


def _scatter_classes(axes: Axes, points: np.ndarray, names: Sequence[str], size: float) -> None:
    classes, left = shown_classes(names)
    of_class = np.array(names, object)
    if left:
        rest = ~np.isin(of_class, classes)
        label = f"{left} other classes"
        axes.scatter(points[rest, 0], points[rest, 1], s=size, c=_GREY, alpha=0.5, linewidths=0, label=label)
    for number, name in enumerate(classes):
        axes.scatter(
            points[of_class == name, 0],
            points[of_class == name, 1],
            s=size,
            c=_COLORS[number % len(_COLORS)],
            marker=_MARKERS[number // len(_COLORS)],
            alpha=0.75,
            linewidths=0,
            label=_legend_text(name),
        )


def _write_numbers(axes: Axes, values: np.ndarray) -> None:
    for (row, column), value in np.ndenumerate(values):
        if not np.isnan(value):
            color = "black" if value > 0.6 else "white"
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", color=color, fontsize=8)


def _legend_text(name: str) -> str:
    """A class name as matplotlib takes it, which leaves out what begins with ``_`` and sets text in dollars as math."""
    text = _shortened(name, 28).replace("$", r"\$")
    return f" {text}" if text.startswith("_") or not text else text


def _figure(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure of its own, in inches: pyplot would keep it, and is not made for threads."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots()


def _ticks(count: int) -> range:
    return range(0, count, -(-count // MOST_NAMED))


def _by_number(name: str) -> list[tuple[bool, int, str]]:
    """Names by the alphabet, but the numbers in them by their size: 2 before 10."""
    parts = re.findall("[0-9]+|[^0-9]+", name)
    return [(False, int(part), part) if part[0] in "0123456789" else (True, 0, part) for part in parts]


def _shortened(text: str, most: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _saved(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()
