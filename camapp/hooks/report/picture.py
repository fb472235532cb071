"""What was measured as a picture over depth: norms and quantiles of gradients and activations, a place a layer."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from camapp.hooks.report.drawing import (
    BLUE,
    GREEN,
    GREY,
    LONGEST_NAME,
    RED,
    SIGNS,
    log_scale,
    new_figure,
    on_scale,
    saved,
    shortened,
)
from camapp.hooks.report.measured import Measured, TensorStatistics, Verdict, What
from camapp.hooks.report.rows import layer_rows, parameter_rows

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Inches: of one name written upwards, and of the widest picture.
_NAME, _MOST_WIDTH = 0.125, 26.0


@dataclass(frozen=True)
class Place:
    """One place along the depth.

    Args:
        name: of the layer or parameter.
        figures: what is drawn there; None where there is nothing.
        what: what is wrong there.
    """

    name: str
    figures: TensorStatistics | None
    what: tuple[What, ...] = ()


@dataclass(frozen=True)
class Panel:
    """Places side by side under one title; ``missing`` is what lacks where a place has no figures."""

    title: str
    color: str
    places: tuple[Place, ...]
    missing: str


def depth_png(measured: Measured, title: str | None = None) -> bytes | None:
    """Norms and quantiles over depth as a PNG: gradients above, activations below, layers in running order.

    The scale is logarithmic; zeros lie on a line of their own at the bottom. A line shows the norm, bands reach from
    the median absolute value to the 95th and on to the 99th percentile. Places that are not finite are red, and signs
    above them tell the verdicts. Where no layer was measured, the gradients of the parameters are drawn.

    Args:
        measured: a ``Snapshot``.
        title: put above in place of the step and its loss.

    Returns:
        The picture; None where nothing was measured.
    """
    drawn = depth_figure(measured, title)
    return None if drawn is None else saved(drawn)


def depth_figure(measured: Measured, title: str | None = None) -> Figure | None:
    """The figure that ``depth_png`` saves."""
    panels = panels_of(measured)
    if not panels:
        return None
    names = [place.name for place in panels[0].places]
    width = float(np.clip(_NAME * len(names) + 2.4, 7.5, _MOST_WIDTH))
    tall = 0.062 * min(LONGEST_NAME, max(map(len, names)))
    figure = new_figure(width, 2.7 * len(panels) + tall + 0.9)
    axes = list(figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0])
    for axis, panel in zip(axes, panels, strict=True):
        _draw(axis, panel)
    wrong = [any(panel.places[at].what for panel in panels) for at in range(len(names))]
    shown = _named(wrong, spacing=math.ceil(_NAME * len(names) / (width - 2.0)))
    axes[-1].set_xticks(shown, [shortened(names[at]) for at in shown], rotation=90, fontsize=7)
    for label, at in zip(axes[-1].get_xticklabels(), shown, strict=True):
        label.set_color(RED if wrong[at] else "black")
    axes[-1].set_xlim(-0.7, len(names) - 0.3)
    figure.suptitle(_title(measured, panels, title), fontsize=10)
    _legend(figure, axes)
    return figure


def panels_of(measured: Measured) -> list[Panel]:
    """What is drawn over depth: gradients and activations of the layers, or the parameters' gradients alone."""
    rows = layer_rows(measured)
    if not rows:
        parameters = parameter_rows(measured)
        places = tuple(Place(row.statistics.name, row.statistics, row.what) for row in parameters)
        return [Panel("gradients of the parameters", BLUE, places, "no gradient")] if places else []
    of_gradients = [
        Place(row.name, row.gradient, _what(one for one in row.verdicts if one.of == "gradient")) for row in rows
    ]
    of_activations = [
        Place(row.name, row.activation, _what(one for one in row.verdicts if one.of == "activation")) for row in rows
    ]
    for verdict in measured.verdicts:
        at = next((i for i, place in enumerate(of_gradients) if _owns(place.name, verdict)), None)
        if at is not None and verdict.what not in of_gradients[at].what:
            place = of_gradients[at]
            of_gradients[at] = Place(place.name, place.figures, (*place.what, verdict.what))
    panels = [
        Panel("gradients of the layers' outputs", BLUE, tuple(of_gradients), "no gradient"),
        Panel("activations", GREEN, tuple(of_activations), "no activation"),
    ]
    return [panel for panel in panels if any(place.figures for place in panel.places)]


def _what(verdicts: Iterable[Verdict]) -> tuple[What, ...]:
    return tuple(dict.fromkeys(one.what for one in verdicts))


def _owns(layer: str, verdict: Verdict) -> bool:
    """Whether a verdict on a parameter's gradient is about a parameter of this layer."""
    return verdict.of == "parameter gradient" and _module(layer) == verdict.name.rpartition(".")[0]


def _module(layer: str) -> str:
    """The module's name, without call and part: ``lstm@1#0`` is of ``lstm``."""
    return re.split("[@#]", layer, maxsplit=1)[0]


