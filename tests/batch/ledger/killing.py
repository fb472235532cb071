"""Kills exports by SIGKILL, or starts several at once, and prints what was wrong in the end.

A script of its own: it forks, which a process with torch's threads must not.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.dataset  # noqa: F401  (before the forks, each of which would import it)

from camapp.batch.ledger import iterate_manifest
from camapp.errors import UsageError
from tests.batch.ledger.exports import contents, export

STEPS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.scandir", "os.listdir", "fcntl.flock")


def at_every_step(place: Path, prepare: Callable[[Path], None], run: Callable[[Path, Path], None]) -> dict[str, object]:
    """Kill a run before its first, second, ... call of the system, until one comes through; check each that did not."""
    prepare(place / "whole")
    assert in_a_fork(lambda: run(place / "whole", place / "whole.log")) == 0
    expected, wrong, step = contents(place / "whole"), [], 0
    while True:
        out = place / f"killed{step}"
        prepare(out)
        if in_a_fork(lambda out=out, step=step: killed_at(step, out, run)) == 0:
            return {"steps": step, "wrong": wrong}
        wrong += [f"step {step}: {fault}" for fault in faults(out, run, expected)]
        step += 1


def after_some_time(
    place: Path, prepare: Callable[[Path], None], run: Callable[[Path, Path], None]
) -> dict[str, object]:
    """Kill a run after ever longer times, until one comes through; check each that did not."""
    prepare(place / "whole")
    assert in_a_fork(lambda: run(place / "whole", place / "whole.log")) == 0
    expected, wrong, step = contents(place / "whole"), [], 0
    while True:
        out = place / f"killed{step}"
        prepare(out)
        if in_a_fork(lambda out=out: run(out, out.with_suffix(".log")), seconds=0.001 * step) == 0:
            return {"steps": step, "wrong": wrong}
        wrong += [f"time {step}: {fault}" for fault in faults(out, run, expected)]
        step += 1


def at_once(place: Path, prepare: Callable[[Path], None], run: Callable[[Path, Path], None]) -> dict[str, object]:
    """Start four runs at once, ten times; each shard is to be done once, by the one that was not refused."""
    prepare(place / "whole")
    assert in_a_fork(lambda: run(place / "whole", place / "whole.log")) == 0
    expected, wrong = contents(place / "whole"), []
    for step in range(10):
        out = place / f"shared{step}"
        prepare(out)
        logs = [place / f"shared{step}.{number}.log" for number in range(4)]
        children = [begun(lambda out=out, log=log: run(out, log)) for log in logs]
        for child in children:
            os.waitpid(child, 0)
        worked = sorted(line for log in logs if log.exists() for line in log.read_text().split())
        wrong += [f"shards done: {worked}"] * (worked != ["0", "1", "2", "3"])
        wrong += [f"other contents: {sorted(contents(out))}"] * (contents(out) != expected)
    return {"steps": 10, "wrong": wrong}


def faults(out: Path, run: Callable[[Path, Path], None], expected: dict[str, bytes]) -> list[str]:
    """What is wrong after a run was killed and started again."""
    done = {int(path.stem) for path in out.glob(".camapp/shards/0*.parquet")}
    again = out.with_suffix(".again")
    again.touch()
    status = in_a_fork(lambda: run(out, again))
    found = []
    if status != 0:
        found.append(f"the second start ended with {status}")
    if (out / ".camapp" / "run.json").exists():
        found.append("the second start did not come to an end")
    if "overwrite" not in sys.argv and done & {int(line) for line in again.read_text().split()}:
        found.append(f"of the finished shards {done}, some were done again: {again.read_text().split()}")
    here = contents(out)
    different = [name for name in sorted({*here, *expected}) if here.get(name) != expected.get(name)]
    return found + ([f"other contents: {different}"] if different else [])


def killed_at(step: int, out: Path, run: Callable[[Path, Path], None]) -> None:
    left = [step]

    def count(event: str, args: tuple[object, ...]) -> None:
        if event not in STEPS or (event != "fcntl.flock" and str(out) not in str(args[0])):
            return
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1

    sys.addaudithook(count)
    run(out, out.with_suffix(".log"))


def in_a_fork(action: Callable[[], None], seconds: float | None = None) -> int:
    """The exit status of an action in a process of its own: 0, -9 if it was killed, 1 after an error."""
    child = begun(action)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def begun(action: Callable[[], None]) -> int:
    """The number of a process that runs an action."""
    child = os.fork()
    if child:
        return child
    try:
        action()
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        os._exit(1)
    os._exit(0)


def nothing(out: Path) -> None:
    """Begin where nothing is."""


def an_older_export(out: Path) -> None:
    """Begin where a finished export of other settings is, and a file that is none of its."""
    assert in_a_fork(lambda: export(out, ending="old")) == 0
    (out / "a" / "mine.txt").write_text("mine")


def fresh(out: Path, log: Path) -> None:
    """An export; where it finds itself finished, it was killed as it cleaned up."""
    try:
        export(out, logging_to(log))
    except UsageError as error:
        if "finished export" not in str(error):
            raise


def replacing(out: Path, log: Path) -> None:
    """An export in the place of another. What a killed one left is whole, or is gone on with without being asked."""
    if log.suffix == ".again":
        try:
            export(out, logging_to(log))
        except UsageError as error:
            if "finished export" not in str(error) or not all((out / file).exists() for file in files_of(out)):
                raise
    if not (out / "manifest.parquet").exists() or files_of(out)[0].endswith(".old"):
        export(out, logging_to(log), overwrite=True)


def files_of(out: Path) -> list[str]:
    return [file for row in iterate_manifest(out) for file in row["files"]]


def logging_to(log: Path) -> Callable[[int], object]:
    def write(shard: int) -> None:
        with log.open("a") as file:
            file.write(f"{shard}\n")

    return write


if __name__ == "__main__":
    kill = {"steps": at_every_step, "times": after_some_time, "together": at_once}[sys.argv[1]]
    prepare, run = {"fresh": (nothing, fresh), "overwrite": (an_older_export, replacing)}[sys.argv[2]]
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(kill(Path(folder), prepare, run)))
