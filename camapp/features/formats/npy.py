"""A folder of one ``LAYER.npy`` a layer, ``index.csv`` and ``features.json``: for arrays larger than memory."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from camapp.errors import UsageError
from camapp.features.formats.csv import csv_lines, csv_rows
from camapp.features.formats.header import Header, foreign
from camapp.features.formats.names import stored_names
from camapp.features.table import FeatureTable
from camapp.files import safe_name, whole_folder

HEADER, INDEX = "features.json", "index.csv"


def write(table: FeatureTable, path: Path) -> list[Path]:
    """Write a folder; ``np.load("LAYER.npy", mmap_mode="r")`` opens a layer without reading it.

    Raises:
        UsageError: the folder to replace holds something that is not of its features.
    """
    _refuse_strangers(path)
    stored = stored_names(table.layers, safe_name)
    with whole_folder(path) as part:
        for layer, name in stored.items():
            np.save(part / f"{name}.npy", table[layer], allow_pickle=False)
        (part / INDEX).write_bytes(b"".join(csv_lines(table, ())))
        (part / HEADER).write_bytes(Header.of(table, stored).to_json().encode())
    return [path / name for name in _files(stored.values())]


def read(path: Path) -> FeatureTable:
    """Read a folder, a layer at a time."""
    if not (path / HEADER).exists():
        raise foreign()
    header = Header.from_json((path / HEADER).read_bytes())
    features = {}
    for layer in header.layers:
        values = np.load(path / f"{layer.stored}.npy", mmap_mode="r" if header.count else None, allow_pickle=False)
        features[layer.name] = np.array(values)
    rows = list(csv_rows(path / INDEX))
    return header.table(features, [row[0] for row in rows], [row[1] for row in rows] if header.labelled else None)


def _files(stored: Iterable[str]) -> list[str]:
    return [*(f"{name}.npy" for name in stored), INDEX, HEADER]


def _refuse_strangers(path: Path) -> None:
    if not path.exists() or not os.listdir(path):
        return
    try:
        header = Header.from_json((path / HEADER).read_bytes())
        own = _files([layer.stored for layer in header.layers])
    except (OSError, ValueError, LookupError, TypeError):  # UsageError is a ValueError
        own = []
    strangers = sorted(set(os.listdir(path)) - set(own))
    if strangers:
        raise UsageError(
            f"{path} holds files that are not of its features, such as {strangers[0]!r}, and replacing the folder "
            "would delete them. Give another folder, or move them."
        )
