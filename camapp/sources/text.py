"""Lines of a list and rows of a table, one after the other, out of files of text."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterator
from typing import BinaryIO, TypeAlias

from camapp.errors import UsageError

# Opens a file by its path; another than Python's own may read from elsewhere.
Opener: TypeAlias = Callable[[str], BinaryIO]

LIST_SUFFIXES = (".txt", ".lst", ".list")
TABLE_SUFFIXES = (".csv", ".tsv")
# What the columns of a table of pictures may be called, in any case.
PATH_COLUMNS = ("path", "file", "filename", "file_name", "filepath", "image", "picture", "name")
LABEL_COLUMNS = ("label", "class", "class_name", "target", "category")


def printable(text: str) -> str:
    r"""A name of a file, or part of one, as text that any file can hold: what is not Unicode is written ``\xff``."""
    if text.isascii():
        return text
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # half a pair, which no name of a file can be
        return text.encode("utf-8", "backslashreplace").decode()


def _opened(path: str) -> BinaryIO:
    return open(path, "rb")


def list_lines(path: str | os.PathLike[str], opener: Opener = _opened) -> Iterator[str]:
    """The lines of a list, without the space around them: not empty ones, nor those that begin with ``#``.

    Args:
        path: of the list.
        opener: opens it.

    Raises:
        UsageError: it is not UTF-8.
    """
    try:
        with io.TextIOWrapper(opener(os.fspath(path)), encoding="utf-8-sig") as file:
            for line in file:
                if (name := line.strip()) and not line.startswith("#"):
                    yield name
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not a list of pictures: it is not UTF-8 text. Give one path a line.") from error
    except OSError as error:
        raise UsageError(f"The list {path} cannot be read ({error.strerror}). Check the file.") from error


def table_rows(path: str | os.PathLike[str], opener: Opener = _opened) -> Iterator[tuple[int, list[str]]]:
    """The rows of a table, the head first, each with the number of its line; not empty rows.

    Cells are parted by the one of ``,``, ``;`` and tab that the first line has most of, and may stand in quotes.

    Args:
        path: of the table.
        opener: opens it.

    Raises:
        UsageError: it is not UTF-8, or no table.
    """
    try:
        with io.TextIOWrapper(opener(os.fspath(path)), encoding="utf-8-sig", newline="") as file:
            first = file.readline()
            file.seek(0)
            rows = csv.reader(file, delimiter=max(",;\t", key=first.count))
            for row in rows:
                if any(row):
                    yield rows.line_num, row
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path} is not a table of pictures: {error}. Give UTF-8 text with commas.") from error
    except OSError as error:
        raise UsageError(f"The table {path} cannot be read ({error.strerror}). Check the file.") from error
