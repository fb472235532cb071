"""A million inputs: opened, resumed and closed in seconds, in little memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

SCRIPT = """
import json, resource, sys, time
from pathlib import Path
from camapp.batch.ledger import Ledger, iterate_manifest, read_manifest
from camapp.batch.records import Guess, Item, Row
from tests.batch.ledger.exports import NameFingerprint

out, count, size = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
figures, start = {}, time.perf_counter()

def items():
    for n in range(count):
        name = f"n{n % 1000:08d}/n{n:08d}_{n % 7919}.JPEG"
        yield Item(name, f"/data/{name}")

def took(what):
    global start
    figures[what] = round(time.perf_counter() - start, 2)
    figures[what + "_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    start = time.perf_counter()

def row(one):
    guesses = tuple(Guess(n, f"class {n}", 0.5) for n in range(one.number % 900, one.number % 900 + 5))
    return Row(one.number, one.item, "failed" if one.number % 1000 == 7 else "done", width=500, height=375,
        predictions=guesses, explained=("tabby",), files=(f"{one.stem}.png",))

took("import")
for _ in items(): pass
took("list")
with Ledger.open(out, {}, items, NameFingerprint, shard_size=size) as ledger:
    took("open")
    for shard in ledger.todo():
        ledger.finish_shard(shard, [row(one) for one in ledger.items(shard)])
    took("work")
with Ledger.open(out, {}, items, NameFingerprint, shard_size=size) as ledger:
    took("resume")
    figures["todo"], figures["counts"] = len(ledger.todo()), ledger.counts()
    took("counts_and_todo")
    ledger.close_export()
    took("close")
figures["manifest_mb"] = (out / "manifest.parquet").stat().st_size >> 20
figures["failed"] = len(read_manifest(out, columns=["name"], filters=[("status", "=", "failed")]))
took("filter")
figures["rows"] = sum(1 for _ in iterate_manifest(out, columns=["number"]))
took("iterate")
print(json.dumps(figures))
"""


def figures(out: Path, count: int, size: int) -> dict[str, float]:
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(out), str(count), str(size)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs resource")
def test_a_million_inputs_are_planned_resumed_and_closed_in_seconds(tmp_path: Path) -> None:
    told = figures(tmp_path / "out", 1_000_000, 1000)
    print(told)
    assert told["counts"] == [999_000, 1000, 1_000_000]
    assert (told["todo"], told["failed"], told["rows"]) == (0, 1000, 1_000_000)
    assert told["open"] - told["list"] < 60
    assert told["resume"] - told["list"] < 30
    assert told["close"] < 60
    assert max(told["open_mb"], told["close_mb"]) - told["import_mb"] < 700
