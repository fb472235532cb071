"""A table that says which class to explain in which file: columns found by their names, files by theirs."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from camapp.batch.sources.names import name_of
from camapp.errors import UsageError
from camapp.sources.text import LABEL_COLUMNS, PATH_COLUMNS, table_rows

MOST_BYTES = 4 * 2**20
MOST_ROWS = 20_000
# In the order in which one is taken where there are several; "target" is the class to explain, others are labels.
CLASS_COLUMNS = ("target", "target_class", *(name for name in LABEL_COLUMNS if name != "target"))


@dataclass(frozen=True)
class ClassTable:
    """What a table says of files.

    Args:
        name: of the table, for messages.
        file_column: which column names the files.
        class_columns: which columns may hold classes, the likeliest first.
        files: the files, a row each.
        cells: of each row, what the class columns hold, in their order.
    """

    name: str
    file_column: str
    class_columns: tuple[str, ...]
    files: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]

    @classmethod
    def read(cls, content: bytes, name: str = "table.csv") -> ClassTable:
        """Read a CSV or TSV.

        Columns count as those of files by their usual names (``path``, ``file``, ``filename``, ``name``, ...), and as
        those of classes by theirs (``target``, ``label``, ``class``, ...), in any case. Where none is called like a
        class, every other column may be one.

        Args:
            content: of the file: UTF-8, parted by commas, semicolons or tabs.
            name: of the file.

        Raises:
            UsageError: it is too large, no table, or has no such columns.
        """
        if len(content) > MOST_BYTES:
            raise UsageError(f"The table {name} has {len(content):,} bytes; the limit is {MOST_BYTES:,}. Cut it down.")
        rows = table_rows(name, lambda _: io.BytesIO(content))
        _, heads = next(rows, (1, []))
        heads = [head.strip() for head in heads]
        at, class_columns = _columns(name, heads)
        files: list[str] = []
        cells: list[tuple[str, ...]] = []
        for line, row in rows:
            if len(row) != len(heads):
                raise UsageError(
                    f"The table {name} is wrong in line {line}: {len(row)} cells under {len(heads)} columns. Quote "
                    'cells that hold the separator: "one, two.jpg".'
                )
            if len(files) == MOST_ROWS:
                raise UsageError(
                    f"The table {name} has more than {MOST_ROWS:,} rows. Keep those of the pictures given."
                )
            if not row[at].strip():
                raise UsageError(f"The table {name} names no file in line {line}. Fill it in, or remove the line.")
            files.append(row[at].strip())
            cells.append(tuple(row[index].strip() for index in class_columns))
        if not files:
            raise UsageError(f"The table {name} has no row under its columns. Give one a picture.")
        return cls(name, heads[at], tuple(heads[index] for index in class_columns), tuple(files), tuple(cells))

    def classes(self, called: Mapping[str, str], column: str | None = None) -> TableClasses:
        """Which class each file is to be explained for.

        A file is found by its name in any case, whether or not either side says its folders; of several rows the one
        that agrees in most of the folders counts.

        Args:
            called: the files as they were given, by their names in the batch.
            column: one of ``class_columns``; the first by default.

        Raises:
            UsageError: there is no such column.
        """
        column = self.class_columns[0] if column is None else column
        if column not in self.class_columns:
            raise UsageError(
                f'The table {self.name} has no column of classes "{column}"; it has {", ".join(self.class_columns)}.'
            )
        place = self.class_columns.index(column)
        by_last: dict[str, list[int]] = defaultdict(list)
        for row, file in enumerate(self.files):
            by_last[_parts(file)[0]].append(row)
        classes: dict[str, str] = {}
        failed: dict[str, str] = {}
        matched: set[int] = set()
        for name, original in called.items():
            parts = _parts(original)
            best = _most_alike(parts, {row: _parts(self.files[row]) for row in by_last.get(parts[0], ())})
            matched.update(best)
            wanted = {self.cells[row][place] for row in best} - {""}
            if len(wanted) == 1:
                classes[name] = wanted.pop()
            else:
                failed[name] = self._reason(best, wanted, column)
        unmatched = tuple(file for row, file in enumerate(self.files) if row not in matched)
        return TableClasses(column, classes, failed, unmatched)

    def _reason(self, rows: Iterable[int], wanted: set[str], column: str) -> str:
        if wanted:
            several = " and ".join(f'"{one}"' for one in sorted(wanted)[:3])
            return f"The table names several classes for it: {several}. Keep one, or write its folder too."
        if any(True for _ in rows):
            return f'The table has nothing in the column "{column}" for it. Fill it in.'
        return f'The table has no row for it in the column "{self.file_column}". Add one, or check the spelling.'


@dataclass(frozen=True)
class TableClasses:
    """The classes that a table asks for.

    Args:
        column: that they were taken from.
        classes: of each file that has one, by its name in the batch: a class's name or index, as it was written.
        failed: of each other file, why it has none.
        unmatched: files of the table that were not given.
    """

    column: str
    classes: dict[str, str]
    failed: dict[str, str]
    unmatched: tuple[str, ...]


def _columns(table: str, heads: list[str]) -> tuple[int, tuple[int, ...]]:
    plain = [head.lower() for head in heads]
    at = next((plain.index(name) for name in PATH_COLUMNS if name in plain), None)
    listed = ", ".join(heads[:12]) if any(heads) else "none: its first line is empty"
    if at is None:
        raise UsageError(
            f'The table {table} has no column of files ("file", "name", "path", ...); it has {listed}. Rename the one '
            "that holds them."
        )
    usual = [plain.index(name) for name in CLASS_COLUMNS if name in plain]
    others = [index for index, head in enumerate(heads) if index != at and head]
    chosen = tuple(dict.fromkeys(usual or others))
    if not chosen:
        raise UsageError(
            f'The table {table} has no column of classes ("class", "label", "target", ...); it has {listed}. Add one.'
        )
    return at, chosen


def _parts(path: str) -> list[str]:
    """A file's name and its folders, the last first, as they are compared."""
    return name_of(path.strip()).casefold().split("/")[::-1]


def _most_alike(parts: list[str], rows: Mapping[int, list[str]]) -> list[int]:
    """The rows that share most of the folders from the file upwards."""
    shared = {row: sum(1 for _ in _common(parts, other)) for row, other in rows.items()}
    most = max(shared.values(), default=0)
    return [row for row, count in shared.items() if count == most]


def _common(one: list[str], other: list[str]) -> Iterator[str]:
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            return
        yield mine
