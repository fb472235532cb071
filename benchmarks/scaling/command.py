"""``python -m benchmarks scaling``: what a million and a billion pictures take, on which machines.

Without options the stages are measured on this machine first, for about a minute. Give the shape of a machine of your
own with --cores and the options beside it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.scaling.figures import Figures
from benchmarks.scaling.fleet import Fleet
from benchmarks.scaling.measuring import measure
from benchmarks.scaling.pipeline import Layout, Machine
from benchmarks.scaling.shapes import GPU_RATE, usual_fleets
from benchmarks.scaling.table import as_markdown, as_text, estimates, measured, notes, waiting
from benchmarks.scaling.validating import HEADS, validate
from benchmarks.scaling.work import KINDS

BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables; the exit code."""
    options = _parser().parse_args(arguments)
    try:
        figures = Figures.load(options.figures) if options.figures else measure(_say)
        if options.save:
            figures.save(options.save)
        parts = []
        for part in _parts(figures, options):
            print(part, end="\n\n", flush=True)
            parts.append(part)
        if options.page:
            _put_into(options.page, "\n\n".join(parts))
    except (OSError, ValueError) as error:
        print(f"benchmarks scaling: {error}", file=sys.stderr)
        return 2
    return 0


def _parts(figures: Figures, options: argparse.Namespace) -> Iterator[str]:
    """The tables and what they rest on, one after the other."""
    markdown = options.markdown or options.page
    show, head = (as_markdown, "### {}") if markdown else (as_text, "{}")
    fleets = [_own(options)] if options.cores else usual_fleets(os.cpu_count() or 1)
    for kind in KINDS:
        yield head.format(kind.capitalize())
        yield show(estimates(fleets, figures, kind, options.pictures))
    if not options.cores:
        yield head.format("Features, 16 processors with a worker each, pictures a second")
        yield show(waiting(figures, "features"))
    yield head.format("Measured")
    yield show(measured(figures))
    yield "\n".join(f"- {note}" for note in notes(figures))
    if options.validate:
        _say("validating: exports are run")
        yield head.format("Foretold and run, beyond starting")
        yield show([HEADS, *(check.row() for check in validate(figures))])


def _put_into(page: Path, text: str) -> None:
    """Replace what stands between the marks of a page.

    Raises:
        ValueError: it has none.
    """
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"{page} has no lines {BEGIN} and {END}, between which the tables would stand.")
    page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}")


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def _own(options: argparse.Namespace) -> Fleet:
    """The shape that the options say."""
    gpus = options.gpus
    workers = options.workers or (gpus or options.cores)
    threads = options.threads if options.threads is not None else (max(1, options.cores // workers) if gpus else 0)
    network = options.net_mb_s * 1e6 if options.net_mb_s else None
    machine = Machine(options.cores, gpus, options.gpu_rate if gpus else 0.0, network, options.latency_ms / 1e3)
    name = f"{options.machines} x {options.cores} processors" + (f", {gpus} GPUs" if gpus else "")
    return Fleet(
        f"{name}, {workers} workers x {threads} threads",
        machine,
        Layout(workers, threads, options.shard_size),
        options.machines,
        options.price,
        options.store_mb_s * 1e6 if options.store_mb_s else None,
        options.kills,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks scaling", description=__doc__)
    parser.add_argument("--figures", type=Path, help="figures that --save wrote, instead of measuring")
    parser.add_argument("--save", type=Path, help="keep the measured figures as JSON")
    parser.add_argument("--markdown", action="store_true", help="tables in Markdown")
    parser.add_argument("--page", type=Path, help=f"put them between {BEGIN} and {END} of this file too")
    parser.add_argument("--validate", action="store_true", help="run exports beside what is said of them (minutes)")
    parser.add_argument("--pictures", type=_positive, nargs="+", default=[10**6, 10**9], help="how many")
    own = parser.add_argument_group("a machine of your own")
    own.add_argument("--cores", type=_positive, help="processors of a machine")
    own.add_argument("--gpus", type=int, default=0, help="GPUs of a machine")
    own.add_argument("--gpu-rate", type=float, default=GPU_RATE, help="forwards a second of one GPU")
    own.add_argument("--machines", type=_positive, default=1, help="how many of them")
    own.add_argument("--workers", type=_positive, help="of each; one a GPU or a processor")
    own.add_argument("--threads", type=int, help="of each worker")
    own.add_argument("--shard-size", type=_positive, default=256, help="pictures in a shard")
    own.add_argument("--net-mb-s", type=float, help="megabytes a second to and from a machine, each way")
    own.add_argument("--latency-ms", type=float, default=0.0, help="until the first byte of a picture comes")
    own.add_argument("--store-mb-s", type=float, help="megabytes a second of the store for all machines together")
    own.add_argument("--price", type=float, default=0.0, help="dollars an hour of a machine")
    own.add_argument("--kills", type=float, default=0.0, help="how often an hour a machine is taken away")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return number
