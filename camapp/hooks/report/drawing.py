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


def log_floor(values: np.ndarray) -> float:
    """Where zeros are drawn on a logarithmic axis: below the smallest positive value by a tenth of what is seen."""
    positive = values[np.isfinite(values) & (values > 0)]
    if not positive.size:
        return 0.1
    lowest, highest = math.log10(positive.min()), math.log10(positive.max())
    return 10 ** max(lowest - max(0.12 * (highest - lowest), 0.4), -320)


def mark_zeros(axis: Axes, floor: float) -> None:
    """A line that parts the zeros from the logarithmic scale above them, and its name."""
    axis.axhline(floor, color=GREY, linewidth=0.8, linestyle=(0, (1, 2)))
    axis.set_yticks([tick for tick in axis.get_yticks() if floor * 1.5 < tick < axis.get_ylim()[1]])
    axis.set_yticks([], minor=True)
    axis.text(-0.008, floor, "0", transform=axis.get_yaxis_transform(), ha="right", va="center", fontsize=8)


def plain(axis: Axes) -> None:
    """The look that all axes share."""
    axis.grid(axis="y", color="#dddddd", linewidth=0.6)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=8)
