"""Stores: where sources lie, this machine's disks or whatever a URL leads to; found, listed and opened one way."""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple, Protocol

from camapp.errors import DecodeError, StoreError
from camapp.images.decode import Limits, read_bytes
from camapp.sources.folders import walk_pictures

# Two letters at least: "C://" is a drive. Chains ("zip://a.jpg::s3://...") are none: archives are read here.
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_OF_THIS_MACHINE = ("file", "local")


class Found(NamedTuple):
    """What a store holds at a place.

    Args:
        path: the place, a path or a URL.
        name: relative to what was searched, with the store's own separators.
        size: in bytes; None where that is not known yet.
        stamp: what tells this version of it from others; None where that is not known yet, and on this machine, where
            one look at the file tells.
        is_folder: whether it holds others.
    """

    path: str
    name: str
    size: int | None = None
    stamp: str | None = None
    is_folder: bool = False


class Store(Protocol):
    """Where files are. Failures of the store itself are a ``StoreError``; those of this machine, an ``OSError``."""

    def info(self, path: str) -> Found | None:
        """What is at a place; None where nothing is."""

    def pictures(self, folder: str) -> Iterator[Found]:
        """What ends like a picture in a folder and its subfolders and is not hidden, by name, folder by folder."""

    def matching(self, pattern: str) -> list[Found]:
        """The files that a pattern matches, sorted; their names count from its first part that is not open."""

    def names(self, folder: str) -> list[str]:
        """The names in a folder, without those in its subfolders."""

    def open(self, path: str, block: int) -> BinaryIO:
        """A file, to be read from anywhere; from afar at least ``block`` bytes at a time."""

    def read(self, path: str, size: int | None, limits: Limits) -> bytes:
        """All bytes of a file, whose size is looked at first.

        Raises:
            DecodeError: it is gone, no file, empty or too large.
        """

    def join(self, folder: str, path: str) -> str:
        """The place that a list in a folder means by a path."""


def is_url(path: str) -> bool:
    """Whether this is a URL, and not a path of this machine."""
    return "://" in path and _URL.match(path) is not None


def protocol_of(url: str) -> str:
    """The part of a URL before ``://``, in small letters."""
    return url.partition("://")[0].lower()


def here(path: str) -> str:
    """The same, with ``file://`` URLs as paths of this machine, which need no store."""
    if not is_url(path) or protocol_of(path) not in _OF_THIS_MACHINE:
        return path
    from fsspec.implementations.local import LocalFileSystem

    return str(LocalFileSystem._strip_protocol(path))


def without_query(path: str) -> str:
    """The part of a path that has the file's ending: of a URL of the web, without what follows ``?`` or ``#``."""
    return re.split("[?#]", path, maxsplit=1)[0] if is_url(path) and protocol_of(path) in ("http", "https") else path


def has_pattern(path: str) -> bool:
    """Whether a path leaves something open."""
    return glob.has_magic(without_query(path))


def store_of(path: str) -> Store:
    """The store that a path or URL leads to; those of URLs are not shared between threads.

    Raises:
        StoreError: the protocol is not known, or its package is missing.
    """
    if not is_url(path):
        return _LOCAL
    from camapp.batch.sources.remote import remote_store

    return remote_store(path)


def open_from_its_start(path: str) -> BinaryIO:
    """A list, a table or an archive, to be read from its first byte to its last.

    Raises:
        OSError, StoreError: it cannot be opened.
    """
    return store_of(path).open(path, 4 << 20)


def open_archive(path: str) -> BinaryIO:
    """An archive of which some members are read.

    Raises:
        DecodeError: it is no file.
        OSError, StoreError: it cannot be opened.
    """
    if not is_url(path) and not stat.S_ISREG(os.stat(path).st_mode):  # opening a pipe may wait for ever
        raise DecodeError("Its archive is no longer a file. Check the path.")
    return store_of(path).open(path, 1 << 16)


class _Local:
    """The disks of this machine."""

    def info(self, path: str) -> Found | None:
        if os.path.isdir(path):
            return Found(path, os.path.basename(path), is_folder=True)
        return Found(path, os.path.basename(path)) if os.path.exists(path) else None

    def pictures(self, folder: str) -> Iterator[Found]:
        inside = os.path.join(folder, "")
        for name in walk_pictures(folder):
            yield Found(inside + name, name)

    def matching(self, pattern: str) -> list[Found]:
        start = len(_fixed_folder(pattern))
        hits = sorted(glob.iglob(pattern, recursive=True))
        return [Found(os.path.join(os.getcwd(), hit), hit[start:]) for hit in hits if not os.path.isdir(hit)]

    def names(self, folder: str) -> list[str]:
        return os.listdir(folder)

    def open(self, path: str, block: int) -> BinaryIO:
        return open(path, "rb")

    def read(self, path: str, size: int | None, limits: Limits) -> bytes:
        return read_bytes(path, limits)

    def join(self, folder: str, path: str) -> str:
        return os.path.join(folder, os.path.expanduser(path) if path.startswith("~") else path)


_LOCAL = _Local()


def _fixed_folder(pattern: str) -> str:
    """The part of a pattern before the first folder or file that it leaves open; ends in a slash, or is empty."""
    folder = pattern
    while glob.has_magic(folder):
        folder = os.path.dirname(folder)
    return os.path.join(folder, "") if folder else ""


def placed(folder: str, path: str) -> str:
    """The place that a list or a table in a folder names.

    Args:
        folder: of the list, a path or a URL.
        path: what it says: relative to the folder, absolute, or a URL.

    Raises:
        StoreError: a list from elsewhere names a file of this machine, or a protocol other than its own that is not of
            a common store: whoever wrote it shall not choose what is read here, nor by which program.
    """
    if "://" not in path and "://" not in folder:  # a million rows take this way
        return _LOCAL.join(folder, path)
    if not is_url(path):
        return store_of(folder).join(folder, path)
    protocol = protocol_of(path)
    if is_url(folder) and protocol not in (protocol_of(folder), *_COMMON):
        raise StoreError(
            f"The list or table in {folder} names {path}, which a list from elsewhere may not: only places of its own "
            f"store, or {', '.join(_COMMON)}. Download the list, and give it as a file if you trust it."
        )
    return here(path)


_COMMON = ("http", "https", "s3", "gs", "az", "abfs", "hf")
