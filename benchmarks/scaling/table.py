"""What was estimated, as tables: for a terminal, and for a page in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.scaling.figures import IDLE, Figures
from benchmarks.scaling.fleet import Fleet, estimate
from benchmarks.scaling.pipeline import Layout, Machine, pace
from benchmarks.scaling.published import FLOAT32_SLOWER, GPU, GPU_RATES, PRICES, PRICES_AS_OF
from benchmarks.scaling.shapes import GPU_RATE, next_step

Rows = list[list[str]]


def estimates(fleets: Sequence[Fleet], figures: Figures, kind: str, numbers: Sequence[int]) -> Rows:
    """A row a fleet: pictures a second, time and dollars for each number, what saturates, what to add; heads first.

    The last columns are of the last number.
    """
    heads = ["machines", "pictures/s"]
    for number in numbers:
        heads += [f"{number:,}", "dollars"]
    rows = [[*heads, "of it accounting", "saturated", "next"]]
    for fleet in fleets:
        all_of_it = [estimate(fleet, figures, kind, number) for number in numbers]
        row = [fleet.name, f"{all_of_it[-1].rate:,.0f}"]
        for one in all_of_it:
            row += [_time(one.seconds), f"{one.dollars:,.0f}" if fleet.price else "-"]
        last = all_of_it[-1]
        rows.append(
            [
                *row,
                f"{last.accounting / last.seconds:.0%}",
                last.saturated,
                next_step(fleet, figures, kind, numbers[-1]),
            ]
        )
    return rows


def measured(figures: Figures) -> Rows:
    """What was measured on this machine."""
    rows = [["milliseconds of one processor", *figures.kinds]]
    stages = list(figures.kinds.values())
    rows += [
        [f"{name}, a picture", *(f"{getattr(one, name) * 1e3:.1f}" for one in stages)]
        for name in ("read", "decode", "model", "write")
    ]
    rows.append(["of read, decode and write: holds the interpreter", *(f"{one.held * 1e3:.1f}" for one in stages)])
    rows.append(["model's thread beside the arithmetic, a batch", *(f"{one.launch * 1e3:.1f}" for one in stages)])
    rows.append(["the same, a picture", *(f"{one.launch_picture * 1e3:.2f}" for one in stages)])
    rows.append(["borders of a shard", *(f"{one.shard * 1e3:.0f}" for one in stages)])
    rows.append(["kB read, a picture", *(f"{one.read_bytes / 1e3:.0f}" for one in stages)])
    rows.append(["kB written, a picture", *(f"{one.written_bytes / 1e3:.0f}" for one in stages)])
    return rows


def waiting(figures: Figures, kind: str) -> Rows:
    """Pictures a second of 16 processors whose pictures come late, by threads of each worker."""
    threads = (0, 1, 2, 4)
    rows = [["until the first byte", *(f"threads: {count}" for count in threads)]]
    for latency in (0.0, 0.01, 0.03, 0.1):
        machine = Machine(16, store=1.25e9, latency=latency)
        rates = [pace(machine, Layout(16, count), figures.kinds[kind]).rate for count in threads]
        rows.append([f"{latency * 1e3:.0f} ms", *(f"{rate:,.0f}" for rate in rates)])
    return rows


def notes(figures: Figures) -> list[str]:
    """What the figures rest on, in sentences."""
    ledger, million = figures.ledger, 1_000_000
    busy = (
        f" The machine was not idle (load {figures.busy:.1f}): what holds the interpreter, and with it every row with "
        "a GPU, starting and accounting are worse here than they are."
    )
    return [
        f"Measured on {figures.date}: {figures.machine}.{busy if figures.busy > IDLE else ''}",
        f"A worker starts in {figures.startup:.1f} s; accounting takes {ledger.open * million:.1f} s a million inputs "
        f"to begin, {ledger.resume * million:.1f} s to resume, {ledger.close * million:.1f} s to close.",
        f"GPU figures are computed, not measured here: {GPU_RATE:,.0f} forwards a second, 1/{FLOAT32_SLOWER:g} (an "
        f"assumption, for float32) of what was published for an {GPU} ({GPU_RATES[GPU].source}).",
        f"Dollars an hour, networks and the store's rate are assumptions ({PRICES_AS_OF}): "
        f"{', '.join(f'{name} {price:.2f}' for name, price in PRICES.items())}; give your own with --price.",
    ]


def as_markdown(rows: Rows) -> str:
    """A table of a page; the first row are the heads."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    sides = " | ".join(["---", *["---:"] * (len(rows[0]) - 1)])
    return "\n".join([lines[0], f"| {sides} |", *lines[1:]])


def as_text(rows: Rows) -> str:
    """A table of a terminal."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _time(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 100 * 3600 else f"{seconds / 86400:,.0f} days"
