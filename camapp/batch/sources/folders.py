"""Inputs that are files of their own: of a folder, of a pattern, of a list, of standard input."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from urllib.parse import unquote

from camapp.batch.records import Item
from camapp.batch.sources.names import first_folder, name_of
from camapp.batch.sources.store_failures import shown
from camapp.batch.sources.stores import (
    Found,
    is_url,
    open_from_its_start,
    placed,
    protocol_of,
    store_of,
    without_query,
)
from camapp.errors import UsageError
from camapp.sources.text import list_lines

# What a folder may hold in place of pictures.
_IN_PATTERNS = (".tar", ".zip", ".parquet")


def in_folder(folder: str) -> Iterator[Item]:
    """The pictures of a folder and its subfolders, labelled with the first of these.

    Raises:
        UsageError: it cannot be searched, or holds no picture.
    """
    item = None
    for found in store_of(folder).pictures(folder):
        item = item_of(found)
        yield item
    if item is None:
        raise UsageError(
            f"There is no picture in the folder {shown(folder)} (no file that ends in .jpg, .png, .webp, ...)."
            f"{_other_sources(folder)}"
        )


def item_of(found: Found, *, labelled: bool = True) -> Item:
    """The input that a store holds, labelled with its first folder."""
    name = name_of(found.name)
    return Item(name, found.path, None, None, found.size, first_folder(name) if labelled else None, None, found.stamp)


def _other_sources(folder: str) -> str:
    """What to give instead of a folder of archives or tables."""
    endings = (os.path.splitext(name)[1].lower() for name in sorted(store_of(folder).names(folder)))
    found = next((ending for ending in endings if ending in _IN_PATTERNS), None)
    return f' For the {found} files in it, give "{os.path.join(folder, "*" + found)}".' if found else ""


def matching(pattern: str) -> list[Found]:
    """The files that a pattern matches, sorted.

    Raises:
        UsageError: it matches none.
    """
    hits = store_of(pattern).matching(pattern)
    if not hits:
        raise UsageError(f'No file matches "{shown(pattern)}". Check the pattern; a folder is searched without one.')
    return hits


def in_list(path: str) -> Iterator[Item]:
    """The files that a list names, a line each, from the list's own folder.

    Raises:
        UsageError: it is not UTF-8, or names no picture.
    """
    folder = os.path.dirname(without_query(path))
    item = None
    for line in list_lines(path, open_from_its_start):
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
        path: what it says, a path or a URL; may lie anywhere.
        folder: where relative paths count from.
        label: of the input.
        target: the class to explain.
    """
    inside = os.path.join(folder, "")
    name = path[len(inside) :] if path.startswith(inside) else path
    if "://" in name and is_url(name):
        name = _name_in_url(name)
    return Item(name_of(name), placed(folder, path), label=label, target=target)


def _name_in_url(url: str) -> str:
    """The host or bucket of a URL and the path there; no password, and no query, which may be a signature."""
    name = re.sub(r"^[^/@]*@", "", without_query(url).partition("://")[2])
    return unquote(name) if protocol_of(url) in ("http", "https") else name
