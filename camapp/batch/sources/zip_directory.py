"""The directory of a .zip archive, read entry by entry: a million members take megabytes, not a gigabyte."""

from __future__ import annotations

import io
import os
import struct
import zipfile
from array import array
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

import numpy as np

from camapp.batch.sources.ranges import expect

# Layouts and signatures: PKWARE, APPNOTE.TXT 6.3.10, sections 4.3.12 to 4.3.16.
_ENTRY = struct.Struct("<4s4x2H4x3L3H8xL")
_ENTRY_SIZE = 46
_END = struct.Struct("<4s4x2H2LH")
_END_64 = struct.Struct("<4s28x3Q")
_LOCATOR_64 = struct.Struct("<4s4xQ4x")
_LONGEST_END = _END.size + 2**16
_UTF8_FLAG = 0x800
_IN_EXTRA = 0xFFFFFFFF
_64_BITS = 2**64 - 1
_MOST_HELD = 1 << 30


class ZipEntry(NamedTuple):
    """One member of an archive, as its directory describes it.

    Args:
        name: as packed, with slashes.
        flags: bit 0 of which says that it is encrypted.
        method: of compression; 0 for none, 8 for deflate.
        crc: the CRC-32 of its bytes.
        packed: how many bytes it takes in the archive.
        size: how many it is.
        mode: of the file in Unix's terms, kind included; 0 where it was packed elsewhere.
        offset: where its own header begins in the archive.
    """

    name: str
    flags: int
    method: int
    crc: int
    packed: int
    size: int
    mode: int
    offset: int


class ZipDirectory:
    """The members of an archive, without holding them.

    Args:
        file: the archive, open for reading; not closed.
        held: whether to keep the directory's bytes, about a hundred a member, for an archive that is far away; the file
            is not read any more then.

    Raises:
        zipfile.BadZipFile: it is no such archive, or is cut off.
    """

    def __init__(self, file: BinaryIO, *, held: bool = False) -> None:
        self._file, self._first = file, 0
        self._start, self._end, self._before = _place(file)
        if held:
            if self._end - self._start > _MOST_HELD:
                raise zipfile.BadZipFile("its directory is larger than 1 GiB, too large to be kept")
            expect(file, self._start, self._end - self._start)
            file.seek(self._start)
            self._file, self._first = io.BytesIO(file.read(self._end - self._start)), self._start
        self._hashes, self._places = self._index()

    def __iter__(self) -> Iterator[ZipEntry]:
        """The members in the directory's order; of those of one name only the last, which unpacking would leave."""
        place = self._start
        while place < self._end:
            entry, following = self._entry(place)
            if self._place_of(entry.name) == place:
                yield entry
            place = following

    def find(self, name: str) -> ZipEntry | None:
        """The member of a name; None where there is none."""
        place = self._place_of(name)
        if place is None:
            return None
        entry, _ = self._entry(place)
        return entry if entry.name == name else None

    def _index(self) -> tuple[np.ndarray, np.ndarray]:
        hashes, places = array("Q"), array("Q")
        place = self._start
        while place < self._end:
            entry, following = self._entry(place)
            hashes.append(hash(entry.name) & _64_BITS)
            places.append(place)
            place = following
        keys = np.frombuffer(hashes, np.uint64) if hashes else np.zeros(0, np.uint64)
        order = np.argsort(keys, kind="stable")
        return keys[order], np.array(places, np.uint64)[order]

    def _place_of(self, name: str) -> int | None:
        key = np.uint64(hash(name) & _64_BITS)
        rank = int(np.searchsorted(self._hashes, key, side="right")) - 1
        return int(self._places[rank]) if rank >= 0 and self._hashes[rank] == key else None

    def _entry(self, place: int) -> tuple[ZipEntry, int]:
        """The member described at a place of the file, and where the next is described."""
        if self._file.tell() != place - self._first:  # a seek throws away what was read ahead
            self._file.seek(place - self._first)
        head = self._file.read(_ENTRY_SIZE)
        if len(head) < _ENTRY_SIZE or not head.startswith(b"PK\1\2"):
            raise zipfile.BadZipFile(f"its directory is damaged at byte {place:,}")
        made_by, attributes = head[5], struct.unpack_from("<L", head, 38)[0]
        _, flags, method, crc, packed, size, name_size, extra_size, comment_size, offset = _ENTRY.unpack(head)
        variable = self._file.read(name_size + extra_size + comment_size)
        if len(variable) < name_size + extra_size + comment_size:
            raise zipfile.BadZipFile("its directory is cut off")
        if _IN_EXTRA in (size, packed, offset):
            size, packed, offset = _large(variable[name_size : name_size + extra_size], size, packed, offset)
        name = _name(variable[:name_size], flags)
        mode = attributes >> 16 if made_by == 3 else 0
        entry = ZipEntry(name, flags, method, crc, packed, size, mode, offset + self._before)
        return entry, place + _ENTRY_SIZE + len(variable)


