"""The headers of a .tar archive: where the bytes of its files lie. Plain ones are read here, the rest by tarfile."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

_BLOCK = tarfile.BLOCKSIZE
_EMPTY = bytes(_BLOCK)
_SPACES = 8 * ord(" ")  # what the checksum's own field counts as


class TarEntry(NamedTuple):
    """An ordinary file in an archive.

    Args:
        name: as packed; what is not Unicode by ``surrogateescape``.
        offset: where its bytes begin in the archive.
        size: how many they are.
        sparse: whether they lie there in pieces.
    """

    name: str
    offset: int
    size: int
    sparse: bool = False


def ordinary_files(file: BinaryIO) -> Iterator[TarEntry]:
    """The ordinary files of an uncompressed archive, in its order: no folders, links or devices.

    tarfile takes 25 µs a header, and a damaged one for the end of the archive (Python 3.11). So headers of ordinary
    files, with or without a plain pax header before them, are read here: magic, octal size, prefix and checksum as
    POSIX.1-2017 says (pax, "ustar Interchange Format"). Whatever else there is, tarfile reads.

    Args:
        file: the archive; may be read elsewhere meanwhile.

    Raises:
        tarfile.TarError: it is no such archive, is damaged or cut off.
    """
    length = file.seek(0, os.SEEK_END)
    if not length:
        raise tarfile.ReadError("it is empty")
    others: tarfile.TarFile | None = None
    place = 0
    while True:
        file.seek(place)
        block = file.read(_BLOCK)
        if not block or block == _EMPTY:
            return
        entry = _plain(file, block, place)
        if entry is None:
            if others is None:
                file.seek(0)
                others = tarfile.open(fileobj=file, mode="r:", encoding="utf-8", errors="surrogateescape")  # noqa: SIM115
            entry, following = _other(others, file, place)
        else:
            following = entry.offset + -(-entry.size // _BLOCK) * _BLOCK
        if following <= place or (entry is not None and entry.size < 0):  # it would lead back for ever
            raise tarfile.ReadError(f"an impossible size at byte {place:,}")
        if entry is not None:
            if not entry.sparse and entry.offset + entry.size > length:
                raise tarfile.ReadError("it is cut off")
            yield entry
        elif following > length + _BLOCK:
            raise tarfile.ReadError("it is cut off")
        place = following


def _plain(file: BinaryIO, block: bytes, place: int) -> TarEntry | None:
    """The file that a header describes, if this is nothing but an ordinary file."""
    facts: dict[str, bytes] | None = {}
    kind = block[156:157]
    if kind == b"x":
        size = _size(block)
        if size is None or size > 1 << 20:
            return None
        rest = file.read(-(-size // _BLOCK) * _BLOCK + _BLOCK)
        facts, block = _pax(rest[:size]), rest[-_BLOCK:]
        place += len(rest)
        kind = block[156:157]
    size = _size(block)
    if facts is None or size is None or kind not in (b"0", b"\0"):
        return None
    name = block[:100].partition(b"\0")[0]
    prefix = block[345:500].partition(b"\0")[0]
    if prefix and block[257:263] == b"ustar\0":
        name = prefix + b"/" + name
    name = facts.get("path", name)
    if name.endswith(b"/"):  # a folder of the oldest kind
        return None
    if "size" in facts:
        if not facts["size"].isdigit():
            return None
        size = int(facts["size"])
    return TarEntry(name.decode("utf-8", "surrogateescape"), place + _BLOCK, size)


def _size(block: bytes) -> int | None:
    """The size that a header names; None where it is damaged, or larger than octal digits say."""
    if len(block) < _BLOCK:
        return None
    try:
        size, checksum = int(block[124:136].strip(b" \0"), 8), int(block[148:156].strip(b" \0"), 8)
    except ValueError:
        return None
    return size if size >= 0 and checksum == sum(block) - sum(block[148:156]) + _SPACES else None


def _pax(content: bytes) -> dict[str, bytes] | None:
    """The records of a pax header, ``LENGTH KEY=VALUE`` each; None where they say more than names and sizes."""
    facts: dict[str, bytes] = {}
    while content:
        digits, _, _ = content.partition(b" ")
        if not digits.isdigit() or not (length := int(digits)) > len(digits) + 1:
            return None
        key, equals, value = content[len(digits) + 1 : length - 1].partition(b"=")
        if not equals or content[length - 1 : length] != b"\n" or key.startswith((b"GNU.", b"hdrcharset")):
            return None
        facts[key.decode("utf-8", "replace")] = value
        content = content[length:]
    return facts


def _other(archive: tarfile.TarFile, file: BinaryIO, place: int) -> tuple[TarEntry | None, int]:
    """What tarfile makes of a header, if it is an ordinary file's, and where the next header is."""
    file.seek(place)
    try:
        member = tarfile.TarInfo.fromtarfile(archive)
    except tarfile.TarError as error:
        raise tarfile.ReadError(f"a damaged header at byte {place:,} ({error})") from error
    if not member.isreg():
        return None, archive.offset
    return TarEntry(member.name, member.offset_data, member.size, member.issparse()), archive.offset
