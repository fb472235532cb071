"""Which pictures a source means: a folder, a file, a pattern, or a list of files."""

from __future__ import annotations

import glob
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import TypeAlias

from camapp.errors import UsageError

Source: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

# Which files of a folder are taken for pictures; what a file really is, its content says when it is decoded.
SUFFIXES = frozenset(
    f".{ending}"
    for ending in re.split(r"\W+", "jpg jpeg jpe jfif png webp gif avif tif tiff bmp heic heif ppm pgm pbm pnm")
)
LIST_SUFFIXES = (".txt", ".lst", ".list")


@dataclass(frozen=True)
class PictureFile:
    """One picture of a source.

    Args:
        path: where it is.
        name: what reports call it: its path inside the source's folder, with forward slashes; unique in a run.
    """

    path: Path
    name: str


def find_pictures(source: Source, limit: int | None = None) -> list[PictureFile]:
    """The pictures of a source, in a fixed order, none twice.

    Args:
        source: a folder (searched with its subfolders, sorted by name), a picture file, a pattern such as
            ``"photos/*.jpg"`` (``**`` takes subfolders in), a text file (.txt, .lst, .list) with one path a line, or a
            sequence of all these. Paths in a list count from the folder that the list lies in.
        limit: take only the first so many.

    Raises:
        UsageError: there is nothing at the source, or no picture in it; or a limit that leaves none.
    """
    if limit is not None:
        check_count("limit", limit, 1)
    parts = [source] if isinstance(source, str | os.PathLike) else list(source)
    if not parts:
        raise UsageError("The source names no picture. Give a folder, a file, a pattern or a list of files.")
    found: dict[Path, PictureFile] = {}
    for part in parts:
        for picture in _pictures_of(str(os.fspath(part))):
            found.setdefault(Path(os.path.abspath(picture.path)), picture)
    pictures = list(found.values())[:limit]
    shared = {name for name, count in Counter(one.name for one in pictures).items() if count > 1}
    return [PictureFile(one.path, _printable(one.path if one.name in shared else Path(one.name))) for one in pictures]


def check_count(name: str, value: object, least: int) -> None:
    """Refuse what is no whole number, or one below ``least``.

    Raises:
        UsageError: it is.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise UsageError(f"{name} = {value!r} cannot be meant; give a whole number of {least} or more.")


def _pictures_of(source: str) -> list[PictureFile]:
    path = Path(source).expanduser()
    if path.is_dir():
        return _in_folder(path)
    if path.suffix.lower() in LIST_SUFFIXES and path.is_file():
        return _in_list(path)
    if path.exists() or not glob.has_magic(source):
        return [PictureFile(path, path.name)]  # one that is missing is reported like one that cannot be read
    hits = [Path(hit) for hit in sorted(glob.glob(str(path), recursive=True)) if not Path(hit).is_dir()]
    if not hits:
        raise UsageError(f'No file matches "{source}". Check the pattern; a folder is searched without one.')
    return _named_from(hits, Path(os.path.commonpath([hit.parent for hit in hits])))


def _in_folder(folder: Path) -> list[PictureFile]:
    paths = [
        Path(place) / name
        for place, folders, names in os.walk(folder)
        for name in names
        if Path(name).suffix.lower() in SUFFIXES and not name.startswith(".")
    ]
    if not paths:
        raise UsageError(f"There is no picture in the folder {folder} (no file that ends in .jpg, .png, .webp, ...).")
    return _named_from(sorted(paths), folder)


def _in_list(path: Path) -> list[PictureFile]:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not a list of pictures: it is not UTF-8 text. Give one path a line.") from error
    names = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not names:
        raise UsageError(f"The list {path} names no picture. Give one path a line.")
    return [PictureFile(path.parent / Path(name).expanduser(), Path(name).as_posix()) for name in names]


def _named_from(paths: list[Path], folder: Path) -> list[PictureFile]:
    return [PictureFile(path, path.relative_to(folder).as_posix()) for path in paths]


def _printable(path: Path) -> str:
    """The path as text that any file can hold; names of files need not be Unicode."""
    return os.fsencode(path.as_posix()).decode("utf-8", "backslashreplace")
