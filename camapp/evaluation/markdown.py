"""The text of a report: a table of methods and metrics, what was measured, and how to read it."""

from __future__ import annotations

import math

from camapp.evaluation.records import DRAWN, Measured, SummaryRow
from camapp.version import VERSION

ARROWS = {"higher": "↑", "lower": "↓"}


def report_text(report: Measured) -> str:
    """The report in Markdown."""
    count = len(report.pictures)
    heading = f"# {report.model}: how good the maps are\n"
    random = "**RANDOM WEIGHTS: these values mean nothing.**\n" if report.weights["random"] else ""
    skipped = f", {len(report.failures)} skipped" if report.failures else ""
    parts = [
        heading,
        random,
        f"{count} picture{'s' * (count != 1)}{skipped}. Explained: {report.settings['target']}. camapp {VERSION}.\n",
        _table(report),
        "Bold is the best value of a column among the methods. ± is the standard error over pictures: values that "
        "differ by less than two of them are not told apart. The baselines know nothing of the model: a method that "
        "does not beat them tells nothing in that column. (The uniform map, which hides nothing, wins Average Drop by "
        "its nature.)\n",
        "![Curves](curves.png)\n" if any(curve.metric in DRAWN for curve in report.curves) else "",
        "![Maps](maps.jpg)\n" if any(example.maps for example in report.examples) else "",
        _metrics(report),
        _costs(report),
        _notes(report),
        _facts(report),
    ]
    return "\n".join(part for part in parts if part)


def _table(report: Measured) -> str:
    metrics = {row.metric: row for row in report.summary}
    cells = {(row.kind, row.method, row.layer, row.metric): row for row in report.summary}
    rows = list(dict.fromkeys((row.kind, row.method, row.layer) for row in report.summary))
    best = {name: _best(report, name) for name in metrics}
    header = ["method", "layer", *map(_heading, metrics.values())]
    lines = ["| " + " | ".join(map(_escape, header)) + " |", "| --- | --- |" + " ---: |" * len(metrics)]
    told = False
    for kind, method, layer in rows:
        if kind == "baseline" and not told:
            lines.append("| *baselines* | |" + " |" * len(metrics))
            told = True
        name = f"*{method}*" if kind == "baseline" else method
        shown = [_cell(cells.get((kind, method, layer, metric)), best[metric]) for metric in metrics]
        lines.append("| " + " | ".join([name, f"`{layer}`" if layer else "", *shown]) + " |")
    return "\n".join(lines) + "\n"


def _heading(row: SummaryRow) -> str:
    unit = f" {row.scale}" if row.scale and row.scale not in row.title else ""
    return f"{row.title}{unit} {ARROWS[row.direction]}"


def _best(report: Measured, metric: str) -> float:
    rows = [
        row for row in report.summary if row.metric == metric and row.kind == "method" and not math.isnan(row.value)
    ]
    if len(rows) < 2:
        return math.nan  # the best of one is no news
    choose = max if rows[0].direction == "higher" else min
    return choose(row.value for row in rows)


def _cell(row: SummaryRow | None, best: float) -> str:
    if row is None or math.isnan(row.value):
        return "–"
    text = number(row.value)
    if row.kind == "method" and text == number(best):
        text = f"**{text}**"
    return text if math.isnan(row.standard_error) else f"{text} ± {number(row.standard_error, row.value)}"


def number(value: float, like: float | None = None) -> str:
    """Three decimals for small numbers, one for large ones, scientific beyond; ``like`` is a number to align with."""
    if math.isnan(value):
        return "–"
    size = abs(value if like is None else like)
    if size and not 5e-4 <= size < 1e5:
        return f"{value:.2e}"
    return f"{value:.3f}" if size < 10 else f"{value:.1f}"


def _metrics(report: Measured) -> str:
    rows = {row.metric: row for row in report.summary}.values()
    lines = ["## The metrics\n", "| name | title | better | what it measures |", "| --- | --- | --- | --- |"]
    lines += [
        f"| `{row.metric}` | {_escape(row.title)} | {row.direction} | {_escape(report.metrics.get(row.metric, ''))} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def _costs(report: Measured) -> str:
    rows = list({(row.method, row.layer): row for row in report.summary if row.kind == "method"}.values())
    lines = [
        "## Cost and blank maps\n",
        "| method | layer | ms a picture | blank | refused |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    for row in rows:
        time = "–" if math.isnan(row.seconds_per_picture) else f"{row.seconds_per_picture * 1000:.1f}"
        layer = f"`{row.layer}`" if row.layer else ""
        lines.append(f"| {row.method} | {layer} | {time} | {row.blanks} | {row.refused} |")
    return "\n".join(lines) + "\n"


def _notes(report: Measured) -> str:
    notes = [_escape(note) for note in report.notes]
    notes += [f"skipped `{_escape(one.picture)}`: {_escape(one.reason)}" for one in report.failures]
    refusals: dict[tuple[str, str, str], str] = {}
    for value in report.values:
        if value.state != "measured" and value.reason:
            refusals.setdefault((value.method, value.layer, value.reason), value.picture)
    notes += [f"{method} at `{layer}` {_escape(reason)}" for method, layer, reason in refusals]
    if not notes:
        return ""
    return "## Notes\n\n" + "\n".join(f"- {note}" for note in notes) + "\n"


def _facts(report: Measured) -> str:
    facts = {
        "model": report.model,
        "weights": report.weights["source"],
        "SHA-256": report.weights["sha256"] or "–",
        **{key.replace("_", " "): _shown(value) for key, value in report.settings.items()},
        **report.versions,
    }
    lines = [f"| {key} | {_escape(str(value))} |" for key, value in facts.items()]
    return "\n".join(["## What was measured\n", "| | |", "| --- | --- |", *lines]) + "\n"


def _shown(value: object) -> str:
    if value is None:
        return "–"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
