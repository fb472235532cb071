"""What the Batch tab shows: how far the batch is, a gallery of overlays as they come, and a row for each file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from camapp.batch.live import Given
from camapp.batch.live.class_table import TableClasses
from camapp.ui.batch.working import Finished
from camapp.ui.frame.component import view
from camapp.ui.frame.pictures import data_url
from camapp.ui.frame.words import percent

_HERE = Path(__file__).parent
_LISTED = 8

Row = dict[str, Any]


def batch_view(**options: Any) -> gr.HTML:
    """The component; its value is made by ``view_of``, or ``{"error": message}``, or None for the invitation.

    It triggers ``open`` with the ``run`` and ``number`` of a picture that is to be opened in Explain.
    """
    return view(_HERE, "view", **options)


def waiting_rows(given: Given) -> list[Row]:
    """A row for each file that was given, before anything is done."""
    return [{"number": number, "name": item.name, "status": "waiting"} for number, item in enumerate(given.items)]


def finished_row(finished: Finished) -> Row:
    """The row of a picture that is finished, with its overlay as a thumbnail: plain data, fit for JSON.

    Args:
        finished: the picture.
    """
    outcome, record = finished.outcome, finished.record
    row: Row = {"number": finished.number, "name": outcome.item.name, "status": outcome.status}
    row |= {"reason": outcome.reason, "seconds": f"{outcome.seconds:.2f} s" if outcome.seconds else ""}
    explanation = outcome.explanation
    if explanation is None or finished.look is None:
        return row
    label, share = record["label"], percent(explanation.classes[0].probability)
    width, height = explanation.picture.full_size
    facts = [
        ["Class", f"{label} ({record['index']})"],
        ["Probability", share],
        ["Logit", f"{record['logit']:.3f}" if record["logit"] is not None else "not finite"],
        ["Picture", f"{width} × {height}"],
        ["Layer", record["layer"] or "the whole network"],
        ["Time", row["seconds"]],
    ]
    return {
        **row,
        "label": label,
        "share": share,
        "thumbnail": data_url("image/jpeg", finished.look.thumbnail),
        "words": finished.look.words,
        "facts": facts,
        "notes": [*(reason for reason in explanation.reasons if reason), *explanation.cautions, *explanation.notes],
        "blank": bool(explanation.reasons[0]),
    }


def view_of(
    rows: Sequence[Row],
    phase: str,
    *,
    run: str = "",
    what: str = "",
    notes: Sequence[str] = (),
    archive_bytes: int = 0,
    copies: Sequence[tuple[str, str]] = (),
) -> dict[str, Any]:
    """What the view shows: every value is whole, so that none that the browser skips is missed.

    Args:
        rows: of all files, in order.
        phase: "given", "running", "done" or "stopped".
        run: the token of the batch; "" before it runs.
        what: the model, method, layer and classes, in words.
        notes: what to know.
        archive_bytes: size of the archive once it is there.
        copies: what the copy buttons are called and give.
    """
    return {
        "rows": list(rows),
        "phase": phase,
        "run": run,
        "token": run if phase in ("done", "stopped") else "",
        "what": what,
        "notes": list(notes),
        "counts": counts_text(rows, phase),
        "share": [sum(row["status"] in ("done", "failed", "left") for row in rows), len(rows)],
        "archive": size_text(archive_bytes) if archive_bytes else "",
        "copies": [list(copy) for copy in copies],
    }


def counts_text(rows: Sequence[Row], phase: str) -> str:
    """How many files there are, or what became of them."""
    total = f"{len(rows):,} file{'' if len(rows) == 1 else 's'}"
    if phase == "given":
        return total
    words = {"done": "done", "failed": "failed", "left": "not done", "running": "running", "waiting": "waiting"}
    counts = {status: sum(row["status"] == status for row in rows) for status in words}
    told = [f"{count:,} {words[status]}" for status, count in counts.items() if count]
    return f"{total}: {', '.join(told)}"


def table_notes(classes: TableClasses | None) -> list[str]:
    """What to know of a table: how many files it has a class for, and what it names that was not given."""
    if classes is None:
        return []
    notes = [f'The column "{classes.column}" of the table has a class for {_files(len(classes.classes))}.']
    if classes.failed:
        notes.append(f"It has none for {_files(len(classes.failed))}, which will fail: {_some(list(classes.failed))}.")
    if classes.unmatched:
        notes.append(f"Not among the files given: {_some(classes.unmatched)}.")
    return notes


def size_text(size: int) -> str:
    """A size as people read it."""
    return f"{size / 2**20:.1f} MB" if size >= 2**20 else f"{max(1, round(size / 2**10))} kB"


def _files(count: int) -> str:
    return f"{count:,} file{'' if count == 1 else 's'}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED:,} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more
