"""The file formats of feature tables: each reads back equal what it wrote."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from camapp.errors import UsageError, did_you_mean
from camapp.features.formats import csv, hdf5, mat, npy, npz, parquet, safetensors
from camapp.features.formats.parquet import write_stream
from camapp.features.formats.parts import find_parts, join_tables
from camapp.features.table import FeatureTable
from camapp.files import put_aside

__all__ = ["FORMATS", "Format", "check_target", "holds_features", "load_features", "save_features", "write_stream"]

DEFAULT = "parquet"


@dataclass(frozen=True)
class Format:
    """A file format.

    Args:
        title: what it is called in a sentence.
        suffixes: of its files, the first for new ones; none for a folder.
        signature: what its files hold, and where: bytes and offset; None for a folder.
        write: writes a table to a path, whole or not at all, and tells the files.
        read: the inverse; a UsageError says what is wrong with the file, any other error that it is damaged.
        beside: suffixes of further files beside it.
    """

    title: str
    suffixes: tuple[str, ...]
    signature: tuple[bytes, int] | None
    write: Callable[[FeatureTable, Path], list[Path]]
    read: Callable[[Path], FeatureTable]
    beside: tuple[str, ...] = ()


FORMATS = {
    "parquet": Format("a Parquet file", (".parquet",), (b"PAR1", 0), parquet.write, parquet.read),
    "npy": Format("a folder of .npy files", (), None, npy.write, npy.read),
    "npz": Format("an .npz file", (".npz",), (b"PK\x03\x04", 0), npz.write, npz.read),
    "safetensors": Format(
        "a safetensors file", (".safetensors",), (b"\0\0\0\0{", 4), safetensors.write, safetensors.read
    ),
    "hdf5": Format("an HDF5 file", (".h5", ".hdf5"), (b"\x89HDF\r\n\x1a\n", 0), hdf5.write, hdf5.read),
    "csv": Format("a CSV file", (".csv",), (b"path,", 0), csv.write, csv.read, beside=(csv.SIDECAR,)),
    "mat": Format("a MATLAB file", (".mat",), (b"MATLAB 5.0 MAT-file", 0), mat.write, mat.read),
}


def save_features(
    table: FeatureTable,
    path: str | os.PathLike[str],
    format: str | None = None,
    *,
    overwrite: bool = False,
) -> list[Path]:
    """Write a table, whole or not at all: what was there stays until the new one is complete.

    Args:
        table: what to write.
        path: the file, or the folder of ``format="npy"``; without a suffix it gets that of the format. Folders above it
            are made.
        format: one of ``FORMATS``; None for that of the suffix, and Parquet where there is none.
        overwrite: replace what is there.

    Returns:
        The files.

    Raises:
        UsageError: an unknown format or suffix, one of another format, or something is there already.
    """
    name, path = check_target(path, format, overwrite=overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    return FORMATS[name].write(table, path)


def holds_features(path: str | os.PathLike[str]) -> bool:
    """Whether there are features at a path rather than pictures; a .csv may be either, and is taken for a list."""
    path = Path(path).expanduser()
    if path.is_dir():
        return bool(find_parts(path))
    return path.is_file() and _by_suffix(path) not in (None, "csv")


def check_target(
    path: str | os.PathLike[str], format: str | None = None, *, overwrite: bool = False
) -> tuple[str, Path]:
    """Make sure that a table can be written to a path, before hours are spent on it.

    Returns:
        The name of the format and the path, with its suffix.

    Raises:
        UsageError: as ``save_features``.
    """
    name, path = _target(Path(path).expanduser(), format)
    _refuse_existing(path, FORMATS[name], overwrite)
    return name, path


def load_features(path: str | os.PathLike[str]) -> FeatureTable:
    """Read a table that ``save_features`` wrote, equal to what it was: values bit for bit.

    Args:
        path: a file of any of ``FORMATS``, a folder of format ``"npy"``, or the folder of an export of features, whose
            parts are joined.

    Raises:
        UsageError: there is none; it is damaged, of something else, under the suffix of another format, or of a later
            version of camapp.
    """
    path = Path(path).expanduser()
    parts = find_parts(path)
    if parts:
        return join_tables([load_features(part) for part in parts])
    name = _found_format(path)
    try:
        return FORMATS[name].read(path)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error
    except MemoryError:
        raise
    except Exception as error:  # the parsers of seven formats raise anything on damaged bytes
        if isinstance(error, OSError) and error.errno is not None:
            raise  # of the operating system
        raise UsageError(
            f"{path}: damaged, cut short, or not {FORMATS[name].title} at all ({type(error).__name__}: {error}). Copy "
            "it again, or extract the features again."
        ) from error


def _target(path: Path, name: str | None) -> tuple[str, Path]:
    of_suffix = _by_suffix(path)
    if name is not None and name not in FORMATS:
        raise UsageError(f'No format is called "{name}".{did_you_mean(name, FORMATS)} There are {", ".join(FORMATS)}.')
    if name is None and path.suffix and of_suffix is None:
        raise UsageError(
            f'No format has the suffix "{path.suffix}" of {path}. There are {_suffixes()}; or name one of them: '
            f'format="parquet". A folder of .npy files is format="npy".'
        )
    if name is not None and of_suffix not in (None, name):
        raise UsageError(
            f'{path} has the suffix of {FORMATS[str(of_suffix)].title}, but format="{name}" was asked for. '
            "Leave one out."
        )
    if name is None and path.is_dir():
        raise UsageError(f'{path} is a folder. Name a file in it, or give format="npy" to write a folder.')
    name = name or of_suffix or DEFAULT
    suffixes = FORMATS[name].suffixes
    return name, path if path.suffix or not suffixes else path.with_name(path.name + suffixes[0])


def _refuse_existing(path: Path, form: Format, overwrite: bool) -> None:
    if path.exists() and path.is_dir() != (not form.suffixes):
        is_now = "a file" if form.signature is None else "a folder"
        raise UsageError(f"{path} is {is_now} and cannot become {form.title}. Give another name.")
    there = [one for one in (path, *(path.with_name(path.name + end) for end in form.beside)) if one.exists()]
    empty = path.is_dir() and not any(path.iterdir())
    if there and not empty and not overwrite:
        raise UsageError(
            f"{there[0]} is there already. Give another name, or replace it: overwrite=True (--overwrite)."
        )


def _found_format(path: Path) -> str:
    if not path.exists():
        aside = put_aside(path)
        hint = f" An earlier one is whole in {aside[-1]}: rename it." if aside else " Check the path."
        raise UsageError(f"There are no features at {path}.{hint}")
    if path.is_dir():
        return "npy"
    with path.open("rb") as file:
        head = file.read(64)
    if not head:
        raise UsageError(f"{path} is empty (0 bytes). Copy it again, or extract the features again.")
    of_suffix, of_content = _by_suffix(path), _by_content(head)
    if of_suffix and of_content and of_suffix != of_content:
        suffix = FORMATS[of_content].suffixes[0]
        raise UsageError(
            f"{path} is {FORMATS[of_content].title} under the suffix of {FORMATS[of_suffix].title}. Rename it to "
            f"{path.with_suffix(suffix).name}."
        )
    if of_suffix is None and of_content is None:
        raise UsageError(f"{path} is no file of features: it begins with {head[:16]!r}. camapp reads {_suffixes()}.")
    return str(of_suffix or of_content)


def _by_suffix(path: Path) -> str | None:
    return next((name for name, form in FORMATS.items() if path.suffix.lower() in form.suffixes), None)


def _by_content(head: bytes) -> str | None:
    for name, form in FORMATS.items():
        if form.signature is not None and head.startswith(*form.signature):
            return name
    return None


def _suffixes() -> str:
    return ", ".join(suffix for form in FORMATS.values() for suffix in form.suffixes)
