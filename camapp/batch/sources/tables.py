"""Inputs that a table names: paths, labels and the classes to explain, from CSV, TSV and Parquet."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from camapp.batch.records import Item
from camapp.batch.sources.folders import named_by_user
from camapp.batch.sources.stores import open_from_its_start, without_query
from camapp.errors import UsageError, did_you_mean
from camapp.sources import text

PARQUET_SUFFIXES = (".parquet", ".pq")
# "target" is the class to explain here, and elsewhere a label.
TARGET_COLUMNS = ("target", "target_class")
LABEL_COLUMNS = tuple(name for name in text.LABEL_COLUMNS if name not in TARGET_COLUMNS)
_ROWS_AT_ONCE = 4096


@dataclass(frozen=True)
class Columns:
    """Which columns of a table hold what; found by their usual names, in any case, where they are None.

    Args:
        path: where a picture is; by default the first of "path", "file", "filename", ... that is there.
        label: its label; by default "label", "class", "class_name" or "category", or none.
        target: the class to explain in it, an index or a name; by default "target" or "target_class", or none.
    """

    path: str | None = None
    label: str | None = None
    target: str | None = None

    def __bool__(self) -> bool:
        return any(name is not None for name in (self.path, self.label, self.target))


def in_table(path: str, columns: Columns) -> Iterator[Item]:
    """The inputs that a table names, a row each; relative paths count from its own folder.

    Args:
        path: a .csv, .tsv or .parquet.
        columns: which are read.

    Raises:
        UsageError: it is no table, or a wrong one.
    """
    folder = os.path.dirname(without_query(path))
    item = None
    read = _parquet if without_query(path).lower().endswith(PARQUET_SUFFIXES) else _delimited
    for place, label, target in read(path, columns):
        item = named_by_user(place, folder, label, target)
        yield item
    if item is None:
        raise UsageError(f"The table {path} names no picture. Give one a row.")


def _delimited(path: str, columns: Columns) -> Iterator[tuple[str, str | None, str | None]]:
    rows = text.table_rows(path, open_from_its_start)
    _, heads = next(rows, (1, []))
    at = _chosen(path, heads, columns)
    for number, row in rows:
        if len(row) != len(heads):
            raise UsageError(
                f"The table {path} is wrong in line {number}: {len(row)} cells under {len(heads)} columns. Quote cells "
                'that hold the separator: "one, two.jpg".'
            )
        place, label, target = (row[index].strip() if index is not None else "" for index in at)
        if not place:
            raise UsageError(f"The table {path} has no path in line {number}. Fill it in, or remove the line.")
        yield place, label or None, target or None


def _parquet(path: str, columns: Columns) -> Iterator[tuple[str, str | None, str | None]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with open_from_its_start(path) as opened, pq.ParquetFile(opened) as file:
            schema = file.schema_arrow
            at = _chosen(path, schema.names, columns)
            for index in at:
                if index is not None and pa.types.is_nested(schema.field(index).type):
                    raise UsageError(
                        f'The column "{schema.names[index]}" of {path} holds {schema.field(index).type}, not text. '
                        "Write the pictures to files, or name a column of paths (--path-column, Columns(path=...))."
                    )
            names = [schema.names[index] if index is not None else None for index in at]
            for name in names:
                if schema.names.count(name) > 1:
                    raise UsageError(f'The table {path} has two columns "{name}". Rename one of them.')
            number = 0
            for batch in file.iter_batches(_ROWS_AT_ONCE, columns=list({name for name in names if name is not None})):
                absent: list[Any] = [None] * batch.num_rows
                cells = [batch.column(name).to_pylist() if name is not None else absent for name in names]
                for row in zip(*cells, strict=True):
                    number += 1
                    place, label, target = map(_cell, row)
                    if place is None:
                        raise UsageError(
                            f"The table {path} has no path in row {number}. Fill it in, or remove the row."
                        )
                    yield place, label, target
    except (pa.ArrowException, OSError) as error:
        raise UsageError(f"{path} cannot be read as Parquet: {error}. Write it again.") from error


def _chosen(path: str, heads: Sequence[str], columns: Columns) -> tuple[int, int | None, int | None]:
    """Where the columns of path, label and target are."""
    plain = [head.strip().lower() for head in heads]
    place = _column(path, heads, plain, "path", columns.path, text.PATH_COLUMNS)
    if place is None:
        raise UsageError(
            f'The table {path} has no column "path"; it has {_listed(heads)}. Name the one that holds the paths with '
            "--path-column (Columns(path=...)), or rename it."
        )
    label = _column(path, heads, plain, "label", columns.label, LABEL_COLUMNS)
    return place, label, _column(path, heads, plain, "target", columns.target, TARGET_COLUMNS)


def _column(
    path: str, heads: Sequence[str], plain: list[str], kind: str, named: str | None, usual: Sequence[str]
) -> int | None:
    if named is None:
        return next((plain.index(name) for name in usual if name in plain), None)
    wanted = named.strip()
    if wanted in heads:
        return list(heads).index(wanted)
    if wanted.lower() in plain:
        return plain.index(wanted.lower())
    raise UsageError(
        f'The table {path} has no column "{named}" (--{kind}-column); it has {_listed(heads)}.'
        f"{did_you_mean(named, heads)}"
    )


def _listed(heads: Sequence[str]) -> str:
    return ", ".join(heads) if any(head.strip() for head in heads) else "none: its first line is empty"


def _cell(value: Any) -> str | None:
    if isinstance(value, float):
        if math.isnan(value):
            return None
        value = int(value) if value.is_integer() else value  # pandas turns whole numbers with gaps into floats
    if isinstance(value, bytes):
        value = os.fsdecode(value)
    return None if value is None else str(value).strip() or None
