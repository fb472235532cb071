"""The plan of an export: every input in order, with the stem of its outputs; a row group of the file is a shard."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from camapp.batch.ledger.names import Stems
from camapp.batch.records import Item
from camapp.files import whole_file

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

# How many inputs are turned into columns at once.
ROWS_AT_ONCE = 2**14


class Fingerprint(Protocol):
    """What tells one source from another: all its items are added, in order."""

    def add(self, item: Item) -> object:
        """Take an item into account."""

    def hexdigest(self) -> str:
        """The digest of all items added."""


class Planned(NamedTuple):
    """One input as it was planned.

    Args:
        number: of the input in the source, from 0.
        item: the input.
        stem: of its outputs, relative to the export's folder, with forward slashes and without an ending.
    """

    number: int
    item: Item
    stem: str


class Plan:
    """A plan that was written, read a shard at a time.

    Args:
        path: of the file.
        shard_size: how many inputs a shard has; the last may have fewer.
    """

    def __init__(self, path: Path, shard_size: int) -> None:
        import pyarrow.parquet as pq

        self._shard_size = shard_size
        self._file: pq.ParquetFile = pq.ParquetFile(path)

    def items(self, shard: int) -> list[Planned]:
        """The inputs of a shard, in order; reads its row group only."""
        rows = self._file.read_row_group(shard, use_threads=False)
        columns = {name: rows.column(name).to_pylist() for name in rows.column_names}
        stems = columns.pop("stem")
        for name in ("name", "path", "member", "label", "target"):
            columns[name] = [_text(value) for value in columns[name]]
        first = shard * self._shard_size
        return [
            Planned(first + at, Item(**{name: column[at] for name, column in columns.items()}), stem)
            for at, stem in enumerate(stems)
        ]

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def write_plan(path: Path, items: Iterable[Item], fingerprint: Fingerprint, shard_size: int) -> int:
    """Write a plan while the items are listed, holding few of them at a time.

    Args:
        path: the file, there whole or not at all.
        items: in the order of the source.
        fingerprint: each item is added to it.
        shard_size: inputs a row group, 1 or more.

    Returns:
        How many items there are.
    """
    import pyarrow.parquet as pq

    stems, count, remaining = Stems(), 0, iter(items)
    rows = shard_size * max(1, ROWS_AT_ONCE // shard_size)
    with whole_file(path) as part, pq.ParquetWriter(part, _schema(), **_OPTIONS) as writer:
        while some := list(islice(remaining, rows)):
            for item in some:
                fingerprint.add(item)
            writer.write_table(_table(some, stems), row_group_size=shard_size)
            count += len(some)
    return count


def fingerprint_again(items: Iterator[Item], fingerprint: Fingerprint) -> tuple[str, int]:
    """The fingerprint of a source that is listed again, and how many inputs it has."""
    count = 0
    for item in items:
        fingerprint.add(item)
        count += 1
    return fingerprint.hexdigest(), count


_OPTIONS = {
    "compression": "zstd",
    "compression_level": 1,
    "use_dictionary": ["path", "label", "target"],
    "write_statistics": False,  # a million inputs are thousands of row groups, whose footer each worker reads
}


def _schema() -> pa.Schema:
    import pyarrow as pa

    # Bytes, since names of files need not be Unicode and must come back as they were.
    texts = {name: pa.binary() for name in ("name", "path", "member", "label", "target")}
    return pa.schema({**texts, "offset": pa.int64(), "length": pa.int64(), "stem": pa.string()})


def _table(items: list[Item], stems: Stems) -> pa.Table:
    import pyarrow as pa

    schema = _schema()
    columns = []
    for field in schema:
        if field.name == "stem":
            values: list[object] = [stems.stem(item.name) for item in items]
        elif field.type == pa.binary():
            values = [_bytes(getattr(item, field.name)) for item in items]
        else:
            values = [getattr(item, field.name) for item in items]
        columns.append(pa.array(values, field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode("utf-8", "surrogatepass")


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "surrogatepass")
