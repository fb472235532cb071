"""MATLAB 5.0 ``.mat``: a variable a layer, and the cell arrays ``names`` and ``labels``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from camapp.errors import UsageError
from camapp.features.formats.header import ENTRY, Header
from camapp.features.formats.names import stored_names
from camapp.features.table import FeatureTable
from camapp.files import whole_file

# What a variable of this format may take (MATLAB: "MAT-File Versions", version 7).
LARGEST_BYTES = 2**31 - 1
# MATLAB's namelengthmax is 63; a number may follow.
LONGEST_NAME = 56
KEYWORDS = {
    "break",
    "case",
    "catch",
    "classdef",
    "continue",
    "else",
    "elseif",
    "end",
    "for",
    "function",
    "global",
    "if",
    "otherwise",
    "parfor",
    "persistent",
    "return",
    "spmd",
    "switch",
    "try",
    "while",
}


def write(table: FeatureTable, path: Path) -> list[Path]:
    """Write a table; ``load`` and ``jsondecode(camapp)`` open it in MATLAB.

    A layer's variable is called like it, with ``_`` for what MATLAB does not accept in a name: ``blocks.0`` is
    ``blocks_0``. MATLAB has no half precision in files: such values are stored as single, and are half again once
    read back; none is changed by that. NumPy's axes stay in their order, with pictures first.

    Raises:
        UsageError: a layer that takes more than the 2 GiB of this format.
    """
    from scipy.io import savemat

    stored = stored_names(table.layers, _allowed, taken=("names", "labels", ENTRY))
    values = {name: _storable(layer, table[layer]) for layer, name in stored.items()}
    texts = {"names": _cell(table.names)} | ({} if table.labels is None else {"labels": _cell(table.labels)})
    with whole_file(path) as part, part.open("wb") as file:
        savemat(file, {ENTRY: Header.of(table, stored, rows=True).to_json(), **texts, **values})
    return [path]


def read(path: Path) -> FeatureTable:
    """Read a table; names and labels from the header, since SciPy's cell arrays of texts are its own."""
    from scipy.io import loadmat

    with path.open("rb") as file:
        head = loadmat(file, variable_names=[ENTRY])
        header = Header.from_json(head[ENTRY].item() if ENTRY in head else None)
        file.seek(0)
        found = loadmat(file, variable_names=[layer.stored for layer in header.layers])
    return header.table({layer.name: found[layer.stored].astype(layer.dtype, copy=False) for layer in header.layers})


def _allowed(layer: str) -> str:
    name = re.sub(r"[^A-Za-z0-9_]", "_", layer)[:LONGEST_NAME]
    return f"layer_{name}"[:LONGEST_NAME] if not re.match("[A-Za-z]", name) or name in KEYWORDS else name


def _storable(layer: str, values: NDArray[Any]) -> NDArray[Any]:
    stored = values.astype(np.float32) if values.dtype == np.float16 else values
    if stored.nbytes > LARGEST_BYTES:
        raise UsageError(
            f'"{layer}" takes {stored.nbytes} bytes, and a variable of a .mat file ends at 2 GiB. Write HDF5, which '
            "MATLAB opens with h5read, or fewer rows."
        )
    return stored


def _cell(texts: Sequence[str]) -> NDArray[Any]:
    cell = np.empty((len(texts), 1), object)
    cell[:, 0] = texts
    return cell
