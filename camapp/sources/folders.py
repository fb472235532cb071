"""The pictures of a folder and of those in it, one after the other, in a fixed order."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from camapp.errors import UsageError
from camapp.sources.seen import Seen

# Which files of a folder are taken for pictures; what a file really is, its content says when it is decoded.
SUFFIXES = frozenset(
    f".{ending}"
    for ending in re.split(r"\W+", "jpg jpeg jpe jfif png webp gif avif tif tiff bmp heic heif ppm pgm pbm pnm")
)


def is_picture_name(name: str) -> bool:
    """Whether a file's name, with or without its folder, ends like a picture's."""
    return name[name.rfind(".") :].lower() in SUFFIXES


def walk_pictures(folder: str) -> Iterator[str]:
    """The pictures of a folder and its subfolders: files that end like pictures, whatever they hold.

    Hidden files and folders are left out. Links to folders are followed; a folder that several links lead to is
    searched once, where it comes first. Held in memory are the names of one folder at each depth, no more.

    Args:
        folder: exists.

    Returns:
        Paths relative to the folder, sorted by name folder by folder (``a/z.jpg`` before ``a.jpg``).

    Raises:
        UsageError: a folder may not be read.
    """
    seen = Seen()
    open_folders = [("", *_entries(folder, seen))]
    while open_folders:
        place, names, folders = open_folders[-1]
        for name in names:
            if name in folders:
                inside = f"{place}{name}{os.sep}"
                open_folders.append((inside, *_entries(os.path.join(folder, inside), seen)))
                break
            yield place + name
        else:
            open_folders.pop()


def _entries(folder: str, seen: Seen) -> tuple[Iterator[str], set[str]]:
    """What is to be visited in a folder, sorted, and which of it are folders."""
    names: list[str] = []
    folders: set[str] = set()
    try:
        status = os.stat(folder)
        if not seen.add(f"{status.st_dev}:{status.st_ino}"):  # a link back to where we have been
            return iter(names), folders
        with os.scandir(folder) as entries:
            for entry in entries:
                name = entry.name
                if name.startswith("."):
                    continue
                if _is_folder(entry):
                    folders.add(name)
                elif not is_picture_name(name):
                    continue
                names.append(name)
    except OSError as error:
        raise UsageError(
            f"The folder {folder} cannot be searched ({error.strerror}). Change its permissions, or leave it out."
        ) from error
    return iter(sorted(names)), folders


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False
