"""RangeFile: a file that is far away, read in ranges of bytes, so that few requests give much."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import BinaryIO

# Gives the bytes from one place of a file up to another.
Fetch = Callable[[int, int], bytes]


class RangeFile(io.RawIOBase):
    """A file of which ranges are fetched; the last one is kept.

    Args:
        fetch: gives the bytes between two places; may be called again for the same ones.
        size: of the file, in bytes.
        block: how many bytes a request asks for at least.
        stamp: what tells this version of the file from others, where its store says.
    """

    def __init__(self, fetch: Fetch, size: int, block: int, stamp: str | None = None) -> None:
        self.size, self.stamp = size, stamp
        self._fetch = fetch
        self._block = block
        self._place = 0
        self._start, self._held = 0, b""

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Where the next read begins."""
        return self._place

    def seek(self, place: int, whence: int = os.SEEK_SET) -> int:
        """Go elsewhere; nothing is fetched for it.

        Raises:
            ValueError: that lies before the file.
        """
        place += {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self.size}[whence]
        if place < 0:
            raise ValueError(f"negative seek position {place}")
        self._place = place
        return place

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill a buffer as far as is held; where nothing is, fetch what fits, or a block."""
        if self._place >= self.size or not len(buffer):
            return 0
        if not self._start <= self._place < self._start + len(self._held):
            self._hold(self._place, max(len(buffer), self._block))
        content = self._held[self._place - self._start :][: len(buffer)]
        buffer[: len(content)] = content
        self._place += len(content)
        return len(content)

    def expect(self, start: int, size: int) -> None:
        """Fetch a range that is read next, in one request."""
        if start < self._start or start + size > self._start + len(self._held):
            self._hold(start, size)

    def _hold(self, start: int, size: int) -> None:
        stop = min(start + size, self.size)
        if start < stop:
            self._start, self._held = start, self._fetch(start, stop)


def buffered(file: RangeFile) -> BinaryIO:
    """The same file, of which small pieces are read quickly."""
    return io.BufferedReader(file, 1 << 16)


def expect(file: BinaryIO, start: int, size: int) -> None:
    """Say which range of a file is read next; fetches it at once from afar, and does nothing on this machine."""
    raw = getattr(file, "raw", None)
    if isinstance(raw, RangeFile):
        raw.expect(start, size)
