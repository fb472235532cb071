"""What the commands of exports share: their options, progress, signals and exit codes."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from camapp.cli.options import FAILED, SOME_FAILED
from camapp.terminal import complain, err, out, print_object

if TYPE_CHECKING:
    from camapp.batch import ExportReport, RunOptions

INTERRUPTED = 130
# Seconds between two lines of --json.
_EVERY = 1.0

BatchesOption = Annotated[int, typer.Option("--batch-size", help="How many pictures run at once.")]
PathColumnOption = Annotated[str | None, typer.Option("--path-column", help="Column of a table that holds the paths.")]
LabelColumnOption = Annotated[str | None, typer.Option("--label-column", help="Column that holds the labels.")]
ShardOption = Annotated[int, typer.Option("--shard-size", help="Pictures in a shard, which is done as a whole or not.")]
PrecisionOption = Annotated[
    str, typer.Option(help="float32, or bfloat16 or float16: faster on GPUs, and the last digits differ.")
]
DraftOption = Annotated[
    bool,
    typer.Option("--draft", help="Decode large JPEGs at 1/2 to 1/8 of their size: faster, and maps differ a little."),
]
ProcessesOption = Annotated[
    int | None, typer.Option("--workers", help="Processes; one for each processor, or for each GPU.")
]
ThreadsOption = Annotated[
    int | None, typer.Option("--threads", help="Of each worker, to read, decode and write beside the model.")
]
PerGpuOption = Annotated[int, typer.Option("--workers-per-gpu", help="Workers that share a GPU.")]
EngineOption = Annotated[
    Literal["local", "ray"], typer.Option("--engine", help="local: processes of this machine; ray: a Ray cluster.")
]
AddressOption = Annotated[
    str | None,
    typer.Option("--ray-address", metavar="HOST:PORT", help="Cluster to join, or auto; by default one of its own."),
]
ErrorsOption = Annotated[int | None, typer.Option("--max-errors", help="End once more pictures than that have failed.")]
StrictOption = Annotated[bool, typer.Option("--strict", help="End at the first picture that fails.")]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Start anew where the folder holds an export.")]
JsonLinesOption = Annotated[bool, typer.Option("--json", help="Progress and result as JSON, one object a line.")]


def exported(run: Callable[[RunOptions], Any], options: RunOptions, *, as_json: bool) -> None:
    """Run an export with progress, end it cleanly on SIGINT and SIGTERM, and say how it ended.

    Exit codes: 0 all done, 3 finished with failures, 130 ended early; errors as in all commands.
    """
    from camapp.batch import TooManyFailures

    stop = threading.Event()
    try:
        with _signals(stop), _progress(as_json) as progress:
            report: ExportReport = run(replace(options, progress=progress, stop=stop))
    except TooManyFailures as error:
        if as_json:
            print_object({"event": "ended", "error": str(error)})
        raise
    except KeyboardInterrupt:
        complain("ended at once; resume with the same command")
        raise typer.Exit(INTERRUPTED) from None
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        complain(f"{error.strerror or error}{where}. What was done is kept; resume with the same command")
        raise typer.Exit(FAILED) from error
    _tell(report, as_json=as_json)
    if not report.finished:
        so_far = report.done + report.failed
        complain(f"ended early, {so_far:,} of {report.total:,} done; resume with the same command")
        raise typer.Exit(INTERRUPTED)
    if report.failed:
        complain(f"{report.failed:,} of {report.total:,} pictures failed; {report.out / 'manifest.parquet'} says why")
        raise typer.Exit(SOME_FAILED)


def _tell(report: ExportReport, *, as_json: bool) -> None:
    if as_json:
        print_object(
            {
                "event": "finished" if report.finished else "ended",
                "out": str(report.out),
                "total": report.total,
                "done": report.done,
                "failed": report.failed,
                "resumed": report.resumed,
                "seconds": round(report.seconds, 3),
                "pictures_a_second": round(report.rate, 3),
            }
        )
        return
    resumed = " (resumed)" if report.resumed else ""
    out.print(
        f"{report.done:,} of {report.total:,} pictures in {report.out}{resumed}, {report.rate:.1f} a second",
        markup=False,
    )


@contextmanager
def _signals(stop: threading.Event) -> Iterator[None]:
    """The first SIGINT or SIGTERM lets the shards under way finish; the next one ends at once."""
    before: dict[signal.Signals, Any] = {}

    def on_signal(number: int, frame: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        complain("finishing the shards under way; once more ends at once")

    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, on_signal)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _progress(as_json: bool) -> Iterator[Callable[[int, int, int], None] | None]:
    if as_json:
        yield _json_lines()
    elif err.is_terminal and sys.stderr.isatty():
        with _bar() as told:
            yield told
    else:
        yield None


def _json_lines() -> Callable[[int, int, int], None]:
    rate, last = _Rate(), time.monotonic()

    def told(done: int, failed: int, total: int) -> None:
        nonlocal last
        rate.told(done + failed)
        if time.monotonic() - last >= _EVERY:
            last = time.monotonic()
            counts = {"done": done, "failed": failed, "total": total}
            left = round((total - done - failed) / rate.now, 1) if rate.now else None
            speed = round(rate.now, 3) if rate.now else None
            print_object({"event": "progress", **counts, "pictures_a_second": speed, "seconds_left": left})

    return told


class _Rate:
    """Pictures a second since the first ones of this run were done: starting, and runs before, count for nothing."""

    def __init__(self) -> None:
        self.now: float | None = None
        self._first: tuple[int, float] | None = None

    def told(self, count: int) -> None:
        """So many are through."""
        if self._first is None:
            self._first = count, time.monotonic()
        done, seconds = count - self._first[0], time.monotonic() - self._first[1]
        self.now = done / seconds if done > 0 and seconds > 0 else None


@contextmanager
def _bar() -> Iterator[Callable[[int, int, int], None]]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
    )
    with Progress(*columns, console=err, transient=True) as bar:
        task, rate = bar.add_task("starting", total=None, rate=""), _Rate()

        def told(done: int, failed: int, total: int) -> None:
            rate.told(done + failed)
            words = "exporting" if not failed else f"exporting, {failed:,} failed"
            speed = ""
            if rate.now:
                left = timedelta(seconds=round((total - done - failed) / rate.now))
                speed = f"{rate.now:.1f}/s, {left} left"
            bar.update(task, completed=done + failed, total=total, rate=speed, description=words)

        yield told
