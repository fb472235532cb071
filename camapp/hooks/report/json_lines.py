"""JsonLines: snapshots into a file, one JSON object a line; and such a file read back."""

from __future__ import annotations

import json
import os
import warnings
from io import FileIO
from pathlib import Path
from types import TracebackType

from camapp.errors import UsageError
from camapp.hooks.report.json_form import to_json_form
from camapp.hooks.report.measured import Measured
from camapp.hooks.report.records import Snapshot


class JsonLines:
    """Writes snapshots into a file, one line of strict JSON each, as ``Snapshot.to_dict`` gives them.

    JSON has no NaN and no infinity: such numbers are the words "NaN", "Infinity" and "-Infinity". Each line is handed
    to the operating system at once and whole, so that the file can be read while training goes on, and after a crash.

    Args:
        path: of the file, whose folder is made if missing. Lines are appended to what is there.

    Raises:
        OSError: the file cannot be opened.

    Example:
        >>> with camapp.Inspector(model, writers=[JsonLines("run.jsonl")]) as inspector:
        ...     train()
        >>> history_png(read_json_lines("run.jsonl"))
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file: FileIO | None = self.path.open("ab", buffering=0)
        self._begin = b"\n" if _ends_within_a_line(self.path) else b""  # what a killed process left half done

    def write(self, snapshot: Measured) -> None:
        """Append one line.

        Raises:
            UsageError: the writer is closed.
            OSError: the line cannot be written (a full disk); the file is then as it was.
        """
        if self._file is None:
            raise UsageError(f"The writer of {self.path} is closed. Make another JsonLines to go on with the file.")
        facts = json.dumps(to_json_form(snapshot), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        _append(self._file, self._begin + facts.encode() + b"\n")
        self._begin = b""

    def close(self) -> None:
        """Close the file; closing twice does no harm."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> JsonLines:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"JsonLines({str(self.path)!r})"


def read_json_lines(path: str | os.PathLike[str]) -> list[Snapshot]:
    """The snapshots of a file that ``JsonLines`` wrote, in its order.

    A line that is cut off, as a process leaves one that was killed, is left out with a warning.

    Raises:
        UsageError: not one line is a snapshot, though there are some.
        OSError: the file cannot be read.
    """
    found = []
    wrong = []
    for number, line in enumerate(Path(path).read_bytes().split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            found.append(Snapshot.from_dict(json.loads(line)))
        except ValueError as error:  # a UsageError and what is no JSON or no UTF-8 are ones too
            wrong.append((number, str(error)))
    if wrong and not found:
        raise UsageError(f"{path} holds no snapshot. Its line {wrong[0][0]}: {wrong[0][1]}")
    for number, reason in wrong:
        warnings.warn(f"{path}: line {number} is no snapshot and was left out: {reason}", stacklevel=2)
    return found


def _ends_within_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        if not file.seek(0, os.SEEK_END):
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


def _append(file: FileIO, line: bytes) -> None:
    """Write all or nothing: a disk may fill in the middle of a line."""
    start = file.seek(0, os.SEEK_END)
    written = 0
    try:
        while written < len(line):
            written += file.write(line[written:])
    except BaseException:
        if written:
            file.truncate(start)
        raise
