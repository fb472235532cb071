"""The files of a report: its tables as Parquet, CSV and JSON, written all or none."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from camapp.evaluation.records import SummaryRow, Value
from camapp.files import check_report_folder, write_together

if TYPE_CHECKING:
    import pyarrow as pa

FILES = ("values.parquet", "values.csv", "summary.csv", "summary.json", "curves.png", "maps.jpg", "report.md")


def check_folder(folder: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Make sure that a report can be written into a folder, before hours are spent on it.

    Raises:
        UsageError: there is a report in it already, or it is a file.
    """
    check_report_folder(Path(folder), FILES, overwrite=overwrite)


def write_files(folder: str | os.PathLike[str], contents: dict[str, bytes]) -> list[Path]:
    """Write the files of a report, all or none, and remove those that only the report before it had.

    Args:
        folder: made if missing.
        contents: of each file, by its name, one of ``FILES``.

    Returns:
        The files.
    """
    written = write_together(Path(folder), contents)
    for name in set(FILES) - contents.keys():
        (Path(folder) / name).unlink(missing_ok=True)  # of the report before this one
    return written


def arrow_table(rows: Iterable[Value | SummaryRow], kind: type[Value] | type[SummaryRow]) -> pa.Table:
    """Columns by the dataclass's fields; what is undefined is null."""
    import pyarrow as pa

    types = {"float": pa.float64(), "int": pa.int64(), "str": pa.string(), "str | None": pa.string()}
    rows = list(rows)
    columns = {}
    for field in fields(kind):
        column = [_none_for_nan(getattr(row, field.name)) for row in rows]
        columns[field.name] = pa.array(column, types[str(field.type)])
    return pa.table(columns)


def parquet_bytes(table: pa.Table) -> bytes:
    """A table as a Parquet file."""
    import pyarrow.parquet

    buffer = io.BytesIO()
    pyarrow.parquet.write_table(table, buffer)
    return buffer.getvalue()


def csv_bytes(rows: Iterable[Value | SummaryRow], kind: type[Value] | type[SummaryRow]) -> bytes:
    """RFC 4180 but for its line ends; what is undefined is empty. Floats are written so that they read back equal."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    names = [field.name for field in fields(kind)]
    writer.writerow(names)
    writer.writerows([_none_for_nan(getattr(row, name)) for name in names] for row in rows)
    return buffer.getvalue().encode()


def without_nan(row: SummaryRow) -> dict[str, Any]:
    """A row ready for JSON, which has no NaN: undefined is None."""
    return {name: _none_for_nan(value) for name, value in vars(row).items()}


def _none_for_nan(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value
