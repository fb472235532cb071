"""Which pictures a source means: a folder, a file, a pattern, a list of files, or a table of files and labels."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from camapp.errors import UsageError
from camapp.sources.folders import walk_pictures
from camapp.sources.text import (
    LABEL_COLUMNS,
    LIST_SUFFIXES,
    PATH_COLUMNS,
    TABLE_SUFFIXES,
    list_lines,
    printable,
    table_rows,
)


@dataclass(frozen=True)
class PictureFile:
    """One picture of a source.

    Args:
        path: where it is.
        name: what reports call it: its path inside the source's folder, with forward slashes; unique in a run.
        label: the subfolder of the source's folder that it lies in, or what the table says; None where there is none.
    """

    path: Path
    name: str
    label: str | None = None


Source: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str] | PictureFile]


def find_pictures(source: Source, limit: int | None = None) -> list[PictureFile]:
    """The pictures of a source, in a fixed order, none twice.

    Args:
        source: a folder (searched with its subfolders, sorted by name), a picture file, a pattern such as
            ``"photos/*.jpg"`` (``**`` takes subfolders in), a text file (.txt, .lst, .list) with one path a line, a
            table (.csv, .tsv) with a column ``path`` and perhaps a column ``label``, or a sequence of all these. Paths
            in a list or table count from the folder that it lies in.
        limit: take only the first so many.

    Raises:
        UsageError: there is nothing at the source, or no picture in it; a limit that leaves none; or a picture that is
            there twice with different labels.
    """
    if limit is not None:
        check_count("limit", limit, 1)
    parts = [source] if isinstance(source, str | os.PathLike) else list(source)
    if not parts:
        raise UsageError("The source names no picture. Give a folder, a file, a pattern or a list of files.")
    found: dict[Path, PictureFile] = {}
    for part in parts:
        for picture in [part] if isinstance(part, PictureFile) else _pictures_of(str(os.fspath(part))):
            place = Path(os.path.abspath(picture.path))
            first = found.setdefault(place, picture)
            if first.label is None:
                found[place] = replace(first, label=picture.label)
            elif picture.label not in (None, first.label):
                raise UsageError(
                    f"{picture.path} is there twice, as {first.label!r} and as {picture.label!r}. Give it one label."
                )
    pictures = list(found.values())[:limit]
    shared = {name for name, count in Counter(_printable(Path(one.name)) for one in pictures).items() if count > 1}
    named: list[PictureFile] = []
    used: set[str] = set()
    for one in pictures:
        name = _printable(Path(one.name))
        name = _unused(_printable(one.path) if name in shared else name, used)
        named.append(replace(one, name=name, label=_text(one.label)))
    return named


def _unused(name: str, used: set[str]) -> str:
    """``name``, or the same with a number behind it; names of files that are no Unicode may be printed alike."""
    number, free = 1, name
    while free in used:
        number += 1
        free = f"{name} ({number})"
    used.add(free)
    return free


def check_count(name: str, value: object, least: int, most: int | None = None) -> None:
    """Refuse what is no whole number, one below ``least``, or one above ``most``.

    Raises:
        UsageError: it is.
    """
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or value < least or (most is not None and value > most):  # type: ignore[operator]
        upto = f"of {least} or more" if most is None else f"from {least} to {most}"
        raise UsageError(f"{name} = {value!r} cannot be meant; give a whole number {upto}.")


def _pictures_of(source: str) -> list[PictureFile]:
    path = Path(source).expanduser()
    if path.is_dir():
        return _in_folder(path)
    if path.suffix.lower() in LIST_SUFFIXES and path.is_file():
        return _in_list(path)
    if path.suffix.lower() in TABLE_SUFFIXES and path.is_file():
        return _in_table(path)
    if path.suffix.lower() in (".zip", ".tar") and path.is_file():
        raise UsageError(
            f"{path} is an archive, which only exports read: camapp heatmaps, or camapp features --parts "
            "(camapp.export_heatmaps, camapp.export_features). Or unpack it, and give the folder."
        )
    if path.exists() or not glob.has_magic(source):
        return [PictureFile(path, path.name)]  # one that is missing is reported like one that cannot be read
    hits = [Path(hit) for hit in sorted(glob.glob(str(path), recursive=True)) if not Path(hit).is_dir()]
    if not hits:
        raise UsageError(f'No file matches "{source}". Check the pattern; a folder is searched without one.')
    return _named_from(hits, Path(os.path.commonpath([hit.parent for hit in hits])))


def _in_folder(folder: Path) -> list[PictureFile]:
    names = list(walk_pictures(str(folder)))
    if not names:
        raise UsageError(f"There is no picture in the folder {folder} (no file that ends in .jpg, .png, .webp, ...).")
    return [
        replace(one, label=PurePosixPath(one.name).parts[0] if "/" in one.name else None)
        for one in _named_from([folder / name for name in names], folder)
    ]


def _in_table(path: Path) -> list[PictureFile]:
    rows = table_rows(path)
    heads = [cell.strip().lower() for cell in next(rows, (1, []))[1]]
    column = next((heads.index(name) for name in PATH_COLUMNS if name in heads), None)
    if column is None:
        raise UsageError(
            f'The table {path} has no column "path": its first line is {", ".join(heads) or "empty"}. Name the columns '
            '"path" and "label" there.'
        )
    labels = next((heads.index(name) for name in LABEL_COLUMNS if name in heads), None)
    found = []
    for number, row in rows:
        if len(row) != len(heads) or not row[column].strip():
            raise UsageError(
                f"The table {path} is wrong in line {number}: {len(row)} cells under {len(heads)} columns, or no path."
            )
        name = row[column].strip()
        label = row[labels].strip() if labels is not None else ""
        found.append(PictureFile(path.parent / Path(name).expanduser(), Path(name).as_posix(), label or None))
    if not found:
        raise UsageError(f"The table {path} names no picture. Give one a line under its first line.")
    return found


def _in_list(path: Path) -> list[PictureFile]:
    names = list(list_lines(path))
    if not names:
        raise UsageError(f"The list {path} names no picture. Give one path a line.")
    return [PictureFile(path.parent / Path(name).expanduser(), Path(name).as_posix()) for name in names]


def _named_from(paths: list[Path], folder: Path) -> list[PictureFile]:
    return [PictureFile(path, path.relative_to(folder).as_posix()) for path in paths]


def _printable(path: Path) -> str:
    return printable(path.as_posix())


def _text(label: str | None) -> str | None:
    return None if label is None else printable(label)
