"""gather: pictures that somebody sent, as files and in .zip archives, in a folder of our own; nothing is believed."""

from __future__ import annotations

import os
import re
import stat
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from camapp.batch.sources.names import UniqueNames, first_folder, is_hidden, name_of
from camapp.batch.sources.zip_archives import read_member
from camapp.batch.sources.zip_directory import ZipDirectory, ZipEntry
from camapp.errors import DecodeError, UsageError
from camapp.images.decode import Limits
from camapp.sources.folders import is_picture_name
from camapp.sources.pictures import PictureFile

# What a spreadsheet takes for a formula when a cell begins with it, and what no line of a table may hold.
_FORMULA = ("=", "+", "-", "@")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True)
class GatherLimits:
    """How much may be sent at once.

    Args:
        pictures: how many pictures, those in archives included.
        total_bytes: of all of them together, unpacked.
        members: how many members an archive may have, of whatever kind.
        picture: what one picture may be; ``max_bytes`` is of its unpacked file.
    """

    pictures: int = 500
    total_bytes: int = 200 * 2**20
    members: int = 20_000
    picture: Limits = field(default_factory=Limits.from_environment)


@dataclass(frozen=True)
class Gathered:
    """What was sent.

    Args:
        pictures: in the order sent; an archive's own order within it. Names are unique and safe for a table's cell.
        failures: members of archives that were left out: name and reason.
    """

    pictures: tuple[PictureFile, ...]
    failures: tuple[tuple[str, str], ...] = ()

    @property
    def labelled(self) -> bool:
        """Whether each picture has a label."""
        return all(one.label is not None for one in self.pictures)


def gather(
    files: Sequence[str | os.PathLike[str]], folder: str | os.PathLike[str], limits: GatherLimits | None = None
) -> Gathered:
    """The pictures of some files, archives unpacked.

    A picture of an archive is labelled with the first folder that tells pictures apart: ``train/hat/1.jpg`` of an
    archive in which all lies in ``train`` is a ``hat``. Single files have no label. Names of members are texts to
    show: no file is written under them. Hidden files and links are left out.

    Args:
        files: pictures, and archives, told by their ending ``.zip``.
        folder: exists; unpacked pictures are written into it, under numbers.
        limits: ``GatherLimits()`` by default.

    Raises:
        UsageError: no files, no picture in them, an archive that cannot be read, or more than the limits allow. What
            an archive claims is checked before anything of it is unpacked.

    Example:
        >>> gathered = gather(["clothing.zip", "hat.jpg"], "unpacked")
        >>> camapp.extract_features("efficientnet_lite0", gathered.pictures)
    """
    if not files:
        raise UsageError("No files were given. Give pictures, or a .zip of pictures.")
    gatherer = _Gatherer(Path(folder), limits or GatherLimits())
    for file in map(Path, files):
        if file.suffix.lower() == ".zip":
            gatherer.add_archive(file)
        else:
            gatherer.add_file(file)
    if not gatherer.pictures:
        name, reason = gatherer.failures[0]
        raise UsageError(
            f"None of the {len(gatherer.failures)} picture(s) could be unpacked. The first, {name}: {reason}"
        )
    return Gathered(tuple(gatherer.pictures), tuple(gatherer.failures))


def inert(text: str) -> str:
    """A name as one line that no spreadsheet runs: control characters become ``_``, a formula gets a ``'`` in front."""
    line = _CONTROLS.sub("_", text)
    return f"'{line}" if line.startswith(_FORMULA) else line


class _Gatherer:
    """Counts against the limits, and hands out names and numbers."""

    def __init__(self, folder: Path, limits: GatherLimits) -> None:
        self._folder, self._limits = folder, limits
        self._names, self._bytes = UniqueNames(), 0
        self.pictures: list[PictureFile] = []
        self.failures: list[tuple[str, str]] = []

    def add_file(self, file: Path) -> None:
        try:
            size = file.stat().st_size
        except OSError:
            size = 0  # told when it is decoded, as every other picture that cannot be read
        self._expect(1, size)
        self.pictures.append(PictureFile(file, self._names.take(inert(name_of(file.name)))))

    def add_archive(self, archive: Path) -> None:
        named = inert(archive.name)
        try:
            with archive.open("rb") as file:
                entries = list(self._entries(named, ZipDirectory(file), archive.stat().st_size))
                if not entries:
                    raise UsageError(
                        f"There is no picture in the archive {named} (no file that ends in .jpg, .png, .webp, ...)."
                    )
                self._expect(len(entries), sum(entry.size for entry in entries))
                for entry, name in zip(entries, _below_shared([name_of(one.name) for one in entries]), strict=True):
                    self._unpack(file, entry, name)
        except zipfile.BadZipFile as error:
            raise UsageError(f"{named} cannot be read as .zip: {error}. Copy it again, or pack it anew.") from error
        except OSError as error:
            raise UsageError(f"The archive {named} cannot be read ({error.strerror}). Check the file.") from error

    def _entries(self, archive: str, directory: Iterable[ZipEntry], size: int) -> Iterator[ZipEntry]:
        """The pictures among the members."""
        packed = 0
        for count, entry in enumerate(directory, 1):
            if count > self._limits.members:
                raise UsageError(
                    f"The archive {archive} has more than {self._limits.members:,} members. Pack only the pictures."
                )
            packed += entry.packed
            if packed > size:  # members that share their bytes are how kilobytes unpack to terabytes (Fifield, 2019)
                raise UsageError(
                    f"The archive {archive} is damaged, or made to do harm: its members overlap. Pack it anew."
                )
            if is_picture_name(entry.name) and not is_hidden(entry.name) and not stat.S_ISLNK(entry.mode):
                yield entry

    def _unpack(self, file: BinaryIO, entry: ZipEntry, name: str) -> None:
        label = first_folder(name)
        unique = self._names.take(inert(name))
        path = self._folder / f"{len(self.pictures):05d}"
        try:
            path.write_bytes(read_member(file, entry, self._limits.picture))
        except DecodeError as error:
            self.failures.append((unique, str(error)))
            return
        self.pictures.append(PictureFile(path, unique, None if label is None else inert(label)))

    def _expect(self, pictures: int, size: int) -> None:
        """Refuse what goes beyond the limits, by what is claimed; ``read_member`` lets no member exceed its claim."""
        count = len(self.pictures) + len(self.failures) + pictures
        self._bytes += size
        if count > self._limits.pictures:
            raise UsageError(
                f"{count:,} pictures are more than the {self._limits.pictures:,} that are taken at once. Send fewer, "
                "or use camapp on your own machine, which has no such limit (camapp features FOLDER OUT)."
            )
        if self._bytes > self._limits.total_bytes:
            raise UsageError(
                f"{self._bytes / 2**20:,.0f} MB of pictures are more than the {self._limits.total_bytes / 2**20:,.0f} "
                "MB that are taken at once. Send fewer or smaller ones, or use camapp on your own machine, which has "
                "no such limit (camapp features FOLDER OUT)."
            )


def _below_shared(names: list[str]) -> list[str]:
    """The names without the folders that all of them lie in, as long as each still lies in some folder."""
    while True:
        parts = [name.partition("/") for name in names]
        shared = {folder for folder, _, _ in parts}
        rest = [rest for _, _, rest in parts]
        if len(shared) > 1 or not all("/" in name for name in rest):
            return names
        names = rest
