"""CSV: a row a picture and a column a value, with the header beside it in ``NAME.csv.json``."""

from __future__ import annotations

import csv
import hashlib
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from camapp.errors import UsageError
from camapp.features.formats.header import Header, foreign
from camapp.features.formats.names import value_columns
from camapp.features.table import FeatureTable
from camapp.files import whole_file, write_atomically

SIDECAR = ".json"
# What is read and parsed at a time, or one row where that is longer.
BLOCK_BYTES = 4 * 2**20
# The longest text of a float, "-1.7976931348623157e+308", with a comma.
FLOAT_BYTES = 25


def write(table: FeatureTable, path: Path) -> list[Path]:
    """Write ``path``, ``label`` where there are labels, and ``layer[0]`` ... for each value.

    Each float has the fewest digits that read back equal in its own type: half and single precision need up to 5 and 9, not
    17. The type is in the sidecar; other readers make doubles of them, which become the same values once cast back.
    "nan" does not tell one NaN from another.

    Two files cannot be replaced in one step. So the sidecar names its CSV by the SHA-256, and between the renames
    it describes the old one and the new one.
    """
    sidecar = path.with_name(path.name + SIDECAR)
    with whole_file(path) as part:
        digest = _write_rows(table, part)
        header = json.loads(Header.of(table, {layer: layer for layer in table.layers}, guarded=False).to_json())
        before = _versions(sidecar) if path.exists() else {}
        write_atomically(sidecar, _sidecar_bytes({**before, digest: header}))
    if before:
        write_atomically(sidecar, _sidecar_bytes({digest: header}))
    return [path, sidecar]


def read(path: Path) -> FeatureTable:
    """Read a CSV by its sidecar."""
    versions = _versions(path.with_name(path.name + SIDECAR))
    if not versions:
        raise foreign()
    header = versions.get(_sha256(path))
    if header is None:
        raise UsageError(
            f"not the file that {path.name}{SIDECAR} describes: it was changed or cut short since. Copy both files again; "
            "or read it with another library, and make a FeatureTable of its columns."
        )
    with path.open("rb") as file:
        file.readline()
        return _read_rows(file, Header.from_json(json.dumps(header)))


def row_text(*texts: str | None) -> str:
    """Fields in quotes, which may hold commas, quotes and line ends (RFC 4180); without those that are None."""
    return ",".join('"' + text.replace('"', '""') + '"' for text in texts if text is not None)


def index_text(table: FeatureTable) -> str:
    """The CSV of a table without its values; ``read_index`` is the inverse."""
    lines = ["path" if table.labels is None else "path,label"]
    lines += [row_text(*row) for row in _rows(table)]
    return "\n".join(lines) + "\n"


def read_index(path: Path) -> tuple[list[str], list[str] | None]:
    """The names and labels of a CSV without values."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, strict=True))
    names = [row[0] for row in rows[1:]]
    return names, [row[1] for row in rows[1:]] if rows[0] == ["path", "label"] else None


def _rows(table: FeatureTable) -> Iterable[tuple[str, str | None]]:
    return zip(table.names, table.labels or [None] * len(table), strict=True)


def _write_rows(table: FeatureTable, path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for line in _lines(table):
            content = line.encode()
            digest.update(content)
            file.write(content)
    return digest.hexdigest()


def _lines(table: FeatureTable) -> Iterable[str]:
    columns = [column for layer, info in table.info.items() for column in value_columns(layer, info.size)]
    # In one line, whatever the layers are called, so that the rows begin with the second.
    titles = [row_text(column) if set(column) & set('",') else column for column in columns]
    titles = [" ".join(title.splitlines()) for title in titles]
    yield ",".join(["path", *(["label"] * (table.labels is not None)), *titles]) + "\n"
    flat = [table.flat(layer) for layer in table.layers]
    for number, row in enumerate(_rows(table)):
        values = [",".join(values[number].astype(str).tolist()) for values in flat]
        yield ",".join([row_text(*row), *values]) + "\n"


def _read_rows(file: BinaryIO, header: Header) -> FeatureTable:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    sizes = [math.prod(layer.info.size) for layer in header.layers]
    texts = 1 + header.labelled
    # Arrow parses halves as singles; the fewest digits of a half come back to it.
    floats = [pa.float64() if layer.dtype == "float64" else pa.float32() for layer in header.layers]
    types = [pa.string()] * texts + [kind for kind, size in zip(floats, sizes, strict=True) for _ in range(size)]
    columns = [str(number) for number in range(len(types))]
    features = {layer.name: np.empty(header.shape(layer), layer.dtype) for layer in header.layers}
    names: list[str] = []
    labels: list[str] = []
    if not header.count:
        return header.table(features, names, labels)
    batches = arrow_csv.open_csv(
        file,
        read_options=arrow_csv.ReadOptions(
            column_names=columns, block_size=max(BLOCK_BYTES, 2 * FLOAT_BYTES * sum(sizes)), use_threads=False
        ),
        parse_options=arrow_csv.ParseOptions(newlines_in_values=True),
        convert_options=arrow_csv.ConvertOptions(column_types=dict(zip(columns, types, strict=True)), null_values=[]),
    )
    for batch in batches:
        _fill(list(features.values()), len(names), batch, texts)
        names += batch.column(0).to_pylist()
        labels += batch.column(1).to_pylist() if header.labelled else []
    return header.table(features, names, labels)


def _fill(features: list[NDArray[Any]], start: int, batch: Any, column: int) -> None:
    rows = slice(start, start + batch.num_rows)
    for values in features:
        flat = values.reshape(len(values), -1)
        for place in range(flat.shape[1]):
            flat[rows, place] = batch.column(column + place).to_numpy()
        column += flat.shape[1]


def _versions(sidecar: Path) -> dict[str, Any]:
    try:
        versions = json.loads(sidecar.read_text("utf-8"))["csv"]
        return versions if isinstance(versions, dict) else {}
    except (FileNotFoundError, ValueError, LookupError, TypeError):
        return {}


def _sidecar_bytes(versions: dict[str, Any]) -> bytes:
    return json.dumps({"csv": versions}, indent=1).encode()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() if hasattr(hashlib, "file_digest") else _digest(file)


def _digest(file: BinaryIO) -> str:
    digest = hashlib.sha256()
    while block := file.read(2**20):
        digest.update(block)
    return digest.hexdigest()
