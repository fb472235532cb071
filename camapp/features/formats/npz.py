"""NumPy's ``.npz``: an array a layer, and the arrays ``names`` and ``labels``; no pickle in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED, ZipFile, ZipInfo

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from camapp.features.formats.header import ENTRY, Header
from camapp.features.formats.names import stored_names
from camapp.features.table import FeatureTable
from camapp.files import whole_file


def write(table: FeatureTable, path: Path) -> list[Path]:
    """Write a table, each array straight from memory; ``np.load`` opens it.

    Not compressed: deflate shrinks floats by a few percent at a tenth of the speed. The dates in it are fixed, so the
    same table gives the same bytes.
    """
    stored = stored_names(table.layers, _allowed, taken=("names", "labels", ENTRY, "file"))
    texts = {"names": table.names, "labels": table.labels, ENTRY: (Header.of(table, stored).to_json(),)}
    with whole_file(path) as part, ZipFile(part, "w", ZIP_STORED) as archive:
        for layer, name in stored.items():
            _put(archive, name, table[layer])
        for name, values in texts.items():
            if values is not None:
                _put(archive, name, np.array(values, dtype=np.str_))
    return [path]


def read(path: Path) -> FeatureTable:
    """Read a table, each array straight into its place."""
    with ZipFile(path) as archive:
        header = Header.from_json(_texts(archive, ENTRY)[0] if f"{ENTRY}.npy" in archive.namelist() else None)
        features = {
            layer.name: _values(archive, layer.stored, header.shape(layer), layer.dtype) for layer in header.layers
        }
        labels = _texts(archive, "labels") if header.labelled else None
        return header.table(features, _texts(archive, "names"), labels)


def _allowed(layer: str) -> str:
    # Programs that unpack the archive take slashes for folders, and np.load takes the ending off.
    name = layer.replace("/", "_").replace("\\", "_")
    return name.removesuffix(".npy") + "_npy" if name.endswith(".npy") else name


def _put(archive: ZipFile, name: str, values: NDArray[Any]) -> None:
    with archive.open(ZipInfo(f"{name}.npy"), "w", force_zip64=True) as file:
        npy_format.write_array(file, values, allow_pickle=False)


def _texts(archive: ZipFile, name: str) -> list[str]:
    with archive.open(f"{name}.npy") as file:
        values = npy_format.read_array(file, allow_pickle=False)
    if values.dtype.kind != "U" or values.ndim != 1:
        raise ValueError(f"{name} is {values.dtype}, not text")
    return list(values.tolist())


def _values(archive: ZipFile, name: str, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    with archive.open(f"{name}.npy") as file:
        # The header first: a damaged one may ask for more than there is memory.
        version = npy_format.read_magic(file)
        head = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
        found, fortran, kind = head(file)
        if found != shape or kind != np.dtype(dtype):
            raise ValueError(f"{name} is {found} {kind}, not {shape} {dtype}")
        values = np.empty(shape, kind, order="F" if fortran else "C")
        flat = values.reshape(-1, order="F" if fortran else "C").view(np.uint8)
        room = flat.data
        while room and (count := file.readinto(room)):  # type: ignore[attr-defined]
            room = room[count:]
    if room:
        raise EOFError(f"{name} lacks {len(room)} of {flat.size} bytes")
    return values
