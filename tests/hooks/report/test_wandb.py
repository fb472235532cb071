"""Weights & Biases: a real run, offline, whose file holds what the snapshots do."""

from __future__ import annotations

import json
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from camapp.errors import UsageError
from camapp.hooks.report.records import Snapshot
from camapp.hooks.report.wandb import WandB
from tests.hooks.report.snapshots import ordinary, sick

wandb = pytest.importorskip("wandb")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("WANDB_SILENT", "true")
    quiet = wandb.Settings(console="off", x_disable_stats=True, x_disable_meta=True)
    with wandb.init(mode="offline", dir=str(tmp_path), project="camapp", settings=quiet) as going_on:
        yield going_on


def read_back(folder: Path) -> tuple[list[dict[str, float]], dict[str, str]]:
    """The rows that a finished offline run has logged, and the step metric of each group."""
    rows = []
    metrics = {}
    for record in _records_of_finished_run(folder):
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            rows.append({item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items})
        elif record.WhichOneof("record_type") == "metric" and record.metric.glob_name:
            metrics[record.metric.glob_name] = record.metric.step_metric
    return rows, metrics


def _records_of_finished_run(folder: Path) -> list[Any]:
    """All records; wandb's own process may write the last of them after ``finish`` has returned (wandb 0.31)."""
    from wandb.proto import wandb_internal_pb2

    (path,) = folder.glob("wandb/offline-run-*/*.wandb")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        records = [wandb_internal_pb2.Record.FromString(data) for data in _log_records(path.read_bytes())]
        if any(record.WhichOneof("record_type") == "exit" for record in records):
            return records
        time.sleep(0.1)
    raise TimeoutError(f"{path} has no end after a minute")


def _log_records(data: bytes, block: int = 32768) -> Iterator[bytes]:
    """The records of a log in LevelDB's format, behind wandb's header of seven bytes."""
    at, parts = 7, b""
    while at + 7 <= len(data):
        if block - at % block < 7:
            at += block - at % block
            continue
        size, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        if at + 7 + size > len(data):  # still being written
            return
        parts += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield parts
            parts = b""


def test_each_snapshot_is_one_row_and_the_users_own_logging_is_undisturbed(run: Any, tmp_path: Path) -> None:
    writer = WandB(run)
    for k, snapshot in enumerate((ordinary(0), ordinary(50), sick(100))):
        writer.write(snapshot)
        run.log({"loss": float(k), "mine": k})
    writer.close()
    run.finish()
    rows, metrics = read_back(tmp_path)
    assert [row["_step"] for row in rows] == [0, 1, 2, 3, 4, 5], "nothing was dropped"
    assert [row["mine"] for row in rows[1::2]] == [0, 1, 2]
    ours = rows[::2]
    assert [row["inspector/step"] for row in ours] == [0, 50, 100]
    assert ours[1]["grad/norm/fc"] == pytest.approx(0.02 * 1.5**4 / 1.5)
    assert ours[1]["param/update_ratio/fc.weight"] == pytest.approx(1.2e-3)
    assert ours[1]["loss"] == pytest.approx(0.3127)
    assert ours[2]["grad/nonfinite/body.0.softmax@1"] == 131072
    assert ours[2]["loss_nonfinite"] == 1
    assert "grad/norm/body.0.softmax@1" not in ours[2]
    assert "loss" not in ours[2]
    assert metrics == dict.fromkeys(("grad/*", "activation/*", "param/*"), "inspector/step")


def test_the_run_that_is_going_on_is_found(run: Any, tmp_path: Path) -> None:
    WandB(prefix="gradients/").write(Snapshot(3, 0.5, ()))
    run.finish()
    rows, metrics = read_back(tmp_path)
    assert rows[0]["gradients/loss"] == 0.5
    assert "gradients/grad/*" in metrics


def test_without_a_run_or_without_wandb_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"Call wandb\.init\(\) first"):
        WandB()
    with pytest.raises(UsageError, match="run is a str"):
        WandB("my-project")
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UsageError, match=r'pip install "camapp\[wandb\]"'):
        WandB()
