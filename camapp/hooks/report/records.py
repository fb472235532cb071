"""Snapshot: all that was measured at one step; shows itself as a table, saves itself, goes to JSON and back."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from camapp.files import check_report_folder, write_together
from camapp.hooks.report.html import html_table
from camapp.hooks.report.json_form import from_json_form, to_json_form
from camapp.hooks.report.measured import Measured, Of, TensorStatistics, Verdict, What
from camapp.hooks.report.picture import depth_png
from camapp.hooks.report.table import text

__all__ = ["FILES", "Of", "Snapshot", "TensorStatistics", "Verdict", "What"]

FILES = ("snapshot.json", "table.txt", "depth.png")


@dataclass(frozen=True, repr=False)
class Snapshot(Measured):
    """All that was measured at one step (the fields of ``Measured``), to be shown and saved.

    ``print`` it for a table, let it be the last line of a notebook's cell, or ``save`` it.
    """

    @classmethod
    def from_dict(cls, facts: dict[str, Any]) -> Snapshot:
        """A snapshot from what ``to_dict`` gave; keys that it does not know are left alone.

        Raises:
            UsageError: something that is no snapshot.
        """
        return cls(**from_json_form(facts))

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON, which has no NaN: such numbers are "NaN", "Infinity" or "-Infinity"."""
        return to_json_form(self)

    def save(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> list[Path]:
        """Write snapshot.json, table.txt and, where there is something to draw, depth.png; all or none.

        Args:
            folder: made if missing.
            overwrite: replace a snapshot that is already there.

        Returns:
            The files.

        Raises:
            UsageError: there is a snapshot already, or ``folder`` is a file.
        """
        return write_report(Path(folder), self.to_dict(), str(self), depth_png(self), overwrite=overwrite)

    def __str__(self) -> str:
        return text(self)

    def __repr__(self) -> str:
        loss = "" if self.loss is None else f", loss {self.loss:.4g}"
        names = len({one.name for one in self.statistics})
        return f"Snapshot(step {self.step}{loss}: {names} layers and parameters, {len(self.verdicts)} verdicts)"

    def _repr_html_(self) -> str:
        return html_table(self)


def write_report(
    folder: Path, facts: dict[str, Any], table: str, picture: bytes | None, *, overwrite: bool
) -> list[Path]:
    """Write the files of ``FILES`` into a folder, all or none, and remove one that only the report before had.

    Args:
        folder: made if missing.
        facts: ready for JSON.
        table: the text.
        picture: a PNG; None where there is nothing to draw.
        overwrite: replace a report that is already there.

    Raises:
        UsageError: there is a report already, and it is not to be overwritten.
    """
    check_report_folder(folder, FILES, overwrite=overwrite)
    contents = {
        "snapshot.json": json.dumps(facts, indent=1, ensure_ascii=False, allow_nan=False).encode(),
        "table.txt": f"{table}\n".encode(),
        **({} if picture is None else {"depth.png": picture}),
    }
    written = write_together(folder, contents)
    for name in set(FILES) - contents.keys():
        (folder / name).unlink(missing_ok=True)
    return written
