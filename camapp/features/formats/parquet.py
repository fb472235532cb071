"""Parquet: a row a picture, a column of fixed-size lists a layer; written in groups, from any number of tables."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from camapp.errors import UsageError
from camapp.features.formats.header import ENTRY, Header
from camapp.features.formats.names import stored_names
from camapp.features.table import FeatureTable
from camapp.files import whole_file

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

# What one row group holds of values: enough to compress and to read at speed, little beside a table.
GROUP_BYTES = 32 * 2**20
GROUP_ROWS = 2**16


def write(table: FeatureTable, path: Path) -> list[Path]:
    """Write a table; see ``write_stream``."""
    return write_stream([table], path)


def write_stream(tables: Iterable[FeatureTable], path: Path) -> list[Path]:
    """Write the rows of several tables into one file, one after the other, holding one of them at a time.

    Columns: ``path``, ``label`` where there are labels, and one of fixed-size lists a layer, flattened in the order of
    C. The header is JSON under the key ``camapp`` of the file's metadata.

    Values are split into byte streams and compressed by Zstandard: the low bytes of floats are noise, which no
    compressor shrinks, but the signs and exponents of a layer are much alike and shrink once they lie together. Of
    EfficientNet-Lite0, dense features came to 0.84 of their size (0.93 without the split, 1.0 with Snappy), a ReLU map
    of 79 % zeros to 0.27 (0.22, 0.28), at some 300 MB/s. Dictionaries and statistics of floats would give nothing.

    Args:
        tables: alike in layers, types, infos, provenance, and in having labels; no name twice.
        path: the file, there whole or not at all.

    Raises:
        UsageError: the tables are none, not alike, or have a name in common.
    """
    import pyarrow.parquet as pq

    remaining = iter(tables)
    first = next(remaining, None)
    if first is None:
        raise UsageError("No tables to write. Give at least one; it may have no rows.")
    stored = stored_names(first.layers, taken=("path", "label"))
    header = Header.empty(first, stored)
    schema = _schema(first, stored)
    seen: set[str] = set()
    with whole_file(path) as part, pq.ParquetWriter(part, schema, **_options(stored)) as writer:
        for table in chain([first], remaining):
            header = header.extended(table)
            _refuse_seen(table, seen)
            _write_groups(writer, table, schema)
        writer.add_key_value_metadata({ENTRY: header.to_json()})
    return [path]


def read(path: Path) -> FeatureTable:
    """Read a table, a row group at a time."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        header = Header.from_json((file.metadata.metadata or {}).get(ENTRY.encode()))
        if file.metadata.num_rows != header.count:
            raise ValueError(f"{file.metadata.num_rows} rows of {header.count}")
        names: list[str] = []
        labels: list[str] = []
        features = {layer.name: np.empty(header.shape(layer), layer.dtype) for layer in header.layers}
        for group in range(file.num_row_groups):
            rows = file.read_row_group(group, use_threads=False)
            for layer in header.layers:
                _fill(features[layer.name], len(names), rows.column(layer.stored))
            names += rows.column("path").to_pylist()
            labels += rows.column("label").to_pylist() if header.labelled else []
    return header.table(features, names, labels)


def _schema(table: FeatureTable, stored: dict[str, str]) -> pa.Schema:
    import pyarrow as pa

    texts = [pa.field("path", pa.string())] + [pa.field("label", pa.string())] * (table.labels is not None)
    lists = [
        pa.field(stored[layer], pa.list_(pa.from_numpy_dtype(table[layer].dtype), table.flat(layer).shape[1]))
        for layer in table.layers
    ]
    return pa.schema(texts + lists)


def _options(stored: dict[str, str]) -> dict[str, Any]:
    return {
        "compression": "zstd",
        "compression_level": 1,
        "use_dictionary": ["label"],
        "write_statistics": ["path", "label"],
        "use_byte_stream_split": [f"{column}.list.element" for column in stored.values()],
    }


def _refuse_seen(table: FeatureTable, seen: set[str]) -> None:
    twice = seen.intersection(table.names)
    if twice:
        raise UsageError(
            f"Two of the tables have the picture {min(twice)!r}. Each needs a name of its own in one file."
        )
    seen.update(table.names)


def _write_groups(writer: pq.ParquetWriter, table: FeatureTable, schema: pa.Schema) -> None:
    import pyarrow as pa

    row_bytes = sum(table.flat(layer).shape[1] * table[layer].itemsize for layer in table.layers)
    rows = max(1, min(GROUP_ROWS, GROUP_BYTES // row_bytes))
    for start in range(0, len(table), rows):
        piece = table.rows(slice(start, start + rows))
        columns = [pa.array(texts, pa.string()) for texts in (piece.names, piece.labels) if texts is not None]
        for layer in piece.layers:
            flat = np.ascontiguousarray(piece.flat(layer))
            columns.append(pa.FixedSizeListArray.from_arrays(pa.array(flat.reshape(-1)), flat.shape[1]))
        writer.write_table(pa.table(columns, schema=schema), row_group_size=len(piece))


def _fill(array: NDArray[Any], start: int, column: pa.ChunkedArray) -> None:
    for chunk in column.chunks:
        values = chunk.flatten().to_numpy(zero_copy_only=False)
        array[start : start + len(chunk)] = values.reshape(len(chunk), *array.shape[1:])
        start += len(chunk)
