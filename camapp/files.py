"""Names and writes of files: safe names, no two alike, and each file whole or not there."""

from __future__ import annotations

import glob
import hashlib
import io
import re
import shutil
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePath
from uuid import uuid4

from camapp.errors import UsageError

# File systems take 255 bytes a name; the rest is left for what is appended.
LONGEST_STEM_BYTES = 120
_COMPRESSED = {".png", ".jpg", ".zip"}
# As _hidden_beside makes them.
_TEMPORARY = re.compile(r"\..*\.[0-9a-f]{12}\.(part|old)", re.DOTALL)


def safe_stem(name: str) -> str:
    """``name`` without folder and extension, safe and short enough for any file system; letters of any script stay."""
    return safe_name(Path(name.replace("\\", "/")).stem) or "picture"


def safe_name(text: str) -> str:
    """``text`` as part of a file name: signs but letters, digits and ``. ( ) + -`` become ``_``; may be empty."""
    name = re.sub(r"[^\w.()+-]+", "_", text).strip("._")
    return name.encode()[:LONGEST_STEM_BYTES].decode(errors="ignore")


def unused_stem(stem: str, used: set[str]) -> str:
    """``stem``, or ``stem_2``, ``stem_3`` ... where it is taken, ignoring case; the answer is added to ``used``."""
    number, free = 1, stem
    while free.casefold() in used:
        number += 1
        free = f"{stem}_{number}"
    used.add(free.casefold())
    return free


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file that is there whole or not at all: under a temporary name first, then renamed."""
    with whole_file(path) as part:
        part.write_bytes(content)


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A file that is there whole or not at all: what is written under the name given becomes ``path`` at the end.

    Where the block raises, nothing is left and a file that was there before is as it was.
    """
    part = _hidden_beside(path, "part")
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A folder that is there whole or not at all: what is written into the one given becomes ``path`` at the end.

    A folder that was there before is put aside, as ``.NAME.*.old``, for the moment between two renames, then removed.
    """
    part, aside = _hidden_beside(path, "part"), _hidden_beside(path, "old")
    part.mkdir()
    try:
        yield part
        if path.exists():
            path.rename(aside)
        try:
            part.rename(path)
        except BaseException:
            if aside.exists():
                aside.rename(path)
            raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
    shutil.rmtree(aside, ignore_errors=True)


def is_temporary(name: str) -> bool:
    """Whether a file or folder of this name is what a write that was killed has left."""
    return _TEMPORARY.fullmatch(name) is not None


def put_aside(path: Path) -> list[Path]:
    """Folders that ``whole_folder`` put aside for one of this name, and was then killed."""
    return sorted(path.parent.glob(f".{glob.escape(_short(path))}.*.old"))


def check_report_folder(folder: Path, names: Iterable[str], *, overwrite: bool) -> None:
    """Make sure that a report can be written into a folder, before hours are spent on it.

    Args:
        folder: need not exist.
        names: of the report's files.
        overwrite: whether those that are there may be replaced.

    Raises:
        UsageError: there is a report in it already, or it is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; a report is a folder. Give another name.")
    there = [name for name in names if (folder / name).exists()]
    if there and not overwrite:
        raise UsageError(
            f"{folder} holds a report already ({', '.join(there[:3])}{', ...' if len(there) > 3 else ''}). Give "
            "another folder, or replace it: --overwrite (overwrite=True)."
        )


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, 64 hex digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def write_together(folder: Path, contents: dict[str, bytes]) -> list[Path]:
    """Write files into a folder, made if missing, all or none: all under temporary names first, then renamed.

    Args:
        folder: where.
        contents: of each file, by its name.

    Returns:
        The files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    parts = {_hidden_beside(folder / name, "part"): folder / name for name in contents}
    try:
        for part, content in zip(parts, contents.values(), strict=True):
            part.write_bytes(content)
        for part, path in parts.items():
            part.replace(path)
    finally:
        for part in parts:
            part.unlink(missing_ok=True)
    return list(parts.values())


def zipped(contents: Mapping[str, bytes]) -> bytes:
    """Files, by their names in it, as one .zip that is the same for the same files; what is compressed stays so."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in contents.items():
            kind = zipfile.ZIP_STORED if PurePath(name).suffix in _COMPRESSED else zipfile.ZIP_DEFLATED
            archive.writestr(zipfile.ZipInfo(name), content, kind)  # dated 1980, the earliest that a .zip can hold
    return buffer.getvalue()


def zipped_folder(folder: Path) -> bytes:
    """All files of a folder and those in it, as ``zipped`` packs them."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return zipped({path.relative_to(folder).as_posix(): path.read_bytes() for path in found})


def _hidden_beside(path: Path, ending: str) -> Path:
    return path.with_name(f".{_short(path)}.{uuid4().hex[:12]}.{ending}")


def _short(path: Path) -> str:
    return path.name.encode(errors="surrogateescape")[:LONGEST_STEM_BYTES].decode(errors="ignore")
