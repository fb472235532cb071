"""What inputs are called: safe paths inside their source, none twice in a run."""

from __future__ import annotations

import re

from camapp.sources.seen import Seen
from camapp.sources.text import printable

_ANYTHING = "picture"
# What makes a path unfit for a name: backslashes, a drive, and parts that are empty, "." or "..".
_UNFIT = re.compile(r"\\|^[A-Za-z]:|(?:^|/)\.{0,2}(?:/|$)")
_DRIVE = re.compile(r"^(?:[A-Za-z]:/+)+")
_DRIVE_OF_A_FILE = re.compile(r"^([A-Za-z]):")


def name_of(path: str) -> str:
    """A path as a name: relative, with forward slashes, without ``..``, as text that any file can hold.

    Args:
        path: where the input lies in its source, as the source says it. Steps up (``..``), a leading slash and a drive
            are dropped, so that no name leads out of the folder that it is joined to.
    """
    if _UNFIT.search(path):
        parts = (part for part in path.replace("\\", "/").split("/") if part not in ("", ".", ".."))
        path = _DRIVE_OF_A_FILE.sub(r"\1_", _DRIVE.sub("", "/".join(parts))) or _ANYTHING
    return printable(path)


def first_folder(name: str) -> str | None:
    """The first folder of a name; None where it has none."""
    folder, slash, _ = name.partition("/")
    return folder if slash else None


def is_hidden(path: str) -> bool:
    """Whether a file, or a folder on the way to it, is hidden: its name begins with a dot."""
    if not path.startswith(".") and "/." not in path and "\\." not in path:
        return False
    return any(part.startswith(".") and part not in (".", "..") for part in path.replace("\\", "/").split("/"))


class UniqueNames:
    """Hands out names, with a number behind those that were handed out before."""

    def __init__(self) -> None:
        self._taken = Seen()

    def take(self, name: str) -> str:
        """``name``, or ``"name (2)"``, ``"name (3)"`` ... where it is taken."""
        if self._taken.add(name):
            return name
        # Doubling steps first: a table may name one picture a million times.
        least, most = 2, 2
        while f"{name} ({most})" in self._taken:
            least, most = most + 1, 2 * most
        while least < most:
            middle = (least + most) // 2
            if f"{name} ({middle})" in self._taken:
                least = middle + 1
            else:
                most = middle
        free = f"{name} ({most})"
        self._taken.add(free)
        return free
