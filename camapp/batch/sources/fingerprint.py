"""Whether a source is still what it was: one digest of all its inputs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable

from camapp.batch.records import Item
from camapp.batch.sources.stores import is_url


def fingerprint_of(items: Iterable[Item]) -> str:
    """The fingerprint of inputs, 64 hex digits; see ``Fingerprint``."""
    fingerprint = Fingerprint()
    for item in items:
        fingerprint.add(item)
    return fingerprint.hexdigest()


class Fingerprint:
    """A digest of inputs that changes when one is added, left out, moved, renamed, relabelled or written anew.

    It is made of each input's name, label and target, and of the size and the time of change of its file or archive
    (or of its stamp, where it lies in a store); no file is opened. A source that is moved as a whole, and keeps its
    times, keeps its fingerprint.
    """

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._path: str | None = None
        self._status: tuple[int, int] | str | None = None

    def add(self, item: Item) -> None:
        """Take in the next input; the order counts."""
        if item.path != self._path:  # the members of an archive share one look
            self._path, self._status = item.path, item.stamp if is_url(item.path) else _status(item.path)
        # ascii() is the same text in every version of Python, and leaves no doubt where a field ends
        self._digest.update(ascii((item.name, item.label, item.target, self._status)).encode())

    def hexdigest(self) -> str:
        """The digest of what was taken in so far, 64 hex digits."""
        return self._digest.hexdigest()


def _status(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except (OSError, ValueError):  # gone, or a path that none can have
        return None
    return status.st_size, status.st_mtime_ns
