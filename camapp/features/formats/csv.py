"""CSV: a row a picture and a column a value, with the header beside it in ``NAME.csv.json``."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from camapp.errors import UsageError
from camapp.features.formats.header import Header, foreign
from camapp.features.formats.names import value_columns
from camapp.features.table import FeatureTable
from camapp.files import file_sha256, whole_file, write_atomically

SIDECAR = ".json"


def write(table: FeatureTable, path: Path) -> list[Path]:
    """Write ``path``, ``label`` where there are labels, and ``layer[0]`` ... for each value.

    Each float has the fewest digits that read back equal in its own type, also by way of a double, as most readers
    do: for half precision about 5 and for single about 9, not 17. The type is in the sidecar, and restored. "nan" does
    not tell one NaN from another.

    Two files cannot be replaced in one step. So the sidecar names its CSV by the SHA-256, and between the renames
    it describes the old one and the new one.
    """
    sidecar = path.with_name(path.name + SIDECAR)
    with whole_file(path) as part:
        with part.open("wb") as file:
            file.writelines(csv_lines(table, table.layers))
        header = json.loads(Header.of(table, {layer: layer for layer in table.layers}, guarded=False).to_json())
        before = _versions(sidecar) if path.exists() else {}
        now = {file_sha256(part): header}
        write_atomically(sidecar, _sidecar_bytes({**before, **now}))
    if before:
        write_atomically(sidecar, _sidecar_bytes(now))
    return [path, sidecar]


def read(path: Path) -> FeatureTable:
    """Read a CSV by its sidecar, a row at a time."""
    versions = _versions(path.with_name(path.name + SIDECAR))
    if not versions:
        raise foreign()
    facts = versions.get(file_sha256(path))
    if facts is None:
        raise UsageError(
            f"not the file that {path.name}{SIDECAR} describes: it was changed or cut short since. Copy both files "
            "again; or read it with another library, and make a FeatureTable of its columns."
        )
    header = Header.from_json(json.dumps(facts))
    features = {layer.name: np.empty(header.shape(layer), layer.dtype) for layer in header.layers}
    ends = np.cumsum([1 + header.labelled, *(math.prod(layer.info.size) for layer in header.layers)])
    names, labels = [], []
    for number, row in enumerate(csv_rows(path)):
        names.append(row[0])
        labels += row[1 : 1 + header.labelled]
        for start, end, values in zip(ends, ends[1:], features.values(), strict=False):
            values[number] = np.array(row[start:end], np.float64).reshape(values.shape[1:])
    return header.table(features, names, labels)


def csv_lines(table: FeatureTable, layers: Sequence[str]) -> Iterator[bytes]:
    """The CSV of a table and the values of some layers, in UTF-8; RFC 4180 but for its line ends."""
    columns = [column for layer in layers for column in value_columns(layer, table.info[layer].size)]
    titles = ["path", *(["label"] * (table.labels is not None)), *map(_title, columns)]
    yield f"{','.join(titles)}\n".encode()
    flat = [table.flat(layer) for layer in layers]
    labels = [[]] * len(table) if table.labels is None else [[label] for label in table.labels]
    for number, (name, label) in enumerate(zip(table.names, labels, strict=True)):
        fields = [*map(_quoted, [name, *label]), *(text for values in flat for text in _texts(values[number]))]
        yield f"{','.join(fields)}\n".encode()


def csv_rows(path: Path) -> Iterator[list[str]]:
    """The rows of a CSV without its first line."""
    with path.open(encoding="utf-8", newline="") as file:
        file.readline()
        yield from csv.reader(file, strict=True)


def _title(column: str) -> str:
    # In one line, whatever a layer is called, so that the rows begin with the second.
    line = " ".join(column.splitlines())
    return _quoted(line) if '"' in line or "," in line else line


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _texts(values: NDArray[Any]) -> list[str]:
    texts: list[str] = values.astype(str).tolist()
    # Rounded to a double and then to its own type, the shortest text may come to the number beside.
    back = np.array(texts, np.float64).astype(values.dtype)
    for place in np.flatnonzero((back != values) & ~np.isnan(values)):
        texts[place] = repr(float(values[place]))
    return texts


def _versions(sidecar: Path) -> dict[str, Any]:
    try:
        versions = json.loads(sidecar.read_bytes())["csv"]
    except (FileNotFoundError, ValueError, LookupError, TypeError):
        return {}
    return versions if isinstance(versions, dict) else {}


def _sidecar_bytes(versions: dict[str, Any]) -> bytes:
    return json.dumps({"csv": versions}, indent=1).encode()


def _blocks(file: Any) -> Iterable[bytes]:
    return iter(lambda: file.read(2**20), b"")
