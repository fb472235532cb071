"""The text of a probe's report: what it got right, each class, and what it takes for what."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from camapp.features.probe.report import ProbeReport

TITLES = {"linear": "Logistic regression", "ridge": "Ridge regression", "knn": "Nearest neighbours"}
# At most so many rows a table; the whole lists are in report.json and misclassified.csv.
_MOST_PAIRS = 10
_MOST_PICTURES = 20


def report_text(report: ProbeReport) -> str:
    """The report in Markdown."""
    wrong = len(report.misclassified)
    parts = [
        f"# {TITLES[report.kind]}: {percent(report.accuracy)} of {report.pictures} pictures\n",
        _overall(report),
        "## Classes\n",
        table(
            ["class", "precision", "recall", "F1", "pictures"],
            ([one.name, *map(percent, (one.precision, one.recall, one.f1)), one.support] for one in report.measures),
        ),
        _pairs(report) if wrong else "",
        _pictures(report) if wrong else "",
        "## Notes\n\n" + "".join(f"- {escape(note)}\n" for note in report.notes) if report.notes else "",
        "## How it was fitted\n",
        table(["setting", "value"], _settings(report)),
    ]
    return "\n".join(part for part in parts if part)


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table: text to the left, the columns after the first to the right where they are numbers."""
    cells = [[escape(str(cell)) for cell in row] for row in rows]
    numbers = [all(_is_number(row[column]) for row in cells) for column in range(len(header))]
    lines = [header, ["---:" if number else "---" for number in numbers], *cells]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def percent(share: float) -> str:
    """``"93.2 %"``; a dash where undefined."""
    return "–" if math.isnan(share) else f"{100 * share:.1f} %"


def escape(text: str) -> str:
    """Text as one cell of a table, or one line of a list, whatever signs it holds."""
    for sign in "\\|`*[]<>":
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.split())


def _is_number(cell: str) -> bool:
    return cell == "–" or cell.removesuffix(" %").replace(".", "", 1).isdigit()


def _overall(report: ProbeReport) -> str:
    rows: list[tuple[str, str]] = [
        ("accuracy", percent(report.accuracy)),
        ("balanced accuracy, the mean recall of the classes", percent(report.balanced_accuracy)),
    ]
    if report.log_loss is not None:
        rows.append(("log loss", f"{report.log_loss:.3f}"))
    rows.append(("told wrong", f"{len(report.misclassified)}"))
    return table(["measure", "value"], rows)


def _pairs(report: ProbeReport) -> str:
    counts = report.confusion.copy()
    np.fill_diagonal(counts, 0)
    pairs = int(np.count_nonzero(counts))
    order = np.argsort(-counts, axis=None, kind="stable")[: min(_MOST_PAIRS, pairs)]
    rows = []
    for place in order.tolist():
        label, predicted = divmod(place, len(counts))
        share = counts[label, predicted] / report.measures[label].support
        names = report.classes[label], report.classes[predicted]
        rows.append([*names, counts[label, predicted], percent(share)])
    more = f"\nAnd {pairs - len(rows)} more pairs (report.json).\n" if pairs > len(rows) else ""
    return "## What is taken for what\n\n" + table(["class", "taken for", "pictures", "of the class"], rows) + more


def _pictures(report: ProbeReport) -> str:
    shown = report.misclassified[:_MOST_PICTURES]
    rows = (
        [one.name, one.label, one.predicted, "–" if one.probability is None else percent(one.probability)]
        for one in shown
    )
    more = len(report.misclassified) - len(shown)
    heading = "## Told wrong, the most confident first\n" if report.kind != "ridge" else "## Told wrong\n"
    return (
        f"{heading}\n{table(['picture', 'class', 'taken for', 'probability'], rows)}"
        f"{f'{chr(10)}And {more} more.{chr(10)}' if more else ''}"
    )


def _settings(report: ProbeReport) -> Iterable[tuple[str, str]]:
    for name, value in report.settings.items():
        if name == "cross_validated_accuracy":
            yield "cross-validated accuracy", percent(value)
        elif name != "tried":
            yield name.replace("_", " "), f"{value:g}" if isinstance(value, float) else str(value)
