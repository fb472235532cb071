"""``python -m benchmarks NAME [--json]``; ``python -m benchmarks scaling`` has options of its own."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from importlib import import_module
from importlib.metadata import version

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.measure import Row

BENCHMARKS = ("cam", "methods", "features", "hooks", "export", "page")


def main() -> None:
    """Run one benchmark; exit code 1 when a row misses its bound."""
    if sys.argv[1:2] == ["scaling"]:
        sys.exit(import_module("benchmarks.scaling").main(sys.argv[2:]))
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", choices=BENCHMARKS)
    parser.add_argument("--json", action="store_true", help="one JSON object a row")
    parser.add_argument("--rounds", type=int, default=15, help="interleaved rounds a row (default 15)")
    parser.add_argument("--threads", type=int, default=2, help="torch threads (default 2)")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows: list[Row] = []
    for row in import_module(f"benchmarks.{options.name}").run(options.rounds):
        rows.append(row)
        if options.json:
            print(json.dumps(row.to_dict()), flush=True)
    if not options.json:
        _print(rows, options)
    sys.exit(0 if all(row.met is not False for row in rows) else 1)


def _print(rows: list[Row], options: argparse.Namespace) -> None:
    table = Table(title=f"benchmarks {options.name}", title_justify="left", box=None, pad_edge=False)
    for column, justify in (
        ("what", "left"),
        ("ratio", "right"),
        ("bound", "right"),
        ("", "left"),
        ("figures", "left"),
    ):
        table.add_column(column, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for row in rows:
        verdict = {True: "met", False: "MISSED", None: ""}[row.met]
        table.add_row(row.what, f"{row.ratio:.3g}", row.bound or "", verdict, row.figures)
    console = Console(width=200)
    console.print(table)
    peers = ", ".join(f"{name} {version(name)}" for name in ("torch", "torchvision", "grad-cam", "torchcam", "captum"))
    console.print(f"{peers}; Python {platform.python_version()}, {options.threads} threads, {options.rounds} rounds")


if __name__ == "__main__":
    main()
