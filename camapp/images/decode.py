"""Untrusted bytes to an upright picture of 8-bit RGB, or an error that says what is wrong with them."""

from __future__ import annotations

import os
import stat
import struct
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, BinaryIO

from PIL import ImageFile

from camapp.errors import CamappError, DecodeError, UsageError
from camapp.images.convert import WHITE, colour, convert, named_failures, strict_loading
from camapp.images.formats import RationedBytes, frame_notes, kind_of, opener_of
from camapp.images.picture import Picture

__all__ = ["Limits", "Picture", "check_bytes", "decode", "named_read_failures", "read_bytes"]


@dataclass(frozen=True)
class Limits:
    """What a picture may cost; a picture past a limit is refused before it is decoded.

    Args:
        max_bytes: size of the file.
        max_pixels: width times height; decoding takes about 7 bytes of memory a pixel, of WebP 15.
        max_aspect: long side over short side.
    """

    max_bytes: int = 20 * 1024 * 1024
    max_pixels: int = 50_000_000
    max_aspect: float = 50.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value >= 1:
                raise UsageError(f"{name}={value} allows no picture at all; give 1 or more.")

    @classmethod
    def from_environment(cls) -> Limits:
        """The default limits, with ``CAMAPP_MAX_BYTES`` and ``CAMAPP_MAX_PIXELS`` in place of theirs where set.

        Raises:
            UsageError: one of them is not a whole number of 1 or more.
        """
        return cls(
            max_bytes=_from_environment("CAMAPP_MAX_BYTES", cls.max_bytes),
            max_pixels=_from_environment("CAMAPP_MAX_PIXELS", cls.max_pixels),
        )


def decode(
    source: str | os.PathLike[Any] | bytes | BinaryIO,
    *,
    limits: Limits | None = None,
    background: Sequence[int] = WHITE,
    name: str | None = None,
    at_least: tuple[int, int] | None = None,
) -> Picture:
    """Read a picture from a source that nobody vouches for.

    What it is follows from its content, never from its name. The first frame or page is taken, turned upright by its
    EXIF orientation, laid on ``background`` where it is transparent, and brought to 8-bit RGB at its original size.
    Colour profiles are not applied.

    Args:
        source: a path, the bytes themselves, or a binary file, read from where it stands.
        limits: by default those of the environment, ``Limits.from_environment()``.
        background: the colour behind transparent parts, 0-255.
        name: by default the file's name without its folder, or ``"picture"``.
        at_least: the shorter and the longer side in pixels that will do. A JPEG is then decoded at 1/2, 1/4 or 1/8 of
            its size where that is no less, which takes a fraction of the time, and gives pixels that are averaged over
            blocks; other formats are decoded whole.

    Returns:
        The picture, with a note on each thing done to it.

    Raises:
        DecodeError: no such file, no picture, a damaged one, one past a limit. The text does not name the file.
        UsageError: ``source`` or ``background`` is of the wrong kind.
    """
    limits = limits or Limits.from_environment()
    ground = colour(background)
    data = read_bytes(source, limits)
    kind = kind_of(data)
    opener = opener_of(kind)
    with strict_loading, named_failures(kind):
        if kind == "GIF":  # Pillow 12.3 fills the first frame's area on opening
            _check_pixels(limits, *struct.unpack_from("<HH", data, 6))
        stream = RationedBytes(data)
        image = opener(stream, "")
        _check_pixels(limits, *image.size)
        _check_aspect(limits, *image.size)
        notes = frame_notes(image, data)
        stream.ration = sys.maxsize
        full = None if at_least is None else _reduce(image, *at_least)
        if full is not None:
            notes.append(f"decoded at {image.width}x{image.height} of {full[0]}x{full[1]}")
        rgb, more, orientation = convert(image, ground)
    if full is not None and orientation >= 5:
        full = full[::-1]
    return Picture(rgb, _name(source) if name is None else name, (*notes, *more), orientation, full)


def read_bytes(source: object, limits: Limits) -> bytes:
    """What ``decode`` reads: the bytes of a source, never more than may be.

    Args:
        source: as ``decode`` takes it.
        limits: of which ``max_bytes`` is heeded; a file's size is looked at before it is read.

    Raises:
        DecodeError: no such file, no ordinary one, one that may not be read, an empty or too large one.
        UsageError: ``source`` is of the wrong kind.
    """
    max_bytes = limits.max_bytes
    if isinstance(source, bytes | bytearray | memoryview):
        data = bytes(source)
        check_bytes(len(data), max_bytes)
    elif isinstance(source, str | os.PathLike):
        data = _read_file(source, max_bytes)
    elif hasattr(source, "read"):
        with named_read_failures():
            data = _read_stream(source, max_bytes)
    else:
        raise UsageError(
            f"A {type(source).__name__} cannot be decoded; give a path, bytes or a binary file "
            "(arrays go to Picture.from_array, Pillow images to Picture.from_pil)."
        )
    if not data:
        raise DecodeError("The file is empty (0 bytes). Copy or download it again.")
    return data


