"""Report: what a run measured; shows and saves itself."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from camapp.evaluation.figures import curves_png, maps_jpg
from camapp.evaluation.markdown import report_text
from camapp.evaluation.records import Measured, SummaryRow, Value
from camapp.evaluation.saving import (
    arrow_table,
    check_folder,
    csv_bytes,
    parquet_bytes,
    without_nan,
    write_files,
)
from camapp.explanation import RANDOM_WEIGHTS

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Report", "check_folder"]


@dataclass(frozen=True, eq=False)
class Report(Measured):
    """What a run measured (the fields of ``Measured``), to be shown and saved."""

    def __repr__(self) -> str:
        methods = ", ".join(dict.fromkeys(row.method for row in self.summary if row.kind == "method"))
        return f"Report({self.model}, {len(self.pictures)} pictures: {methods})"

    def _repr_markdown_(self) -> str:
        return self.markdown()

    def table(self) -> pa.Table:
        """The summary, a row a method, layer and metric; ``.to_pandas()`` makes a data frame of it."""
        return arrow_table(self.summary, SummaryRow)

    def values_table(self) -> pa.Table:
        """The values, a row a picture, method, layer and metric."""
        return arrow_table(self.values, Value)

    def markdown(self) -> str:
        """The report as text: what was measured, a table, notes, and how to read it."""
        return report_text(self)

    def to_dict(self) -> dict[str, Any]:
        """Everything but values and pictures, ready for JSON, which has no NaN: undefined is None."""
        return {
            "model": self.model,
            "weights": self.weights,
            "settings": self.settings,
            "pictures": len(self.pictures),
            "failures": [asdict(one) for one in self.failures],
            "summary": [without_nan(row) for row in self.summary],
            "curves": [asdict(curve) for curve in self.curves],
            "notes": list(self.notes),
            "versions": self.versions,
        }

    def save(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> list[Path]:
        """Write report.md, the values (Parquet and CSV), the summary (CSV and JSON), curves.png and maps.jpg.

        Args:
            folder: made if missing.
            overwrite: replace a report that is already there.

        Returns:
            The files.

        Raises:
            UsageError: there is a report already.
        """
        check_folder(folder, overwrite=overwrite)
        return write_files(folder, self._contents())

    def _contents(self) -> dict[str, bytes]:
        warning = RANDOM_WEIGHTS if self.weights["random"] else None
        drawn = {"curves.png": curves_png(self.curves), "maps.jpg": maps_jpg(self.examples, warning)}
        return {
            "values.parquet": parquet_bytes(self.values_table()),
            "values.csv": csv_bytes(self.values, Value),
            "summary.csv": csv_bytes(self.summary, SummaryRow),
            "summary.json": json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False).encode(),
            **{name: content for name, content in drawn.items() if content is not None},
            "report.md": self.markdown().encode(),
        }
