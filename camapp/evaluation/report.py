"""Report: what a run measured; shows and saves itself."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from camapp.errors import UsageError
from camapp.files import write_atomically

if TYPE_CHECKING:
    import pyarrow as pa

FILES = ("values.parquet", "values.csv", "summary.csv", "summary.json", "curves.png", "maps.jpg", "report.md")


@dataclass(frozen=True)
class Value:
    """One metric of one map.

    Args:
        picture: the picture's name.
        method: the method's name, or the baseline's.
        layer: the layer explained; empty for a baseline.
        metric: the metric's name.
        value: NaN where the metric is undefined.
        target: the class explained.
        label: its name.
        reason: why the map is blank or was refused, or None.
    """

    picture: str
    method: str
    layer: str
    metric: str
    value: float
    target: int
    label: str
    reason: str | None


@dataclass(frozen=True)
class SummaryRow:
    """One metric of a method at a layer, over all pictures.

    Args:
        kind: "method" or "baseline".
        method: its name.
        layer: the layer explained; empty for a baseline.
        metric: the metric's name.
        title: what a table calls it.
        scale: its unit, "%" or nothing.
        direction: "higher" or "lower" is better.
        value: over all pictures; NaN where undefined.
        standard_error: of the mean over pictures; NaN where the value is no mean, or that of one picture.
        pictures: how many have a value.
        blanks: how many maps were blank.
        refused: how many pictures the method refused.
        seconds_per_picture: time to make a map by this method alone, of the first batch; NaN for a baseline.
    """

    kind: str
    method: str
    layer: str
    metric: str
    title: str
    scale: str
    direction: str
    value: float
    standard_error: float
    pictures: int
    blanks: int
    refused: int
    seconds_per_picture: float


@dataclass(frozen=True)
class Curve:
    """A metric's curve, the mean over pictures."""

    kind: str
    method: str
    layer: str
    metric: str
    title: str
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True)
class Failure:
    """A picture that was skipped, and why."""

    picture: str
    reason: str


@dataclass(frozen=True, eq=False)
class Example:
    """A picture as the model sees it, with its maps.

    Args:
        picture: its name.
        label: the class explained.
        rgb: (h, w, 3) uint8.
        boxes: the object's edges in its pixels.
        maps: (h, w) in [0, 1], by method and layer.
    """

    picture: str
    label: str
    rgb: np.ndarray
    boxes: list[list[float]]
    maps: dict[tuple[str, str], np.ndarray]


@dataclass(frozen=True, eq=False)
class Report:
    """What a run measured.

    Args:
        model: the model's name.
        weights: where its weights come from, their SHA-256, and whether they are random.
        settings: what was asked for.
        versions: the versions the values depend on.
        pictures: the names of the pictures measured.
        failures: the pictures skipped, and why.
        values: one a picture, method, layer and metric.
        summary: one a method, layer and metric; the baselines last.
        curves: of the metrics that have one.
        metrics: what each metric measures, by its name.
        examples: the first pictures with their maps.
        notes: what was done, and what to know about the values.
    """

    model: str
    weights: dict[str, Any]
    settings: dict[str, Any]
    versions: dict[str, str]
    pictures: tuple[str, ...]
    failures: tuple[Failure, ...]
    values: tuple[Value, ...]
    summary: tuple[SummaryRow, ...]
    curves: tuple[Curve, ...]
    metrics: dict[str, str]
    examples: tuple[Example, ...]
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        methods = ", ".join(dict.fromkeys(row.method for row in self.summary if row.kind == "method"))
        return f"Report({self.model}, {len(self.pictures)} pictures: {methods})"

    def _repr_markdown_(self) -> str:
        return self.markdown()

    def table(self) -> pa.Table:
        """The summary, a row a method, layer and metric; ``.to_pandas()`` makes a data frame of it."""
        return _arrow(self.summary, SummaryRow)

    def values_table(self) -> pa.Table:
        """The values, a row a picture, method, layer and metric."""
        return _arrow(self.values, Value)

    def markdown(self) -> str:
        """The report as text: what was measured, a table, notes, and how to read it."""
        from camapp.evaluation.markdown import report_text

        return report_text(self)

    def to_dict(self) -> dict[str, Any]:
        """Everything but values and pictures, ready for JSON, which has no NaN: undefined is None."""
        return {
            "model": self.model,
            "weights": self.weights,
            "settings": self.settings,
            "pictures": len(self.pictures),
            "failures": [asdict(one) for one in self.failures],
            "summary": [_without_nan(row) for row in self.summary],
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
        folder = Path(folder)
        check_folder(folder, overwrite=overwrite)
        contents = self._contents()
        folder.mkdir(parents=True, exist_ok=True)
        written: list[Path] = []
        try:
            for name, content in contents.items():
                written.append(folder / name)
                write_atomically(folder / name, content)
        except BaseException:  # interrupted, or the disk is full: half a report is none
            for path in written:
                path.unlink(missing_ok=True)
            raise
        for name in set(FILES) - contents.keys():
            (folder / name).unlink(missing_ok=True)  # of the report before this one
        return written

    def _contents(self) -> dict[str, bytes]:
        from camapp.evaluation.figures import curves_png, maps_jpg

        drawn = {"curves.png": curves_png(self.curves), "maps.jpg": maps_jpg(self.examples)}
        return {
            "values.parquet": _parquet(self.values_table()),
            "values.csv": _csv(self.values, Value),
            "summary.csv": _csv(self.summary, SummaryRow),
            "summary.json": json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False).encode(),
            **{name: content for name, content in drawn.items() if content is not None},
            "report.md": self.markdown().encode(),
        }


def check_folder(folder: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Make sure that a report can be written into a folder, before hours are spent on it.

    Raises:
        UsageError: there is a report in it already, or it is a file.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; a report is a folder. Give another name.")
    there = [name for name in FILES if (folder / name).exists()]
    if there and not overwrite:
        raise UsageError(
            f"{folder} holds a report already ({', '.join(there[:3])}{', ...' if len(there) > 3 else ''}). Give "
            "another folder, or replace it: --overwrite (overwrite=True)."
        )


def _arrow(rows: Iterable[Value | SummaryRow], kind: type[Value] | type[SummaryRow]) -> pa.Table:
    """Columns by the dataclass's fields; what is undefined is null."""
    import pyarrow as pa

    types = {"float": pa.float64(), "int": pa.int64(), "str": pa.string(), "str | None": pa.string()}
    rows = list(rows)
    columns = {}
    for field in fields(kind):
        column = [_none_for_nan(getattr(row, field.name)) for row in rows]
        columns[field.name] = pa.array(column, types[str(field.type)])
    return pa.table(columns)


def _parquet(table: pa.Table) -> bytes:
    import pyarrow.parquet

    buffer = io.BytesIO()
    pyarrow.parquet.write_table(table, buffer)
    return buffer.getvalue()


def _csv(rows: Iterable[Value | SummaryRow], kind: type[Value] | type[SummaryRow]) -> bytes:
    """RFC 4180 but for its line ends; what is undefined is empty. Floats are written so that they read back equal."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    names = [field.name for field in fields(kind)]
    writer.writerow(names)
    writer.writerows([_none_for_nan(getattr(row, name)) for name in names] for row in rows)
    return buffer.getvalue().encode()


def _without_nan(row: SummaryRow) -> dict[str, Any]:
    return {name: _none_for_nan(value) for name, value in vars(row).items()}


def _none_for_nan(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value