def _from_environment(variable: str, default: int) -> int:
    text = os.environ.get(variable, "")
    if not text.strip():
        return default
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise UsageError(f'{variable}="{text}" is not a limit; give a whole number of 1 or more, such as {default}.')
    return value


def _read_file(path: str | os.PathLike[Any], max_bytes: int) -> bytes:
    with named_read_failures():
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            raise DecodeError("This is a folder, not a picture. Give one of the files in it.")
        if not stat.S_ISREG(status.st_mode):  # opening a pipe may wait for ever
            raise DecodeError("This is a pipe or a device, not a file. Save its content as a file first.")
        check_bytes(status.st_size, max_bytes)
        with open(path, "rb") as file:
            return _read_stream(file, max_bytes)


def _read_stream(file: Any, max_bytes: int) -> bytes:
    """All of a stream, but never more than a byte past the limit: a stream may have no end."""
    parts: list[bytes] = []
    size = 0
    while size <= max_bytes:
        part = file.read(min(max_bytes + 1 - size, 2**20))
        if not part:
            break
        if not isinstance(part, bytes):
            raise DecodeError('This is a file of text, not of bytes. Open it with mode "rb".')
        parts.append(part)
        size += len(part)
    if size > max_bytes:
        raise _too_large("more bytes than are read", max_bytes)
    return b"".join(parts)


def check_bytes(size: int, max_bytes: int) -> None:
    """Refuse a file of so many bytes where it is too large.

    Raises:
        DecodeError: it is.
    """
    if size > max_bytes:
        raise _too_large(f"{size:,} bytes ({size / 2**20:.1f} MiB)", max_bytes)


def _too_large(found: str, max_bytes: int) -> DecodeError:
    limit = f"{max_bytes:,} bytes ({max_bytes / 2**20:.1f} MiB)"
    return DecodeError(f"The file has {found}; the limit is {limit}. Save it smaller, or raise CAMAPP_MAX_BYTES.")


@contextmanager
def named_read_failures() -> Iterator[None]:
    """Turns whatever a block raises as it reads a file into a ``DecodeError`` that says why, what has a name aside."""
    try:
        yield
    except CamappError:
        raise
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DecodeError("No such file. Check the path and its spelling.") from error
    except PermissionError as error:
        raise DecodeError("The file may not be read: permission denied. Change its permissions.") from error
    except Exception as error:  # a path with a null byte, a closed file, a stream that breaks off
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise DecodeError(f"The file could not be read ({reason}). Check the path and the disk.") from error


def _reduce(image: ImageFile.ImageFile, short: int, long: int) -> tuple[int, int] | None:
    """Let a JPEG be decoded at the smallest scale that leaves these sides; the size that it had, if there is one."""
    full = image.size
    for scale in (8, 4, 2):
        if min(full) // scale >= short and max(full) // scale >= long:
            image.draft(None, (full[0] // scale, full[1] // scale))
            break
    return None if image.size == full else full


def _name(source: object) -> str:
    path = source if isinstance(source, str | os.PathLike) else getattr(source, "name", None)
    if not isinstance(path, str | os.PathLike):  # bytes, or a file opened by number
        return "picture"
    name = PurePath(os.fsdecode(path)).name
    return os.fsencode(name).decode("utf-8", "replace") or "picture"  # a name that is not Unicode cannot be printed


def _check_pixels(limits: Limits, width: int, height: int) -> None:
    if width * height > limits.max_pixels:
        raise DecodeError(
            f"The picture has {width * height:,} pixels ({width}x{height}); the limit is {limits.max_pixels:,}. "
            "Save it smaller, or raise CAMAPP_MAX_PIXELS."
        )


def _check_aspect(limits: Limits, width: int, height: int) -> None:
    aspect = max(width, height) / min(width, height)
    if aspect > limits.max_aspect:
        raise DecodeError(
            f"The picture is too elongated: {width}x{height} is {aspect:.4g}:1; the limit is {limits.max_aspect:g}:1. "
            "Crop it to the part that matters."
        )
