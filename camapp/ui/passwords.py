"""Names and passwords of a page, from a file that only its owner reads."""

from __future__ import annotations

import hmac
import os
import stat
from pathlib import Path

from camapp.errors import UsageError


class Passwords:
    """Who may use the page.

    Args:
        known: passwords by name.
    """

    def __init__(self, known: dict[str, str]) -> None:
        self._known = known

    @classmethod
    def from_file(cls, path: str | Path) -> Passwords:
        """Read a file of lines ``name:password``; empty lines and those that begin with # are left out.

        Raises:
            UsageError: a file that is not there, that others may read, or that holds anything else.
        """
        file = Path(path)
        try:
            text = file.read_text(encoding="utf-8")
            mode = file.stat().st_mode
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"The file of passwords {path} cannot be read: {error}.") from error
        if os.name == "posix" and mode & (stat.S_IRGRP | stat.S_IROTH):
            raise UsageError(f"Others may read the file of passwords {path}. Close it to them: chmod 600 {path}")
        known: dict[str, str] = {}
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            name, colon, password = line.partition(":")
            if not (name.strip() and colon and password):
                raise UsageError(f"Line {number} of {path} is not name:password.")
            known[name.strip()] = password
        if not known:
            raise UsageError(f"The file of passwords {path} names nobody. Write a line name:password for each visitor.")
        return cls(known)

    def admit(self, name: str, password: str) -> bool:
        """Whether a visitor may come in; takes as long for a wrong name as for a wrong password."""
        known = self._known.get(name)
        same = hmac.compare_digest((known or "").encode(), password.encode())
        return same and known is not None
