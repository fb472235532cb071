"""What was measured as a table of plain text: verdicts first, then a row a layer, then a row a parameter."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from camapp.hooks.report.measured import Measured, TensorStatistics
from camapp.hooks.report.rows import LayerRow, ParameterRow, layer_rows, parameter_rows, subject

# More would push the table off the screen; each is marked in its row anyway.
MOST_LISTED = 20
_GAP = "  "


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Args:
        head: what its figures are.
        cells: one a row, as text; empty where there is no figure.
        group: what the figures are of; columns side by side share it.
        right: whether the cells are numbers.
    """

    head: str
    cells: tuple[str, ...]
    group: str = ""
    right: bool = True


def text(measured: Measured, heading: str | None = None) -> str:
    """What was measured, to be printed: 120 to 160 columns wide, wider only where a name asks for it.

    Args:
        measured: a ``Snapshot``.
        heading: put above in place of the step and its loss.

    Returns:
        Lines without one at the end: verdicts in words, the layers in running order, the parameters. Numbers have
        three digits; a cell is empty where there is no figure.
    """
    parts = [headline(measured, heading), *_verdict_lines(measured)]
    if lost := _without_gradient(measured):
        parts.append(lost)
    for columns in (layer_columns(measured), parameter_columns(measured)):
        if columns:
            parts += ["", *_lines(columns)]
    return "\n".join(parts)


def headline(measured: Measured, heading: str | None = None) -> str:
    """The step and the loss, or ``heading``, and how much is wrong, in one line."""
    loss = "" if measured.loss is None else f", loss {measured.loss:.6g}"
    heading = f"step {measured.step}{loss}" if heading is None else heading
    if not measured.statistics and not measured.verdicts:
        return f"{heading}: nothing was measured"
    count = len(measured.verdicts)
    return f"{heading}: " + (f"{count} verdict{'s' * (count != 1)}" if count else "nothing wrong was found")


def layer_columns(measured: Measured) -> list[Column]:
    """The columns of the layers' table, those without any figure left out; none where no layer was measured."""
    rows = layer_rows(measured)

    def figures(of: str, *chosen: tuple[str, _Figure]) -> list[Column]:
        return [Column(head, _cells([getattr(row, of) for row in rows], figure), of) for head, figure in chosen]

    def some(one: TensorStatistics, name: str) -> str:
        value = getattr(one, name)
        return percent(value) if value else ""

    return _filled(
        Column("layer", tuple(row.name for row in rows), right=False),
        Column("class", tuple(row.kind for row in rows), right=False),
        Column("shape", tuple("x".join(map(str, row.shape)) or "()" for row in rows), right=False),
        *figures(
            "activation",
            ("norm", lambda one: number(one.norm)),
            ("abs max", lambda one: number(one.abs_max)),
            ("zero", lambda one: percent(one.zero_share)),
            ("dead units", lambda one: some(one, "dead_units")),
            ("saturated", lambda one: some(one, "saturated")),
            _NONFINITE,
        ),
        *figures("gradient", *_GRADIENT, _NONFINITE),
        Column("", tuple(map(_mark, rows)), right=False),
    )


def parameter_columns(measured: Measured) -> list[Column]:
    """The columns of the parameters' table, as ``layer_columns``."""
    rows = parameter_rows(measured)
    owned = [row.statistics for row in rows]

    def column(head: str, figure: _Figure, group: str = "") -> Column:
        return Column(head, _cells(owned, figure), group)

    return _filled(
        Column("parameter", tuple(one.name for one in owned), right=False),
        Column("of", tuple(one.kind for one in owned), right=False),
        Column("shape", tuple("x".join(map(str, one.shape)) or "()" for one in owned), right=False),
        *(column(head, figure, "gradient") for head, figure in _GRADIENT),
        column("abs max", lambda one: number(one.abs_max), "gradient"),
        column("zero", lambda one: percent(one.zero_share), "gradient"),
        column(*_NONFINITE, "gradient"),
        column("update / weight", lambda one: number(one.update_ratio)),
        Column("", tuple(map(_mark, rows)), right=False),
    )


def number(value: float | None) -> str:
    """Three digits; nothing for None."""
    if value is None:
        return ""
    if value == 0 or not math.isfinite(value):
        return f"{value:.0f}".lstrip("-") if value == 0 else str(value)
    return f"{value:#.3g}".rstrip(".")


def percent(share: float) -> str:
    """A share in percent, such that only all is 100% and only nothing is 0%."""
    if not 0 < share < 1:
        return f"{share:.0%}" if math.isfinite(share) else str(share)
    if share < 0.0005:
        return "<0.1%"
    return ">99.9%" if share >= 0.9995 else f"{share:.1%}"


_Figure: TypeAlias = Callable[[TensorStatistics], str]
_GRADIENT: tuple[tuple[str, _Figure], ...] = (
    ("norm", lambda one: number(one.norm)),
    ("p50", lambda one: number(one.p50)),
    ("p95", lambda one: number(one.p95)),
    ("p99", lambda one: number(one.p99)),
)
_NONFINITE: tuple[str, _Figure] = ("NaN or Inf", lambda one: f"{one.nonfinite:,}" if one.nonfinite else "")


def _cells(statistics: Sequence[TensorStatistics | None], figure: _Figure) -> tuple[str, ...]:
    return tuple("" if one is None else figure(one) for one in statistics)


def _filled(*columns: Column) -> list[Column]:
    return [column for column in columns if any(column.cells)]


def _mark(row: LayerRow | ParameterRow) -> str:
    return f"<- {', '.join(row.what)}" if row.verdicts else ""


def _verdict_lines(measured: Measured) -> list[str]:
    shown = measured.verdicts[:MOST_LISTED]
    widest = max((len(one.what) for one in shown), default=0)
    lines = [f"  {one.what:{widest}}{_GAP}{subject(measured, one)}: {one.why}" for one in shown]
    left = len(measured.verdicts) - len(shown)
    return [*lines, f"  and {left} more, marked in the table"] if left else lines


def _without_gradient(measured: Measured) -> str:
    names = measured.without_gradient
    if not names:
        return ""
    left = len(names) - MOST_LISTED
    return f"no gradient reached {', '.join(names[:MOST_LISTED])}{f' and {left} more' if left > 0 else ''}"


def _lines(columns: Sequence[Column]) -> list[str]:
    """Two lines of heads, and one a row; columns as wide as their widest cell."""
    widths = [max(len(column.head), *map(len, column.cells)) for column in columns]

    def line(cells: Sequence[str]) -> str:
        aligned = (
            cell.rjust(width) if column.right else cell.ljust(width)
            for column, width, cell in zip(columns, widths, cells, strict=True)
        )
        return _GAP.join(aligned).rstrip()

    heads = [_groups(columns, widths), line([column.head for column in columns])]
    return [*heads, *(line(cells) for cells in zip(*(column.cells for column in columns), strict=True))]


def _groups(columns: Sequence[Column], widths: Sequence[int]) -> str:
    """What neighbouring columns share, over all of them: ``---- gradient ----``."""
    line, at = "", 0
    while at < len(columns):
        group, start = columns[at].group, at
        while at < len(columns) and columns[at].group == group:
            at += 1
        width = sum(widths[start:at]) + len(_GAP) * (at - start - 1)
        line += (f" {group} ".center(width, "-") if group else " " * width) + _GAP
    return line.rstrip()
