"""The pictures of a report: curves of insertion, deletion and ROAD, and a sheet of maps."""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import cycle
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from camapp.evaluation.records import DRAWN, Curve, Example
from camapp.images.render import overlay

# Which metrics are drawn: along x, along y, and which way is better.
_PROBABILITY = "mean probability of the class"
_PANELS = {
    "insertion": ("share of the pixels made sharp", _PROBABILITY, "higher is better"),
    "deletion": ("share of the pixels removed", _PROBABILITY, "lower is better"),
    "road": ("percent of the pixels imputed", "(LeRF − MoRF) / 2", "higher is better"),
}
# Okabe and Ito's colours, told apart by colour-blind eyes, without their yellow, which is too pale for a line.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_STYLES = ("-", "--", "-.", (0, (1, 1)))
_MOST_COLUMNS = 8


def curves_png(curves: Sequence[Curve]) -> bytes | None:
    """The curves side by side, a line a method, baselines grey; None where there are none."""
    panels = [name for name in DRAWN if any(curve.metric == name for curve in curves)]
    if not panels:
        return None
    lines = line_styles(curves)
    figure = Figure(figsize=(4.4 * len(panels) + 2.2, 4.0), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    handles = {}
    for axis, name in zip(axes, panels, strict=True):
        shown = [curve for curve in curves if curve.metric == name]
        for curve in sorted(shown, key=lambda one: one.kind):  # baselines first, so that the methods lie on top
            label = _label(curve, curves)
            handles[curve.kind, label] = axis.plot(curve.x, curve.y, label=label, **lines[curve.method, curve.layer])[0]
        across, up, better = _PANELS[name]
        axis.set_title(f"{shown[0].title}\n({better})", fontsize=11)
        axis.set_xlabel(across)
        axis.set_ylabel(up)
        axis.grid(color="#dddddd", linewidth=0.6)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
        axis.margins(x=0)
    ordered = sorted(handles, key=lambda key: key[0] == "baseline")
    figure.legend(
        [handles[key] for key in ordered],
        [f"{label} (baseline)" if kind == "baseline" else label for kind, label in ordered],
        loc="outside right center",
        frameon=False,
        fontsize=9,
    )
    return _saved(figure, "png")


def line_styles(curves: Sequence[Curve]) -> dict[tuple[str, str], dict[str, Any]]:
    """How the line of each method and layer is drawn in every panel: no two alike, baselines grey and dashed."""
    methods = list(dict.fromkeys((curve.method, curve.layer) for curve in curves if curve.kind == "method"))
    baselines = list(dict.fromkeys((curve.method, curve.layer) for curve in curves if curve.kind == "baseline"))
    drawn: dict[tuple[str, str], dict[str, Any]] = {}
    for number, key in enumerate(methods):
        style = _STYLES[number // len(_COLORS) % len(_STYLES)]
        drawn[key] = {"color": _COLORS[number % len(_COLORS)], "linestyle": style, "linewidth": 1.8}
    greys = cycle(("#666666", "#999999", "#b3b3b3"))
    dashes = cycle(((0, (6, 2)), (0, (3, 2)), (0, (1.5, 2))))
    for key in baselines:
        drawn[key] = {"color": next(greys), "linestyle": next(dashes), "linewidth": 1.4}
    return drawn


def maps_jpg(examples: Sequence[Example], warning: str | None = None) -> bytes | None:
    """A few pictures, each with its maps side by side, under a warning if any; None where there are no maps."""
    columns = list(dict.fromkeys(key for example in examples for key in example.maps))[:_MOST_COLUMNS]
    if not columns:
        return None
    figure = Figure(figsize=(1.9 * (len(columns) + 1), 1.95 * len(examples) + 0.4), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(examples), len(columns) + 1, squeeze=False)
    several = len({layer for _, layer in columns}) > 1
    for row, example in enumerate(examples):
        axes[row][0].imshow(example.rgb)
        axes[row][0].set_ylabel(_shortened(example.label, 24), fontsize=9)
        for axis, key in zip(axes[row][1:], columns, strict=True):
            heat = example.maps.get(key)
            if heat is not None:
                axis.imshow(overlay(example.rgb, heat) if heat.any() else example.rgb)
            else:
                axis.text(0.5, 0.5, "refused", ha="center", va="center", transform=axis.transAxes, fontsize=9)
            if row == 0:
                axis.set_title(f"{key[0]}\n{_shortened(key[1], 22)}" if several else key[0], fontsize=9)
        for axis in axes[row]:
            axis.set_xticks([])
            axis.set_yticks([])
            for x0, y0, x1, y1 in example.boxes:
                corner = (x0 - 0.5, y0 - 0.5)  # the middle of the first pixel lies at 0
                for color, width in (("black", 1.8), ("white", 0.9)):  # seen on any ground
                    axis.add_patch(Rectangle(corner, x1 - x0, y1 - y0, fill=False, edgecolor=color, linewidth=width))
    axes[0][0].set_title("picture", fontsize=9)
    if warning:
        figure.suptitle(warning, color="white", backgroundcolor="#be141e", fontsize=11, fontweight="bold")
    return _saved(figure, "jpg")


def _label(curve: Curve, curves: Sequence[Curve]) -> str:
    several = len({one.layer for one in curves if one.kind == "method"}) > 1
    return f"{curve.method} at {curve.layer}" if several and curve.layer else curve.method


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _saved(figure: Figure, kind: str) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind)
    return buffer.getvalue()
