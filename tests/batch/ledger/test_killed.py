"""Killed at any step or at any time, and started again, an export ends as if nothing had been."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from camapp import files
from camapp.batch.ledger import Ledger
from tests.batch.ledger.exports import contents, export, open_ledger, work

ROOT = Path(__file__).parents[3]


def killed(how: str, what: str) -> dict[str, object]:
    run = subprocess.run(
        [sys.executable, "-m", "tests.batch.ledger.killing", how, what],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the runs are forked")
@pytest.mark.parametrize(
    ("how", "what"),
    [("steps", "fresh"), pytest.param("steps", "overwrite", marks=pytest.mark.slow), ("times", "fresh")],
)
def test_an_export_killed_anywhere_ends_as_an_unbroken_one(how: str, what: str) -> None:
    told = killed(how, what)
    assert told["wrong"] == []
    assert told["steps"] > (60 if how == "steps" else 3)  # how many kills there were


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the runs are forked")
def test_of_runs_at_once_one_makes_the_export_and_each_shard_is_done_once() -> None:
    assert killed("together", "fresh") == {"steps": 10, "wrong": []}


def test_an_export_ends_as_it_should_whichever_rename_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export(tmp_path / "whole")
    expected, rename, failed = contents(tmp_path / "whole"), os.replace, 0
    while True:
        out, left = tmp_path / f"failed{failed}", [failed]

        def replace(source: object, target: object, left: list[int] = left) -> None:
            if left[0] == 0:
                left[0] -= 1
                raise OSError(28, "No space left on device")
            left[0] -= 1
            rename(source, target)  # type: ignore[arg-type]

        monkeypatch.setattr(os, "replace", replace)
        try:
            export(out)
        except (OSError, ValueError):
            monkeypatch.setattr(os, "replace", rename)
            assert not [path for path in out.rglob("*") if files.is_temporary(path.name)]
            export(out)
        else:
            break
        assert contents(out) == expected
        failed += 1
    assert failed > 12  # the lock, the plan, run.json, the outputs, the shards, the manifest, run.json


def test_what_a_killed_run_left_half_written_goes(tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        ledger.finish_shard(0, [work(tmp_path, 0, one) for one in ledger.items(0)])
    left = [
        ".one.txt.0123456789ab.part",
        "a/.two.txt.0123456789ab.part",
        ".camapp/shards/.00001.parquet.0123456789ab.part",
    ]
    kept = [".one.txt.part", "a/mine.part", "a/.x.0123456789AB.part"]
    for name in left + kept:
        (tmp_path / name).write_text("half")
    (tmp_path / ".folder.0123456789ab.old").mkdir()
    with open_ledger(tmp_path) as ledger:
        assert isinstance(ledger, Ledger)
    assert [name for name in left if (tmp_path / name).exists()] == []
    assert not (tmp_path / ".folder.0123456789ab.old").exists()
    assert [name for name in kept if (tmp_path / name).exists()] == kept
