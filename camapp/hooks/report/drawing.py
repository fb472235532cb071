"""What the pictures of an inspection share: figures, colours, signs, names, and zeros on a logarithmic scale."""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING

import numpy as np

from camapp.hooks.report.measured import What

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart by colour-blind eyes, without their yellow, which is too pale for a line.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
BLUE, VERMILION, GREEN, PURPLE, SKY, ORANGE, BLACK = COLORS
RED, GREY = "#c00018", "#777777"
# The sign and colour of each thing that can be wrong, worst first.
SIGNS: dict[What, tuple[str, str]] = {
    "non-finite": ("X", RED),
    "exploding": ("^", VERMILION),
    "vanishing": ("v", PURPLE),
    "dead": ("s", BLACK),
    "saturated": ("D", ORANGE),
}
LONGEST_NAME = 48
# What lies beyond is drawn at the edge: matplotlib 3.11 fails where a tick of the scale is no float.
_SMALLEST, _LARGEST = 1e-150, 1e150


def new_figure(width: float, height: float) -> Figure:
    """A figure of its own, in inches: pyplot would keep it, and is not made for threads."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def saved(figure: Figure) -> bytes:
    """The figure as a PNG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def shortened(name: str) -> str:
    """The name of a layer as an axis bears it: a very long one without its middle; no dollar begins a formula."""
    half = LONGEST_NAME // 2
    short = name if len(name) <= LONGEST_NAME else f"{name[: half - 1]}…{name[-half:]}"
    return short.replace("$", r"\$")


def log_scale(axis: Axes, values: np.ndarray) -> float:
    """Make an axis logarithmic, with a line of its own for zeros below the scale where there are any.

    Args:
        axis: what is drawn on.
        values: all that will be drawn; NaN where there is nothing.

    Returns:
        Where zeros are drawn: a tenth of what is seen below the smallest positive value.
    """
    positive = values[np.isfinite(values) & (values > 0)]
    lowest, highest = (positive.min(), positive.max()) if positive.size else (1.0, 1.0)
    seen = math.log10(highest) - math.log10(lowest)
    floor = float(np.clip(10 ** (math.log10(lowest) - max(0.12 * seen, 0.4)), _SMALLEST, _LARGEST / 10))
    axis.set_yscale("log")
    axis.set_ylim(floor * 0.6, min(highest, _LARGEST) * 3)
    plain(axis)
    if (values == 0).any():
        _part_zeros(axis, floor)
    return floor


def on_scale(values: np.ndarray, floor: float) -> np.ndarray:
    """Zeros where zeros are drawn, and NaN, a gap, where a value is not finite."""
    return np.where(np.isfinite(values), np.clip(values, floor, _LARGEST), np.nan)


def plain(axis: Axes) -> None:
    """The look that all axes share."""
    axis.grid(axis="y", color="#dddddd", linewidth=0.6)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=8)


def _part_zeros(axis: Axes, floor: float) -> None:
    axis.axhline(floor, color=GREY, linewidth=0.8, linestyle=(0, (1, 2)))
    axis.set_yticks([tick for tick in axis.get_yticks() if floor * 1.5 < tick < axis.get_ylim()[1]])
    axis.set_yticks([], minor=True)
    axis.text(-0.008, floor, "0", transform=axis.get_yaxis_transform(), ha="right", va="center", fontsize=8)
