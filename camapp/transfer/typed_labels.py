"""with_typed_labels: labels that a person typed, one line a picture, put to the pictures of a table of features."""

from __future__ import annotations

import csv
from collections import defaultdict

from camapp.errors import UsageError, did_you_mean
from camapp.features.table import FeatureTable

# A label is read on a button, in a table's head and in a legend.
LONGEST_LABEL = 60
# How many names a message tells.
_TOLD = 3


def with_typed_labels(table: FeatureTable, text: str) -> FeatureTable:
    """The pictures of a table that have a label in a text, with it.

    Each line is either ``name,label`` (the name as in the table, or its last part where only one picture has it; a name
    with a comma stands in quotes), or, if no line has a comma, the label of the next picture in the order of the table.
    Lines of a name without a label leave the picture out; those that are empty or begin with ``#`` are skipped.

    Args:
        table: features of N pictures; labels that it has are replaced.
        text: what was typed.

    Returns:
        The table of those pictures, in its order.

    Raises:
        UsageError: no label at all, one that is too long, a name that no picture or several have, two labels for one
            picture, or, without names, another number of labels than of pictures.
    """
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    if not lines:
        raise UsageError("No labels were typed. Type one a line: name,label.")
    if not any("," in line for line in lines):
        if len(lines) != len(table):
            raise UsageError(
                f"{len(lines)} label(s) for {len(table)} picture(s). Type one a line for every picture, in their "
                f"order; or with names: {table.names[0]},label"
            )
        for line in lines:
            check_length(line, line)
        return table.with_labels(lines)
    labels = _by_row(table.names, lines)
    if not labels:
        raise UsageError(f'Every line lacks its label, such as "{lines[0]}". Type it behind the comma.')
    rows = sorted(labels)
    return table.rows(rows).with_labels([labels[row] for row in rows])


def check_length(label: str, where: str) -> None:
    """Refuse a label of more than ``LONGEST_LABEL`` characters: cut short, two classes might become one.

    Args:
        label: the label.
        where: the line or the picture that has it, for the message.

    Raises:
        UsageError: it is too long.
    """
    if len(label) > LONGEST_LABEL:
        raise UsageError(
            f'A label has {len(label)} characters; {LONGEST_LABEL} are the most: "{where[:120]}". Shorten it.'
        )


def _by_row(names: tuple[str, ...], lines: list[str]) -> dict[int, str]:
    rows_of: dict[str, list[int]] = defaultdict(list)
    for row, name in enumerate(names):
        for called in {name, name.rpartition("/")[2]}:
            rows_of[called].append(row)
    exact = {name: row for row, name in enumerate(names)}
    labels: dict[int, str] = {}
    for line in lines:
        name, label = _cells(line)
        check_length(label, line)
        row = exact[name] if name in exact else _the_only(name, rows_of.get(name, []), names)
        if label and labels.setdefault(row, label) != label:
            raise UsageError(f'{names[row]} has two labels, "{labels[row]}" and "{label}". Keep one of the lines.')
    return labels


def _cells(line: str) -> tuple[str, str]:
    cells = [cell.strip() for cell in next(csv.reader([line], skipinitialspace=True))]
    if len(cells) != 2:
        raise UsageError(
            f'The line "{line[:80]}" is no name,label: it has {len(cells)} part(s). Put a name with a comma in quotes.'
        )
    return cells[0], cells[1]


def _the_only(name: str, rows: list[int], names: tuple[str, ...]) -> int:
    if not rows:
        raise UsageError(f'No picture is called "{name[:80]}".{did_you_mean(name, names)} Type the names as listed.')
    if len(rows) > 1:
        which = ", ".join(names[row] for row in rows[:_TOLD])
        raise UsageError(f'{len(rows)} pictures are called "{name}" ({which}). Type the name with its folder.')
    return rows[0]