def _draw(axis: Axes, panel: Panel) -> None:
    drawn = {name: _values(panel.places, name) for name in ("norm", "p50", "p95", "p99")}
    floor = log_scale(axis, np.concatenate(list(drawn.values())))
    silent = drawn["norm"] == 0  # has a sign of its own; the line does not dive for it
    norm, p50, p95, p99 = (np.where(silent, np.nan, on_scale(values, floor)) for values in drawn.values())
    x = np.arange(len(panel.places))
    _band(axis, x, p95, p99, panel.color, 0.18, "absolute value, 95th to 99th percentile")
    _band(axis, x, p50, p95, panel.color, 0.38, "absolute value, median to 95th percentile")
    marker = "o" if len(x) <= 150 else ""
    axis.plot(x, norm, color=panel.color, marker=marker, markersize=3, linewidth=1.3, label="norm")
    _mark_places(axis, panel, floor)
    if len(x) <= 60:
        axis.grid(axis="x", color="#eeeeee", linewidth=0.6)
    axis.set_title(panel.title, fontsize=9, loc="left", pad=6 + 9 * _most_signs(panel))


def _values(places: Sequence[Place], name: str) -> np.ndarray:
    return np.array([math.nan if one.figures is None else float(getattr(one.figures, name)) for one in places])


def _band(axis: Axes, x: np.ndarray, low: np.ndarray, high: np.ndarray, color: str, alpha: float, label: str) -> None:
    """Between two lines; a place whose neighbours have no figures gets a bar, for a band of one place has no area."""
    there = np.isfinite(low) & np.isfinite(high)
    axis.fill_between(x, low, high, where=there, color=color, alpha=alpha, linewidth=0, label=label)
    beside = np.pad(there, 1)
    alone = there & ~beside[:-2] & ~beside[2:]
    if alone.any():
        axis.bar(
            x[alone],
            high[alone] - low[alone],
            min(0.5, 0.02 * len(x)),
            low[alone],
            color=color,
            alpha=alpha,
            linewidth=0,
        )


def _mark_places(axis: Axes, panel: Panel, floor: float) -> None:
    half = min(0.5, 0.02 * len(panel.places))  # a place in width, but no wide beam where places are few
    for at, place in enumerate(panel.places):
        if place.figures is not None and (place.figures.nonfinite or not math.isfinite(place.figures.norm)):
            axis.axvspan(at - half, at + half, color=RED, alpha=0.22, linewidth=0, label="NaN or Inf")
        for height, what in enumerate(place.what):
            sign, color = SIGNS[what]
            axis.plot(
                at,
                1.03 + 0.055 * height,  # above the axes
                marker=sign,
                color=color,
                markersize=5,
                linestyle="",
                transform=axis.get_xaxis_transform(),
                clip_on=False,
                label=what,
            )
    zero = [at for at, one in enumerate(panel.places) if one.figures is not None and one.figures.norm == 0]
    if zero:
        axis.plot(zero, [floor] * len(zero), "o", color=RED, markerfacecolor="white", markersize=5, label="all zero")
    missing = [at for at, one in enumerate(panel.places) if one.figures is None]
    if missing:
        axis.plot(missing, [floor] * len(missing), "|", color=GREY, markersize=8, label=panel.missing)


def _most_signs(panel: Panel) -> int:
    return max(len(place.what) for place in panel.places)


def _named(wrong: Sequence[bool], spacing: int) -> list[int]:
    """Which places are named, so that no two names overlap: what is wrong comes first."""
    taken: set[int] = set()
    first = sorted(range(len(wrong)), key=lambda at: (not wrong[at], at))
    for at in first:
        if not taken.intersection(range(at - spacing + 1, at + spacing)):
            taken.add(at)
    return sorted(taken)


def _title(measured: Measured, panels: Sequence[Panel], title: str | None) -> str:
    loss = "" if measured.loss is None else f", loss {measured.loss:.4g}"
    title = f"step {measured.step}{loss}" if title is None else title.replace("$", r"\$")
    shown = {(place.name, what) for panel in panels for place in panel.places for what in place.what}
    owned = {(_module(name), what) for name, what in shown}
    left = [
        one
        for one in measured.verdicts
        if (one.name, one.what) not in shown and (one.name.rpartition(".")[0], one.what) not in owned
    ]
    if left:
        title += "\nnot in the picture: " + ", ".join(f"{shortened(one.name)} ({one.what})" for one in left[:3])
        title += f" and {len(left) - 3} more verdicts" if len(left) > 3 else ""
    return title


def _legend(figure: Figure, axes: Sequence[Axes]) -> None:
    shown: dict[str, Artist] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            shown.setdefault(label, handle)
    figure.legend(list(shown.values()), list(shown), loc="outside lower center", ncols=4, frameon=False, fontsize=8)
