"""Inputs in a .zip archive: which there are, and their bytes, with nothing believed that the archive claims."""

from __future__ import annotations

import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from camapp.batch.records import Item
from camapp.batch.sources.names import first_folder, is_hidden, name_of
from camapp.batch.sources.ranges import expect
from camapp.batch.sources.stores import is_url, open_from_its_start
from camapp.batch.sources.zip_directory import ZipDirectory, ZipEntry
from camapp.errors import DecodeError, UsageError
from camapp.images.decode import Limits, check_bytes
from camapp.sources.folders import is_picture_name

STORED, DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED
# Deflate turns a byte into at most 1,032 (a match of 258 bytes takes 2 bits); who claims more is lying.
MOST_FROM_A_BYTE = 1032
_OTHER_METHODS = {9: "Deflate64", 12: "bzip2", 14: "LZMA", 93: "Zstandard", 95: "XZ"}
_ENCRYPTED = 0x1 | 0x40
_HEADER = struct.Struct("<4s22x2H")
_CHUNK = 1 << 16
_SLACK = 256
_DAMAGED = "It is damaged in its archive: {}. Copy the archive again."


def in_zip(path: str) -> Iterator[Item]:
    """The pictures of an archive, in its order, labelled with their first folder.

    Hidden files and links are left out; of two members of one name the last counts; ``..``, leading slashes and drives
    are dropped from names.

    Args:
        path: of the archive.

    Raises:
        UsageError: it is no such archive, is damaged, or holds no picture.
    """
    item = None
    try:
        with open_from_its_start(path) as file:
            for entry in ZipDirectory(file, held=is_url(path)):
                if is_picture_name(entry.name) and not is_hidden(entry.name) and not stat.S_ISLNK(entry.mode):
                    name = name_of(entry.name)
                    item = Item(name, path, entry.name, label=first_folder(name))
                    yield item
    except zipfile.BadZipFile as error:
        raise UsageError(f"{path} cannot be read as .zip: {error}. Copy it again, or pack it anew.") from error
    except OSError as error:
        raise UsageError(f"The archive {path} cannot be read ({error.strerror}). Check the file.") from error
    if item is None:
        raise UsageError(f"There is no picture in the archive {path} (no file that ends in .jpg, .png, .webp, ...).")


def read_member(file: BinaryIO, entry: ZipEntry, limits: Limits) -> bytes:
    """The bytes of a member.

    Args:
        file: the archive.
        entry: the member.
        limits: ``max_bytes`` of which is checked against the claimed size first, then while it is unpacked.

    Raises:
        DecodeError: it is too large, encrypted, damaged, packed in a way that is not read, or not what it claims.
    """
    if entry.flags & _ENCRYPTED:
        raise DecodeError("It is encrypted in its archive. Unpack the archive with its password, and give the folder.")
    if entry.method not in (STORED, DEFLATED):
        name = _OTHER_METHODS.get(entry.method, f"method {entry.method}")
        raise DecodeError(f"It is packed with {name}, which is not read. Pack the archive with deflate, or unpack it.")
    check_bytes(entry.size, limits.max_bytes)
    if entry.size > MOST_FROM_A_BYTE * entry.packed or (entry.method == STORED and entry.size != entry.packed):
        raise DecodeError(
            f"It is damaged in its archive, or made to do harm: {entry.size:,} bytes cannot lie in {entry.packed:,}."
        )
    # Its own header may be longer than the directory's, but hardly by more than that.
    expect(file, entry.offset, 30 + 4 * len(entry.name) + _SLACK + entry.packed)
    file.seek(entry.offset)
    header = file.read(30)
    if len(header) < 30 or not header.startswith(b"PK\3\4"):
        raise DecodeError(_DAMAGED.format("its header is missing"))
    _, name_size, extra_size = _HEADER.unpack(header)
    file.seek(name_size + extra_size, 1)
    content = _stored(file, entry) if entry.method == STORED else _inflated(file, entry)
    if len(content) != entry.size:
        raise DecodeError(_DAMAGED.format(f"{len(content):,} of {entry.size:,} bytes are there"))
    if zlib.crc32(content) != entry.crc:
        raise DecodeError(_DAMAGED.format("its checksum is wrong"))
    return content


def _stored(file: BinaryIO, entry: ZipEntry) -> bytes:
    return file.read(entry.size)


def _inflated(file: BinaryIO, entry: ZipEntry) -> bytes:
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
    parts: list[bytes] = []
    size, left = 0, entry.packed
    try:
        while not unpacker.eof and size <= entry.size:
            packed = unpacker.unconsumed_tail or file.read(min(_CHUNK, left))
            if not packed:
                break
            left -= 0 if unpacker.unconsumed_tail else len(packed)
            parts.append(unpacker.decompress(packed, entry.size + 1 - size))
            size += len(parts[-1])
    except zlib.error as error:
        raise DecodeError(_DAMAGED.format("it cannot be unpacked")) from error
    if size > entry.size:
        raise DecodeError(
            f"It is damaged in its archive, or made to do harm: it holds more than the {entry.size:,} bytes it claims."
        )
    return b"".join(parts)
