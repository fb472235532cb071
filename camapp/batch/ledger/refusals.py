"""When an export may not begin in a folder, nor go on there, in words."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from camapp.batch.ledger.folder import WORKSHOP, State
from camapp.batch.ledger.run_file import RUN_FILE, RunState, differences
from camapp.errors import UsageError

# Path("s3://b/x") is "s3:/b/x"; two letters at least, since "C:/" is a drive.
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def usable_folder(out: str | os.PathLike[str]) -> Path:
    """The folder as an absolute path.

    Raises:
        UsageError: it is a URL, or its name is not Unicode.
    """
    if _URL.match(os.fsdecode(out)):
        raise UsageError(
            f'The folder "{os.fsdecode(out)}" is a URL; an export is written into a folder of this machine or one that '
            "is mounted. Give such a folder, and copy it there when the export is finished."
        )
    path = Path(out).expanduser().absolute()
    try:
        str(path).encode()
    except UnicodeEncodeError:  # pyarrow opens no such file (26.0)
        raise UsageError(f"The name of the folder {os.fsencode(path)!r} is not Unicode. Give another.") from None
    return path


def refuse(out: Path, state: State, settings: dict[str, Any], shard_size: int, overwrite: bool, resume: bool) -> None:
    """Say no where there is an export that the caller did not mean to replace or to go on with.

    Args:
        out: the folder.
        state: what it holds.
        settings: of the new run, as JSON gives them back.
        shard_size: of the new run.
        overwrite: whether what is there may be replaced.
        resume: whether an unfinished export may be gone on with.

    Raises:
        UsageError: it holds a finished export, or an unfinished one that is not to go on, or is of other settings.
    """
    if overwrite or state == "new":
        return
    if state == "finished":
        raise UsageError(
            f"{out} holds a finished export. Give another folder, or replace it: --overwrite (overwrite=True)."
        )
    if not resume:
        raise UsageError(
            f"{out} holds an unfinished export. Go on with it (resume=True), give another folder, or start anew: "
            "--overwrite (overwrite=True)."
        )
    run = RunState.load(out / WORKSHOP / RUN_FILE)
    found = differences({**run.settings, "shard_size": run.shard_size}, {**settings, "shard_size": shard_size})
    if found:
        shown = "; ".join(found[:3]) + ("; ..." if found[3:] else "")
        raise UsageError(
            f"{out} holds an unfinished export of other settings: {shown}. "
            "Finish it with the settings that it had, give another folder, or start anew: --overwrite (overwrite=True)."
        )


def source_changed(out: Path, before: int, now: int) -> str:
    """Why an export is not gone on with whose source had so many inputs before and has so many others now."""
    counted = f"it had {before:,} inputs and has {now:,} now"
    if before == now:
        counted = f"it has {now:,} inputs as before, but some have other names, labels, sizes or times"
    return (
        f"The source of the unfinished export in {out} has changed: {counted}. Put it back as it was, give another "
        "folder, or start anew: --overwrite (overwrite=True)."
    )
