"""Which pictures were given: files, or one .zip of them, from people whom nobody vouches for."""

from __future__ import annotations

import os
import re
import stat
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from camapp.batch.records import Item
from camapp.batch.sources.names import UniqueNames, first_folder, is_hidden, name_of
from camapp.batch.sources.zip_directory import ZipDirectory, ZipEntry
from camapp.errors import UsageError
from camapp.sources.folders import is_picture_name

# A file, or a file and what its owner calls it.
File: TypeAlias = str | os.PathLike[str] | tuple[str | os.PathLike[str], str]

NO_PICTURE = "Its name does not end like a picture's (.jpg, .png, .webp, ...). Rename it if it is one."
MEBIBYTE = 2**20
# Signs that would break a line, or turn the text around them.
_UNSHOWN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
# Of what system programs leave in folders; it is nobody's picture.
_LEFT_BEHIND = ("__MACOSX", "Thumbs.db", "desktop.ini")


@dataclass(frozen=True)
class GivenLimits:
    """How much may be given at once; what is past a limit is refused before any of it is unpacked.

    Args:
        pictures: how many of them.
        members: of an archive, with folders and all that is no picture.
        unpacked: bytes that the pictures of an archive may come to together.
        ratio: how many times the archive's own size that may be, where it is more than ``surely_fine``.
        surely_fine: bytes that any archive may come to.
    """

    pictures: int = 50
    members: int = 2000
    unpacked: int = 512 * MEBIBYTE
    ratio: int = 100
    surely_fine: int = 64 * MEBIBYTE


@dataclass(frozen=True)
class Given:
    """What was given.

    Args:
        items: the pictures, as they came; names are unique, and lead nowhere else.
        refused: of these inputs, by name, why they are not even read.
        called: what each input was called before its name was made safe and unique, by name.
    """

    items: tuple[Item, ...]
    refused: dict[str, str]
    called: dict[str, str]


def pictures_given(files: Sequence[File], limits: GivenLimits | None = None) -> Given:
    """The pictures of some files, or of one .zip.

    Of an archive folders, hidden files, links and what macOS and Windows leave behind are not listed; of two members of
    one name the last counts. Any other member that does not end like a picture is listed, and refused by itself.

    Nothing that the archive claims is believed later on: ``Reader`` reads no member past the size that it claims.

    Args:
        files: on this machine; a file may come with the name by which its owner knows it.
        limits: by default those of ``GivenLimits()``.

    Raises:
        UsageError: no file, too many, an archive among other files, one that is damaged, holds no picture, or is past
            a limit.
    """
    limits = limits or GivenLimits()
    named = [_named(file) for file in files]
    if not named:
        raise UsageError("There is no picture yet. Give some, or one .zip of them.")
    archives = [(path, name) for path, name in named if path.lower().endswith(".zip")]
    if archives and len(named) > 1:
        raise UsageError(
            f"Give pictures, or one .zip of them: not {len(named)} files with {archives[0][1]} among them."
        )
    if archives:
        return _in_archive(*archives[0], limits)
    _check_count(len(named), f"{len(named):,} files", limits)
    names = UniqueNames()
    given = [(Item(names.take(_shown(name)), path), name) for path, name in named]
    return Given(tuple(item for item, _ in given), {}, {item.name: name for item, name in given})


def _named(file: File) -> tuple[str, str]:
    path, name = file if isinstance(file, tuple) else (file, "")
    path = os.path.abspath(os.fsdecode(path))
    return path, name or os.path.basename(path)


def _shown(name: str) -> str:
    return _UNSHOWN.sub("_", name_of(name))


def _in_archive(path: str, called: str, limits: GivenLimits) -> Given:
    try:
        with Path(path).open("rb") as file:
            packed = file.seek(0, os.SEEK_END)
            entries = _listed(file, called, limits)
    except zipfile.BadZipFile as error:
        raise UsageError(f"{called} cannot be read as .zip: {error}. Copy it again, or pack it anew.") from error
    except OSError as error:
        raise UsageError(f"The archive {called} cannot be read ({error.strerror}). Upload it again.") from error
    pictures = [entry for entry in entries if is_picture_name(entry.name)]
    if not pictures:
        raise UsageError(f"There is no picture in {called} (no file that ends in .jpg, .png, .webp, ...).")
    _check_count(len(pictures), f"{called} holds {len(pictures):,} pictures", limits)
    _check_sizes(called, packed, entries, pictures, limits)
    names = UniqueNames()
    given, refused = [], {}
    for entry in entries:
        name = names.take(_shown(entry.name))
        given.append((Item(name, path, entry.name, label=first_folder(name)), entry.name))
        if not is_picture_name(entry.name):
            refused[name] = NO_PICTURE
    return Given(tuple(item for item, _ in given), refused, {item.name: name for item, name in given})


def _listed(file: object, called: str, limits: GivenLimits) -> list[ZipEntry]:
    """The members that somebody meant to pack."""
    listed = []
    for count, entry in enumerate(ZipDirectory(file), start=1):  # type: ignore[arg-type]
        if count > limits.members:
            raise UsageError(
                f"{called} has more than {limits.members:,} members. Pack only the pictures, {limits.pictures} at most."
            )
        parts = entry.name.replace("\\", "/").split("/")
        is_folder, is_link = not parts[-1], stat.S_ISLNK(entry.mode)
        if not (is_folder or is_link or is_hidden(entry.name) or set(parts) & set(_LEFT_BEHIND)):
            listed.append(entry)
    return listed


def _check_count(count: int, what: str, limits: GivenLimits) -> None:
    if count > limits.pictures:
        raise UsageError(
            f"{what[0].upper()}{what[1:]}: that is more than the {limits.pictures} of one batch. Give fewer, or export "
            "any number of them from the shell: camapp heatmaps SOURCE OUT."
        )


def _check_sizes(
    called: str, packed: int, entries: Sequence[ZipEntry], pictures: Sequence[ZipEntry], limits: GivenLimits
) -> None:
    unpacked = sum(entry.size for entry in pictures)
    if unpacked > limits.unpacked:
        raise UsageError(
            f"The pictures in {called} come to {unpacked / MEBIBYTE:,.0f} MiB unpacked; the limit is "
            f"{limits.unpacked / MEBIBYTE:,.0f} MiB. Give fewer, or smaller ones."
        )
    if unpacked > limits.surely_fine and unpacked > limits.ratio * packed:
        raise UsageError(
            f"{called} is made to do harm, or holds no pictures: {packed:,} bytes claim to unpack to {unpacked:,}. "
            "Give the pictures themselves."
        )
    # Members that share their bytes are how an archive of kilobytes claims terabytes (Fifield, WOOT 2019).
    if sum(entry.packed for entry in entries) > packed:
        raise UsageError(f"{called} is damaged, or made to do harm: its members overlap. Pack it anew.")
