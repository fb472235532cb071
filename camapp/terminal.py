"""What the command line says on the terminal: results, progress, tables, JSON lines and complaints."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

if TYPE_CHECKING:
    from camapp.contrast import Contrast
    from camapp.explanation import Explanation
    from camapp.images.saved import SavedFiles

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


def with_progress(names: list[str]) -> Iterator[str]:
    """The names, with a bar on the error stream when there are several and a person is watching."""
    if len(names) < 2 or not err.is_terminal:
        yield from names
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True) as progress:
        task = progress.add_task("working", total=len(names))
        for name in names:
            progress.update(task, description=escape(Path(name).name[-40:]))
            yield name
            progress.advance(task)


def as_object(
    name: str, explanation: Explanation, saved: list[SavedFiles], apart: SavedFiles | None = None
) -> dict[str, Any]:
    """One picture as ``--json`` prints it; ``apart`` are the files of the difference of two classes."""
    facts = explanation.to_dict()
    contrast = {} if apart is None else {"contrast": {"overlay": str(apart.overlay), "heatmap": str(apart.heatmap)}}
    return {
        "input": name,
        "model": explanation.model,
        **({"random_weights": True} if explanation.random_weights else {}),
        "method": explanation.method,
        "layer": explanation.layer,
        "predictions": facts["predictions"],
        "maps": [
            {
                "target": one["target"],
                "label": one["label"],
                "overlay": str(files.overlay),
                "heatmap": str(files.heatmap),
                "peak": one["peak"],
                "reason": one["reason"],
            }
            for one, files in zip(facts["maps"], saved, strict=True)
        ],
        **contrast,
        "notes": facts["notes"],
        "seconds": facts["seconds"],
    }


def print_explanation(name: str, explanation: Explanation, saved: list[SavedFiles]) -> None:
    """One picture in words."""
    likely = ", ".join(map(str, explanation.predictions))
    out.print(f"[bold]{escape(name)}[/]  {escape(likely)}")
    for k, (explained, files) in enumerate(zip(explanation.classes, saved, strict=True)):
        reason = explanation.reasons[k]
        peak = explanation.peak(k)
        where = f"hottest at {peak[0]}, {peak[1]}" if peak else f"blank map, {reason}"
        out.print(f"  {escape(f'{explained.label}: {where}')}")
        out.print(f"    {escape(str(files.overlay))}")
    for note in explanation.notes:
        out.print(f"  note: {escape(note)}", style="yellow")


def print_contrast(contrast: Contrast, saved: SavedFiles) -> None:
    """What sets two classes apart, in words."""
    told = f"blank map, {contrast.reason}" if contrast.reason else "orange speaks for the first, blue for the second"
    out.print(f"  {escape(f'{contrast.label}: {told}')}")
    out.print(f"    {escape(str(saved.overlay))}")


def report_failure(name: str, error: Exception | str, as_json: bool = False) -> None:
    """Say why one picture failed."""
    if as_json:
        print_object({"input": name, "error": str(error)})
    complain(f"{name}: {error}")


def print_object(value: dict[str, Any]) -> None:
    """One line of JSON, that any encoding of the terminal can take."""
    print(json.dumps(value, ensure_ascii=not _speaks_unicode(), allow_nan=False), flush=True)


def _speaks_unicode() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf")


class _PlainTable(Table):
    """A table whose cells are text, whatever signs they hold: names of classes and files are their owner's."""

    def add_row(self, *cells: Any, **options: Any) -> None:
        super().add_row(*(escape(cell) if isinstance(cell, str) else cell for cell in cells), **options)


def table_of(*columns: str, right: Sequence[str] = ("MiB", "parameters")) -> Table:
    """A plain table; the columns of numbers, ``right``, to the right."""
    table = _PlainTable(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", no_wrap=True)
    return table


def percent(share: float) -> str:
    """A share as people read it; a dash where there is none."""
    return f"{share:.1%}" if share == share else "-"


def print_table(table: Table) -> None:
    """Print whole rows, however narrow the terminal: names that are cut cannot be copied."""
    Console(width=10_000, highlight=False).print(table)


def complain(text: str) -> None:
    """One line on the error stream."""
    err.print(f"[red]camapp:[/] {escape(text)}")
