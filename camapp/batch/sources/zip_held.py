"""Directories of .zip archives that are far away, read once a process however many threads read members."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import BinaryIO

from camapp.batch.sources.ranges import RangeFile
from camapp.batch.sources.zip_directory import ZipDirectory, ZipEntry

# Thousands of archives may be read, but hardly at once.
_MOST = 8


class HeldDirectory:
    """A directory of which all bytes are kept; safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._directory: ZipDirectory | None = None

    def read_from(self, file: BinaryIO) -> HeldDirectory:
        """The same, read now if it has not been yet; other threads wait, since they need it too."""
        with self._lock:
            if self._directory is None:
                self._directory = ZipDirectory(file, held=True)
        return self

    def find(self, name: str) -> ZipEntry | None:
        """The member of a name; None where there is none."""
        with self._lock:
            assert self._directory is not None, "read_from comes first"
            return self._directory.find(name)


_LOCK = threading.Lock()
_HELD: OrderedDict[tuple[str, str | None, int], HeldDirectory] = OrderedDict()


def held_directory(path: str, file: BinaryIO) -> HeldDirectory:
    """The directory of an archive, the same for all threads as long as the archive does not change.

    Args:
        path: of the archive.
        file: the archive, a buffered ``RangeFile``.

    Raises:
        zipfile.BadZipFile: it is no such archive, or is cut off.
        StoreError: it cannot be fetched.
    """
    raw = getattr(file, "raw", None)
    assert isinstance(raw, RangeFile)
    key = path, raw.stamp, raw.size
    with _LOCK:
        held = _HELD.setdefault(key, HeldDirectory())
        _HELD.move_to_end(key)
        while len(_HELD) > _MOST:
            _HELD.popitem(last=False)
    return held.read_from(file)
