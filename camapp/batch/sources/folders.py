"""Inputs that are files of their own: of a folder, of a pattern, of a list, of standard input."""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from camapp.batch.records import Item
from camapp.batch.sources.names import first_folder, name_of
from camapp.errors import UsageError
from camapp.sources.folders import walk_pictures
from camapp.sources.text import list_lines

# What a folder may hold in place of pictures.
_IN_PATTERNS = (".tar", ".zip", ".parquet")


def in_folder(folder: str) -> Iterator[Item]:
    """The pictures of a folder and its subfolders, labelled with the first of these.

    Raises:
        UsageError: it cannot be searched, or holds no picture.
    """
    item = None
    for path in walk_pictures(folder):
        name = name_of(path)
        item = Item(name, os.path.join(folder, path), label=first_folder(name))
        yield item
    if item is None:
        raise UsageError(
            f"There is no picture in the folder {folder} (no file that ends in .jpg, .png, .webp, ...)."
            f"{_other_sources(folder)}"
        )


def _other_sources(folder: str) -> str:
    """What to give instead of a folder of archives or tables."""
    endings = (os.path.splitext(name)[1].lower() for name in sorted(os.listdir(folder)))
    found = next((ending for ending in endings if ending in _IN_PATTERNS), None)
    return f' For the {found} files in it, give "{os.path.join(folder, "*" + found)}".' if found else ""


def matching(pattern: str) -> list[str]:
    """The files that a pattern matches, sorted.

    Raises:
        UsageError: it matches none.
    """
    hits = [hit for hit in sorted(glob.iglob(pattern, recursive=True)) if not os.path.isdir(hit)]
    if not hits:
        raise UsageError(f'No file matches "{pattern}". Check the pattern; a folder is searched without one.')
    return hits


def fixed_folder(pattern: str) -> str:
    """The part of a pattern before the first folder or file that it leaves open; ends in a slash, or is empty."""
    folder = pattern
    while glob.has_magic(folder):
        folder = os.path.dirname(folder)
    return os.path.join(folder, "") if folder else ""


def in_list(path: str) -> Iterator[Item]:
    """The files that a list names, a line each, from the list's own folder.

    Raises:
        UsageError: it is not UTF-8, or names no picture.
    """
    folder = os.path.dirname(path)
    item = None
    for line in list_lines(Path(path)):
        item = named_by_user(line, folder)
        yield item
    if item is None:
        raise UsageError(f"The list {path} names no picture. Give one path a line.")


def from_standard_input() -> Iterator[Item]:
    """The files that standard input names, a line each, as they are: ``find photos -name "*.jpg" | ...``.

    Raises:
        UsageError: there is none, or it names no picture.
    """
    item = None
    for line in sys.stdin.buffer if sys.stdin else ():
        if name := os.fsdecode(line.removeprefix(b"\xef\xbb\xbf").rstrip(b"\r\n")):
            item = named_by_user(name, os.getcwd())
            yield item
    if item is None:
        raise UsageError('Standard input names no picture. Pipe one path a line into it, or give a source but "-".')


def named_by_user(path: str, folder: str, label: str | None = None, target: str | None = None) -> Item:
    """An input that a list or a table names.

    Args:
        path: what it says; may lie anywhere.
        folder: where relative paths count from.
        label: of the input.
        target: the class to explain.
    """
    place = os.path.join(folder, os.path.expanduser(path) if path.startswith("~") else path)
    inside = os.path.join(folder, "")
    name = name_of(path[len(inside) :] if path.startswith(inside) else path)
    return Item(name, place, label=label, target=target)
