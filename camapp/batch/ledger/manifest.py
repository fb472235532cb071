"""The manifest of an export: what became of every input, as a Parquet table."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from camapp.batch.records import Row
from camapp.errors import UsageError
from camapp.files import whole_file
from camapp.sources.text import printable

if TYPE_CHECKING:
    import pyarrow as pa

MANIFEST = "manifest.parquet"
# Says that a file is a manifest, and of which form; in the metadata of its schema.
MARK = {b"camapp.manifest": b"1"}
# Enough rows to compress well, few enough for a filter to skip most of a million.
GROUP_ROWS = 2**15


def manifest_schema() -> pa.Schema:
    r"""The columns of a manifest: a row an input, in the order of the source.

    ``number`` (int64): of the input in the source, from 0.
    ``name`` (string): its path inside the source.
    ``path`` (string): the file, or the archive that it lies in.
    ``member`` (string): its name in the archive; null for a file of its own.
    ``label`` (string): the subfolder, or what a table says; null where there is none.
    ``target`` (string): the class to explain that a table names; null where there is none.
    ``status`` (string): ``done`` or ``failed``.
    ``reason`` (string): why it failed; empty where it did not.
    ``width``, ``height`` (int32): of the picture as it is shown, in pixels; 0 where it could not be read.
    ``notes`` (list of string): what was done to read it, and reasons for blank maps.
    ``predictions`` (list of struct: ``index`` int32, ``label`` string, ``probability`` double): the likeliest classes,
    best first; a probability that is no finite number is null.
    ``explained`` (list of string): the targets that were explained, in the order of the files.
    ``files`` (list of string): what was written, relative to the export's folder.
    ``shard`` (int32): the shard that it was done in, from 0.
    ``seconds`` (double): how long it took; the only column that differs from run to run.

    Bytes of names that are no Unicode are written out (``\xff``).
    """
    import pyarrow as pa

    guess = pa.struct({"index": pa.int32(), "label": pa.string(), "probability": pa.float64()})
    return pa.schema(
        {
            "number": pa.int64(),
            **{name: pa.string() for name in ("name", "path", "member", "label", "target", "status", "reason")},
            **{name: pa.int32() for name in ("width", "height")},
            "notes": pa.list_(pa.string()),
            "predictions": pa.list_(guess),
            **{name: pa.list_(pa.string()) for name in ("explained", "files")},
            "shard": pa.int32(),
            "seconds": pa.float64(),
        },
        metadata=MARK,
    )


def rows_to_table(rows: Iterable[Row]) -> pa.Table:
    """Rows as a table with the columns of ``manifest_schema``."""
    import pyarrow as pa

    rows = list(rows)
    schema = manifest_schema()
    columns = [_array([_READ[name](row) for row in rows], schema.field(name).type) for name in schema.names]
    return pa.Table.from_arrays(columns, schema=schema)


def write_manifest(path: Path, shards: Iterable[pa.Table]) -> int:
    """Write the rows of all shards into one file, holding one row group at a time.

    The bytes depend on the rows alone, not on how they came in tables.

    Args:
        path: the file, there whole or not at all.
        shards: tables as ``rows_to_table`` makes them, in order.

    Returns:
        How many rows were written.
    """
    import pyarrow.parquet as pq

    count = 0
    with whole_file(path) as part, pq.ParquetWriter(part, manifest_schema(), **PARQUET_OPTIONS) as writer:
        for group in _regrouped(shards):
            writer.write_table(group, row_group_size=GROUP_ROWS)
            count += len(group)
    return count


def read_manifest(
    out: str | os.PathLike[str], *, columns: Sequence[str] | None = None, filters: Any = None
) -> pa.Table:
    """The manifest of a finished export; see ``manifest_schema`` for its columns.

    Args:
        out: the export's folder.
        columns: which to read; None reads all.
        filters: rows to keep, as ``pyarrow.parquet.read_table`` takes them: ``[("status", "=", "failed")]``. Row groups
            without such rows are not read.

    Raises:
        UsageError: there is no finished export in the folder.
    """
    import pyarrow.parquet as pq

    path = _manifest_of(out)
    # partitioning=None: "class=dog" in the name of a folder above would become a column (pyarrow 26).
    return pq.read_table(path, columns=None if columns is None else list(columns), filters=filters, partitioning=None)


def iterate_manifest(
    out: str | os.PathLike[str], *, columns: Sequence[str] | None = None, filters: Any = None
) -> Iterator[dict[str, Any]]:
    """The rows of a finished export's manifest, one after the other, holding few of them at a time.

    Args:
        out: the export's folder.
        columns: which to read; None reads all.
        filters: as of ``read_manifest``.

    Yields:
        A row as a dictionary by column.

    Raises:
        UsageError: there is no finished export in the folder.
    """
    import pyarrow.dataset
    import pyarrow.parquet as pq

    rows = pyarrow.dataset.dataset(_manifest_of(out), format="parquet")
    wanted = None if filters is None else pq.filters_to_expression(filters)
    for batch in rows.to_batches(columns=columns and list(columns), filter=wanted, batch_size=4096, batch_readahead=2):
        yield from batch.to_pylist()


def is_manifest(path: Path) -> bool:
    """Whether a file is a manifest that can be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return MARK.items() <= (pq.read_schema(path).metadata or {}).items()
    except (OSError, pa.ArrowInvalid):
        return False