def _place(file: BinaryIO) -> tuple[int, int, int]:
    """Where the directory begins and ends, and how many bytes lie before the archive (a program that unpacks it)."""
    length = file.seek(0, os.SEEK_END)
    tail_start = max(0, length - _LONGEST_END)
    expect(file, tail_start, length - tail_start)
    file.seek(tail_start)
    tail = file.read()
    at = len(tail)
    while (at := tail.rfind(b"PK\5\6", 0, at)) >= 0:
        if at + _END.size <= len(tail):
            *_, directory, offset, comment = _END.unpack_from(tail, at)
            if at + _END.size + comment <= len(tail):
                break
    if at < 0:
        raise zipfile.BadZipFile("it has no directory at its end; it is no .zip, or cut off")
    end = tail_start + at
    file.seek(max(0, end - _LOCATOR_64.size))
    locator = file.read(_LOCATOR_64.size)
    if locator.startswith(b"PK\6\7"):
        end, directory, offset = _large_end(file, end - _LOCATOR_64.size, _LOCATOR_64.unpack(locator)[1])
    start = end - directory
    if start < offset:
        raise zipfile.BadZipFile("its directory lies outside of it; it is damaged or cut off")
    return start, end, start - offset


def _large_end(file: BinaryIO, locator: int, claimed: int) -> tuple[int, int, int]:
    """Where the directory of an archive beyond 4 GiB or 65,535 members ends; its size and its offset."""
    for place in (locator - _END_64.size, claimed):
        if place < 0 or place > locator:
            continue
        file.seek(place)
        record = file.read(_END_64.size)
        if len(record) == _END_64.size and record.startswith(b"PK\6\6"):
            _, _, directory, offset = _END_64.unpack(record)
            return place, directory, offset
    raise zipfile.BadZipFile("the end of its directory is damaged")


def _large(extra: bytes, size: int, packed: int, offset: int) -> tuple[int, int, int]:
    """Sizes and offset from the extra field of Zip64, which holds those that do not fit 32 bits, in this order."""
    values = [size, packed, offset]
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, at)
        if kind == 1:
            content = extra[at + 4 : at + 4 + length]
            wanted = [index for index, value in enumerate(values) if value == _IN_EXTRA]
            if len(content) < 8 * len(wanted):
                break
            for index, value in zip(wanted, struct.unpack_from(f"<{len(wanted)}Q", content), strict=True):
                values[index] = value
            return values[0], values[1], values[2]
        at += 4 + length
    raise zipfile.BadZipFile("a size beyond 4 GiB is missing in its directory")


def _name(name: bytes, flags: int) -> str:
    """A member's name; many programs write UTF-8 without the flag that says so, and only old ones code page 437."""
    name = name.partition(b"\0")[0]
    if flags & _UTF8_FLAG:
        return name.decode("utf-8", "backslashreplace")
    try:
        return name.decode("utf-8")
    except UnicodeDecodeError:
        return name.decode("cp437")
