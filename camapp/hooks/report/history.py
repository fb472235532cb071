"""What was measured as a picture over steps: norms and quantiles of gradients, and the loss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from camapp.hooks.report.drawing import (
    BLACK,
    BLUE,
    COLORS,
    GREY,
    LONGEST_NAME,
    RED,
    log_scale,
    new_figure,
    on_scale,
    plain,
    saved,
    shortened,
)
from camapp.hooks.report.measured import Measured, Of, TensorStatistics

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# So many layers are told apart as lines; more are a heat map.
MOST_LINES = len(COLORS)
# Names beside a heat map are readable up to so many; of more, every second, third ... is written.
_MOST_NAMED = 64
_MOST_POINTS = 60
_WHITE = "#f4f4f4"


@dataclass(frozen=True, eq=False)
class _Course:
    """The gradients of layers (rows) over steps (columns); NaN where they were not measured.

    Args:
        steps: those at which gradients were measured, in rising order.
        losses: steps and losses, where there were any.
        broken: the steps, measured or not, with anything that is NaN or infinite.
        names: of the layers.
        norm: (layers, steps), infinite where a norm is NaN or infinite; likewise the quantiles, but finite.
    """

    steps: np.ndarray
    losses: tuple[tuple[int, float], ...]
    broken: tuple[int, ...]
    names: tuple[str, ...]
    norm: np.ndarray
    p50: np.ndarray
    p95: np.ndarray
    p99: np.ndarray


def history_png(snapshots: Sequence[Measured]) -> bytes | None:
    """The gradients of layers over steps as a PNG, and the loss below.

    Up to seven layers are lines, norms above and quantiles below (a band from the median absolute value to the 99th
    percentile, a line at the 95th). More are a heat map of norms, a row a layer, in running order from above, over the
    medians of the layers' quantiles. Scales are logarithmic. Steps with anything that is not finite are marked red.
    Where no gradients of layers were measured, those of the parameters are drawn.

    Args:
        snapshots: of several steps, in any order; of a step that is there twice the later one counts.

    Returns:
        The picture; None where no gradient was measured.
    """
    drawn = history_figure(snapshots)
    return None if drawn is None else saved(drawn)


def history_figure(snapshots: Sequence[Measured]) -> Figure | None:
    """The figure that ``history_png`` saves."""
    from matplotlib.ticker import MaxNLocator

    course = _course(list({one.step: one for one in snapshots}.values()))
    if course is None:
        return None
    few = len(course.names) <= MOST_LINES
    longest = min(LONGEST_NAME, max(map(len, course.names)))
    tall = 2.8 if few else float(np.clip(0.125 * len(course.names) + 0.4, 2.4, 9.0))
    heights = [tall, 2.2, *([1.3] if course.losses else [])]
    figure = new_figure(8.5 + 0.065 * longest, sum(heights) + 1.2)
    axes = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights)
    if few:
        _draw_lines(figure, axes[0], axes[1], course)
    else:
        _draw_heat_map(figure, axes[0], course)
        _draw_medians(axes[1], course)
    if course.losses:
        _draw_loss(axes[-1], course)
    for axis in axes:
        _mark_broken(axis, course, across=few or axis is not axes[0])
    axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[-1].set_xlabel("step", fontsize=9)
    if course.broken:
        count = len(course.broken)
        title = f"NaN or Inf at {count} step{'s' * (count != 1)}, first at step {course.broken[0]} (red)"
        figure.suptitle(title, fontsize=10, color=RED)
    return figure


def _course(snapshots: list[Measured]) -> _Course | None:
    snapshots.sort(key=lambda one: one.step)
    of: Of = "gradient" if any(True for one in snapshots for _ in one.of("gradient")) else "parameter gradient"
    measured = {one.step: {each.name: each for each in one.of(of)} for one in snapshots}
    found = [one for one in measured.values() if one]
    fullest = max(found, key=len, default={})  # its order, with layers that ran only elsewhere behind it
    names = tuple(dict.fromkeys([*fullest, *(name for one in found for name in one)]))
    if not names:
        return None

    def values(figure: str) -> np.ndarray:
        return np.array([[_value(one.get(name), figure) for one in found] for name in names])

    return _Course(
        steps=np.array([step for step, one in measured.items() if one], float),
        losses=tuple((one.step, one.loss) for one in snapshots if one.loss is not None),
        broken=tuple(one.step for one in snapshots if one.has_nonfinite),
        names=names,
        norm=values("norm"),
        p50=values("p50"),
        p95=values("p95"),
        p99=values("p99"),
    )


def _value(one: TensorStatistics | None, figure: str) -> float:
    if one is None:
        return math.nan
    value = float(getattr(one, figure))
    if figure == "norm":
        return value if math.isfinite(value) else math.inf
    # Quantiles of what is left of a broken gradient are those of the zeros in it, as a ReLU leaves them.
    return math.nan if one.nonfinite else value


def _draw_lines(figure: Figure, above: Axes, below: Axes, course: _Course) -> None:
    floors = [
        log_scale(above, course.norm),
        log_scale(below, np.concatenate([course.p50, course.p95, course.p99])),
    ]
    marker = _marker(len(course.steps))
    for row, name in enumerate(course.names):
        color = COLORS[row % len(COLORS)]
        label = shortened(name)
        norm = on_scale(course.norm[row], floors[0])
        above.plot(course.steps, norm, color=color, marker=marker, markersize=3, linewidth=1.4, label=f" {label}")
        p50, p95, p99 = (on_scale(values[row], floors[1]) for values in (course.p50, course.p95, course.p99))
        below.fill_between(course.steps, p50, p99, color=color, alpha=0.16, linewidth=0)
        below.plot(course.steps, p95, color=color, marker=marker, markersize=3, linewidth=1.2)
    above.set_title("norms of gradients", fontsize=9, loc="left")
    below.set_title("absolute values of gradients: 95th percentile, from median to 99th", fontsize=9, loc="left")
    figure.legend(loc="outside right upper", frameon=False, fontsize=8)


def _draw_heat_map(figure: Figure, axis: Axes, course: _Course) -> None:
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap, LogNorm
    from matplotlib.patches import Patch

    shown = np.where(np.isfinite(course.norm), course.norm, np.nan)
    positive = shown[shown > 0]
    low, high = (positive.min(), positive.max()) if positive.size else (0.1, 1.0)
    scale = LogNorm(low, high if high > low else low * 10)
    colors = colormaps["viridis"].with_extremes(bad=_WHITE, under=BLACK)
    edges = _edges(course.steps)
    rows = np.arange(len(course.names) + 1) - 0.5
    # 0 has no logarithm: it is drawn as what lies under the scale
    mesh = axis.pcolormesh(
        edges, rows, np.ma.masked_invalid(np.where(shown == 0, low / 10, shown)), norm=scale, cmap=colors
    )
    lost = np.ma.masked_where(~np.isinf(course.norm), np.ones_like(shown))
    if lost.count():
        axis.pcolormesh(edges, rows, lost, cmap=ListedColormap([RED]))
    every = -(-len(course.names) // _MOST_NAMED)
    named = range(0, len(course.names), every)
    axis.set_yticks(list(named), [shortened(course.names[row]) for row in named], fontsize=7)
    axis.set_ylim(len(course.names) - 0.5, -0.5)
    axis.tick_params(axis="x", labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    axis.set_title("norms of gradients", fontsize=9, loc="left", pad=8)
    figure.colorbar(mesh, ax=axis, pad=0.01, extend="neither").ax.tick_params(labelsize=8)
    kinds = {
        "NaN or Inf": (RED, bool(lost.count())),
        "all zero": (BLACK, bool((shown == 0).any())),
        "not measured": (_WHITE, bool(np.isnan(course.norm).any())),
    }
    patches = [Patch(facecolor=color, edgecolor=GREY, label=label) for label, (color, seen) in kinds.items() if seen]
    if patches:
        axis.legend(
            handles=patches,
            loc="lower right",
            bbox_to_anchor=(1, 1.004),
            borderaxespad=0.2,
            ncols=3,
            frameon=False,
            fontsize=8,
        )


def _draw_medians(axis: Axes, course: _Course) -> None:
    """The quantiles of a layer in the middle: the medians over the layers."""
    p50, p95, p99 = (_median(values) for values in (course.p50, course.p95, course.p99))
    floor = log_scale(axis, np.concatenate([p50, p95, p99]))
    p50, p95, p99 = (on_scale(values, floor) for values in (p50, p95, p99))
    axis.fill_between(course.steps, p95, p99, color=BLUE, alpha=0.18, linewidth=0, label="95th to 99th percentile")
    axis.fill_between(course.steps, p50, p95, color=BLUE, alpha=0.38, linewidth=0, label="median to 95th percentile")
    axis.plot(course.steps, p95, color=BLUE, marker=_marker(len(course.steps)), markersize=3, linewidth=1.2)
    axis.set_title("absolute values of gradients, median over the layers", fontsize=9, loc="left")
    axis.legend(loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0.2, ncols=2, frameon=False, fontsize=8)


def _draw_loss(axis: Axes, course: _Course) -> None:
    steps, losses = np.array(course.losses, float).T
    losses = np.where(np.isfinite(losses), losses, np.nan)
    axis.plot(steps, losses, color=BLACK, marker=_marker(len(steps)), markersize=3, linewidth=1.2)
    axis.set_title("loss", fontsize=9, loc="left")
    plain(axis)


def _mark_broken(axis: Axes, course: _Course, *, across: bool) -> None:
    if not course.broken:
        return  # an empty line takes room at the corner of the figure (matplotlib 3.11)
    if not across:  # the cells of a heat map are red themselves
        above = [1.008] * len(course.broken)
        place = axis.get_xaxis_transform()
        axis.plot(course.broken, above, "v", color=RED, markersize=4, transform=place, clip_on=False)
        return
    for step in course.broken:
        axis.axvline(step, color=RED, linewidth=1, alpha=0.6)


def _marker(count: int) -> str:
    """Points, where they do not run into each other."""
    return "o" if count <= _MOST_POINTS else ""


def _median(values: np.ndarray) -> np.ndarray:
    """Over the layers, of those that have a value; NaN where none has."""
    return np.array([np.median(seen) if (seen := one[np.isfinite(one)]).size else np.nan for one in values.T])


def _edges(steps: np.ndarray) -> np.ndarray:
    """Where the cells of steps meet: half way between two."""
    if len(steps) == 1:
        return np.array([steps[0] - 0.5, steps[0] + 0.5])
    middle = (steps[1:] + steps[:-1]) / 2
    return np.array([2 * steps[0] - middle[0], *middle, 2 * steps[-1] - middle[-1]])