PARQUET_OPTIONS: dict[str, Any] = {
    "compression": "zstd",
    "compression_level": 3,
    "version": "2.6",
    "write_statistics": True,
    # All that repeats; names, files and seconds do not.
    "use_dictionary": [
        *("path", "label", "target", "status", "reason", "width", "height", "shard"),
        *("notes.list.element", "explained.list.element"),
        *("predictions.list.element.index", "predictions.list.element.label"),
    ],
}

_READ: dict[str, Callable[[Row], Any]] = {
    **{name: attrgetter(f"item.{name}") for name in ("name", "path", "member", "label", "target")},
    **{name: attrgetter(name) for name in ("number", "status", "reason", "width", "height")},
    "notes": lambda row: row.notes,
    "predictions": lambda row: [
        {"index": guess.index, "label": guess.label, "probability": _finite(guess.probability)}
        for guess in row.predictions
    ],
    **{name: attrgetter(name) for name in ("explained", "files", "shard")},
    "seconds": lambda row: _finite(row.seconds),
}


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:
        return pa.array(_printable(values), kind)


def _printable(value: Any) -> Any:
    """Text that any file can hold, whatever it lies in; signs that are no Unicode are written out."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {key: _printable(one) for key, one in value.items()}
    return [_printable(one) for one in value] if isinstance(value, list | tuple) else value


def _regrouped(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in tables of ``GROUP_ROWS``, the last of what is left."""
    import pyarrow as pa

    held: list[pa.Table] = []
    count = 0
    for table in tables:
        held.append(table)
        count += len(table)
        while count >= GROUP_ROWS:
            joined = pa.concat_tables(held)
            yield joined.slice(0, GROUP_ROWS).combine_chunks()
            held, count = [joined.slice(GROUP_ROWS)], count - GROUP_ROWS
    if count:
        yield pa.concat_tables(held).combine_chunks()


def _manifest_of(out: str | os.PathLike[str]) -> Path:
    path = Path(out) / MANIFEST
    if path.is_file():
        return path
    if (Path(out) / ".camapp").is_dir():
        raise UsageError(f"The export in {out} is not finished. Run it again with the same settings; it goes on.")
    raise UsageError(f"{out} holds no finished export: there is no {MANIFEST} in it. Give the folder of an export.")


def _finite(number: float) -> float | None:
    return float(number) if math.isfinite(number) else None
