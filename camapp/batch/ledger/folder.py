"""The folder of an export: what is in it before a run, and how an old export leaves it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Literal, TypeAlias

from camapp.batch.ledger.manifest import MANIFEST, is_manifest
from camapp.batch.ledger.run_file import RUN_FILE
from camapp.errors import UsageError
from camapp.files import is_temporary

State: TypeAlias = Literal["new", "unfinished", "finished"]

WORKSHOP = ".camapp"
PLAN = "plan.parquet"
NEXT_PLAN = "next.parquet"  # of a run that is to take an old one's place
SHARDS = "shards"
DISCARDED = "discarded.parquet"
# What systems put into folders on their own.
_NOT_ANYBODYS = frozenset([".DS_Store", "Thumbs.db", "desktop.ini", ".directory", "lost+found"])


def state_of(out: Path) -> State:
    """What a folder holds: an export that can go on, a finished one, or none.

    An export is unfinished as long as ``.camapp/run.json`` is there: it is written when the plan is complete, and is
    the first to go when the manifest is.

    Raises:
        UsageError: it is a file, cannot be read, or holds files that are no export's.
    """
    if not os.path.lexists(out):
        return "new"
    if not out.is_dir():
        raise UsageError(f"{out} is a file; an export is a folder. Give another name.")
    if (out / WORKSHOP / RUN_FILE).exists():
        return "unfinished"
    if (out / MANIFEST).exists() and is_manifest(out / MANIFEST):
        return "finished"
    try:
        foreign = sorted(set(os.listdir(out)) - _NOT_ANYBODYS)
    except OSError as error:
        raise UsageError(
            f"{out} cannot be read ({error.strerror}). Give another folder, or change its rights."
        ) from error
    if foreign and not (out / WORKSHOP).is_dir():
        raise UsageError(
            f"{out} holds files that are no export's: {', '.join(foreign[:3])}{', ...' if len(foreign) > 3 else ''}. "
            "Give an empty folder or a new one."
        )
    return "new"


def missing_folders(out: Path) -> list[Path]:
    """``out`` and the folders above it that do not exist, the deepest first."""
    return [folder for folder in (out, *out.parents) if not folder.exists()]


def unmake(folders: list[Path]) -> None:
    """Remove folders that were made for a run that did not begin, as far as they are empty."""
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:
            return


def begin_discarding(out: Path, state: State) -> None:
    """Make an export one that is being removed, in one step: killed before it, it is whole, and after it, none."""
    if state == "finished":
        (out / MANIFEST).replace(out / WORKSHOP / DISCARDED)
    if state == "unfinished":
        # Both may be there, of a run that was killed as it ended; alone they would look like a finished export.
        for name in (RUN_FILE, MANIFEST):
            (out / name).unlink(missing_ok=True)
        (out / WORKSHOP / RUN_FILE).unlink()


def discard(out: Path) -> None:
    """Remove what is left of an export that ``begin_discarding`` marked, or that was killed before its plan was made.

    Only files that its manifest or its finished shards name are removed, and folders which that leaves empty.
    """
    workshop = out / WORKSHOP
    shards = sorted((workshop / SHARDS).glob("*.parquet"))
    touched: set[Path] = set()
    for source in [*shards, workshop / DISCARDED]:
        touched |= _remove_named(out, source)
    _remove_empty(touched, out)
    for path in (out / RUN_FILE, workshop / PLAN, *shards, workshop / DISCARDED):
        path.unlink(missing_ok=True)
    shutil.rmtree(workshop / SHARDS, ignore_errors=True)


def clean_up(out: Path) -> None:
    """Remove what a finished export no longer needs; its end is the moment in which ``.camapp/run.json`` goes."""
    workshop = out / WORKSHOP
    (workshop / RUN_FILE).unlink(missing_ok=True)
    (workshop / PLAN).unlink(missing_ok=True)
    (workshop / NEXT_PLAN).unlink(missing_ok=True)
    (workshop / DISCARDED).unlink(missing_ok=True)
    shutil.rmtree(workshop / SHARDS, ignore_errors=True)


def sweep(out: Path) -> int:
    """Remove the temporary files and folders that killed runs left, anywhere in an export; says how many."""
    swept = 0
    for place, folders, names in os.walk(out):
        for name in [name for name in names if is_temporary(name)]:
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(place, name))
                swept += 1
        for name in [name for name in folders if is_temporary(name)]:
            shutil.rmtree(os.path.join(place, name), ignore_errors=True)
            folders.remove(name)
            swept += 1
    return swept


def _remove_named(out: Path, source: Path) -> set[Path]:
    """Remove the files that a manifest or a shard names; returns their folders."""
    inside: dict[Path, bool] = {}
    for name in _named_files(source):
        # A manifest may have been tampered with: nothing outside the folder goes, not even through a link.
        path = out / PurePosixPath(name)
        if path.parent not in inside:
            inside[path.parent] = path.parent.resolve().is_relative_to(out.resolve())
        if ".." in PurePosixPath(name).parts or not inside[path.parent] or path.parent == out / WORKSHOP:
            continue
        with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError):
            path.unlink()
    return {folder for folder, is_inside in inside.items() if is_inside}


def _named_files(source: Path) -> Iterator[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(source) as file:
            for batch in file.iter_batches(columns=["files"], batch_size=4096):
                yield from batch.column(0).flatten().to_pylist()
    except (OSError, pa.ArrowInvalid, KeyError):  # missing, or damaged: it names nothing
        return


def _remove_empty(folders: Iterable[Path], out: Path) -> None:
    """Remove folders that are empty, and those above them that this leaves empty, below ``out``."""
    for folder in sorted(folders, key=lambda path: len(path.parts), reverse=True):
        while folder != out and out in folder.parents:
            try:
                folder.rmdir()
            except OSError:
                break
            folder = folder.parent
