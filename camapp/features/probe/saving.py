"""Files that belong together, written all or none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import uuid4

from camapp.errors import UsageError


def check_folder(folder: Path, names: Sequence[str], *, overwrite: bool) -> None:
    """Make sure that files of these names can be written into a folder.

    Raises:
        UsageError: there are some already, or the folder is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; a report is a folder. Give another name.")
    there = [name for name in names if (folder / name).exists()]
    if there and not overwrite:
        raise UsageError(
            f"{folder} holds a report already ({', '.join(there)}). Give another folder, or replace it: --overwrite "
            "(overwrite=True)."
        )


def write_files(contents: Mapping[Path, bytes]) -> list[Path]:
    """Write files under temporary names first, and rename them once all are whole; folders are made if missing.

    Until the last file is whole, what was there before stays as it was.

    Returns:
        The files.
    """
    parts = {path: path.with_name(f".{path.name[:80]}.{uuid4().hex[:12]}.part") for path in contents}
    try:
        for path, part in parts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            part.write_bytes(contents[path])
        for path, part in parts.items():
            part.replace(path)
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)
    return list(contents)
