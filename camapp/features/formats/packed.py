"""packed: a table of features as one file of bytes, in any format; several files become a .zip."""

from __future__ import annotations

import importlib.util
import os
import tempfile
from pathlib import Path

from camapp.errors import UsageError, did_you_mean
from camapp.features.analysis.projector import save_projector
from camapp.features.formats import FORMATS, save_features
from camapp.features.table import FeatureTable
from camapp.files import zipped_folder

# What a format needs beside camapp's own dependencies: the module, and how to get it.
_NEEDS = {"hdf5": ("h5py", 'HDF5 needs h5py: pip install "camapp[hdf5]"')}
PROJECTOR = "projector"


def missing_for(format: str) -> str | None:
    """What to install before a format can be written; None where nothing is missing."""
    module, advice = _NEEDS.get(format, (None, None))
    return advice if module is not None and importlib.util.find_spec(module) is None else None


def check_packable(format: str) -> None:
    """Make sure that a table can be packed, before it is made.

    Raises:
        UsageError: no such format, or a package is missing that writes it.
    """
    known = (*FORMATS, PROJECTOR)
    if format not in known:
        raise UsageError(f'No format is called "{format}".{did_you_mean(format, known)} There are {", ".join(known)}.')
    missing = missing_for(format)
    if missing is not None:
        raise UsageError(missing)


def packed(
    table: FeatureTable, format: str, stem: str = "features", folder: str | os.PathLike[str] | None = None
) -> tuple[str, bytes]:
    """A table as one file.

    Args:
        table: the features.
        format: one of ``FORMATS``, or ``"projector"`` for the files of the Embedding Projector, a folder a layer where
            there are several.
        stem: what the file is called, without its ending.
        folder: in which files are written on the way, and removed; the system's own for such files by default.

    Returns:
        The file's name, and its bytes. Formats of several files are packed into a .zip.

    Raises:
        UsageError: no such format, or a package is missing that writes it.
    """
    check_packable(format)
    with tempfile.TemporaryDirectory(dir=folder) as made:
        inside = Path(made)
        if format == PROJECTOR:
            _save_projector(table, inside)
            return f"{stem}.projector.zip", zipped_folder(inside)
        suffix = FORMATS[format].suffixes[0] if FORMATS[format].suffixes else ""
        written = save_features(table, inside / f"{stem}{suffix}", format)
        if len(written) == 1 and written[0].parent == inside:
            return written[0].name, written[0].read_bytes()
        return f"{stem}.{format}.zip", zipped_folder(inside)


def _save_projector(table: FeatureTable, folder: Path) -> None:
    for number, layer in enumerate(table.layers, 1):
        inside = folder if len(table.layers) == 1 else folder / f"layer-{number}"
        save_projector(inside, table.flat(layer), table.names, table.labels)
