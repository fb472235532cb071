"""What was measured as a notebook shows it: the verdicts, and the tables in boxes that scroll."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import groupby

from camapp.hooks.report.measured import Measured
from camapp.hooks.report.rows import subject
from camapp.hooks.report.table import Column, headline, layer_columns, parameter_columns

# Notebooks are light or dark: colours are see-through, and text keeps the page's own.
_BOX = "max-height:32em;overflow:auto;margin-top:6px"
_CELL = "padding:1px 8px;white-space:nowrap;font-variant-numeric:tabular-nums"
_TABLE = "border-collapse:collapse;font-size:12px"
_WRONG = "background:rgba(214,69,0,.16)"


def html_table(measured: Measured, heading: str | None = None) -> str:
    """What ``table.text`` prints, as HTML; all verdicts are listed, in a box that scrolls."""
    parts = [f"<b>{escape(headline(measured, heading))}</b>"]
    if measured.verdicts:
        items = "".join(
            f"<li><b>{escape(one.what)}</b> {escape(subject(measured, one))}: {escape(one.why)}</li>"
            for one in measured.verdicts
        )
        parts.append(f'<ul style="max-height:14em;overflow:auto;margin:4px 0">{items}</ul>')
    if measured.without_gradient:
        names = ", ".join(f"<code>{escape(name)}</code>" for name in measured.without_gradient)
        parts.append(f'<div style="max-height:6em;overflow:auto">no gradient reached {names}</div>')
    parts += [_table(columns) for columns in (layer_columns(measured), parameter_columns(measured)) if columns]
    return f"<div>{''.join(parts)}</div>"


def _table(columns: Sequence[Column]) -> str:
    groups = "".join(
        f'<th colspan="{len(list(members))}" style="{_CELL};text-align:center">{escape(group)}</th>'
        for group, members in groupby(columns, key=lambda column: column.group)
    )
    heads = "".join(f'<th style="{_CELL};text-align:{_side(column)}">{escape(column.head)}</th>' for column in columns)
    marked = columns[-1].head == ""  # the marks of verdicts
    rows = []
    for cells in zip(*(column.cells for column in columns), strict=True):
        wrong = f' style="{_WRONG}"' if marked and cells[-1] else ""
        shown = "".join(
            f'<td style="{_CELL};text-align:{_side(column)}">{escape(cell.removeprefix("<- "))}</td>'
            for column, cell in zip(columns, cells, strict=True)
        )
        rows.append(f"<tr{wrong}>{shown}</tr>")
    head = f"<thead><tr>{groups}</tr><tr>{heads}</tr></thead>"
    return f'<div style="{_BOX}"><table style="{_TABLE}">{head}<tbody>{"".join(rows)}</tbody></table></div>'


def _side(column: Column) -> str:
    return "right" if column.right else "left"
