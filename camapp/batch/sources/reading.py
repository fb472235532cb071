"""The bytes of inputs, out of files and archives, with a reason where they cannot be had."""

from __future__ import annotations

import zipfile
from collections import OrderedDict
from types import TracebackType
from typing import Any, BinaryIO

from camapp.batch.records import Item
from camapp.batch.sources.ranges import expect
from camapp.batch.sources.stores import is_url, open_archive, store_of, without_query
from camapp.batch.sources.zip_archives import read_member
from camapp.batch.sources.zip_directory import ZipDirectory
from camapp.batch.sources.zip_held import HeldDirectory, held_directory
from camapp.errors import DecodeError
from camapp.images.decode import Limits, check_bytes, named_read_failures

# A source may be thousands of shards; processes may open about a thousand files.
_MOST_OPEN = 8


class Reader:
    """Reads the bytes of inputs, and keeps the archives that it has met open.

    One a worker: it is not safe to share between threads, nor to fork once it has read. It can be pickled at any time,
    and then has nothing open::

        with Reader() as reader:
            data = reader.read(item)

    Args:
        limits: ``max_bytes`` of which no input may exceed; by default those of the environment.

    Raises:
        UsageError: the environment holds limits that cannot be meant.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits.from_environment()
        self._files: OrderedDict[str, BinaryIO] = OrderedDict()
        self._directories: dict[str, ZipDirectory | HeldDirectory] = {}

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"limits": self.limits}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["limits"])  # type: ignore[misc]

    def close(self) -> None:
        """Close what is open; reading opens it again."""
        while self._files:
            self._close_oldest()

    def read(self, item: Item) -> bytes:
        """The bytes of an input.

        Args:
            item: from ``list_items``.

        Raises:
            DecodeError: its file or archive is gone, may not be read, or is no ordinary file; it is empty, larger than
                the limit, damaged or encrypted. Sizes are looked at before anything is read or fetched.
            StoreError: its store cannot be reached, refuses, or needs a package that is not installed.
        """
        if item.member is None:
            return store_of(item.path).read(item.path, item.length, self.limits)
        with named_read_failures():
            file = self._open(item.path)
            content = self._slice(file, item) if item.length is not None else self._member(file, item)
        if not content:
            raise DecodeError("The file is empty (0 bytes). Pack the archive again.")
        return content

    def _open(self, path: str) -> BinaryIO:
        if path in self._files:
            self._files.move_to_end(path)
            return self._files[path]
        file = open_archive(path)
        while len(self._files) >= _MOST_OPEN:
            self._close_oldest()
        self._files[path] = file
        return file

    def _close_oldest(self) -> None:
        path, file = self._files.popitem(last=False)
        self._directories.pop(path, None)
        file.close()

    def _slice(self, file: BinaryIO, item: Item) -> bytes:
        assert item.offset is not None
        assert item.length is not None
        check_bytes(item.length, self.limits.max_bytes)
        expect(file, item.offset, item.length)
        file.seek(item.offset)
        content = file.read(item.length)
        if len(content) < item.length:
            raise DecodeError(
                f"Its archive is cut off: {len(content):,} of {item.length:,} bytes are there. Copy the archive again."
            )
        return content

    def _member(self, file: BinaryIO, item: Item) -> bytes:
        assert item.member is not None
        if not without_query(item.path).lower().endswith(".zip"):
            raise DecodeError(
                "It is stored in pieces in its archive (as a sparse file). Unpack it, and give the folder."
            )
        try:
            if item.path not in self._directories:
                held = is_url(item.path)
                self._directories[item.path] = held_directory(item.path, file) if held else ZipDirectory(file)
            entry = self._directories[item.path].find(item.member)
        except zipfile.BadZipFile as error:
            raise DecodeError(f"Its archive cannot be read: {error}. Copy the archive again.") from error
        if entry is None:
            raise DecodeError("It is no longer in its archive. List the source again.")
        return read_member(file, entry, self.limits)
