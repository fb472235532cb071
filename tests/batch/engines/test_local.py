"""Workers of this machine: how many, what each gets, and what becomes of those that die or never begin."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from camapp.batch.engines.local import LocalShare, local_share, run_local
from camapp.batch.engines.orders import one_thread
from camapp.batch.jobs.job import ModelChoice, Work
from camapp.batch.ledger import Ledger
from camapp.batch.records import Item, Row
from camapp.batch.sources import Fingerprint


def test_workers_are_spread_over_the_gpus_and_share_the_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    for room in ("camapp.batch.engines.local", "camapp.sources.batches"):
        monkeypatch.setattr(f"{room}.processors", lambda: 24)
    by_name, cuda = ModelChoice("resnet50"), torch.device("cuda")

    def share(
        device: torch.device, choice: ModelChoice, workers: int | None = None, threads: int | None = None, each: int = 1
    ) -> LocalShare:
        return local_share(device, choice, workers, threads, each)

    assert share(cuda, by_name) == LocalShare(4, 6, 4)
    assert share(cuda, by_name, each=3) == LocalShare(12, 2, 4)
    assert share(cuda, by_name, workers=2, threads=5) == LocalShare(2, 5, 4)
    assert share(torch.device("cuda:1"), ModelChoice("resnet50", device="cuda:1"), each=2) == LocalShare(2, 8, 0)
    assert share(torch.device("cpu"), by_name) == LocalShare(24, 0, 0)
    assert share(torch.device("cpu"), by_name, threads=2) == LocalShare(24, 2, 0)
    assert share(torch.device("cpu"), by_name, workers=1).workers == 1


def test_one_thread_is_given_back_also_after_an_error() -> None:
    before = torch.get_num_threads()
    seen = []

    def failing() -> None:
        with one_thread():
            seen.append(torch.get_num_threads())
            raise RuntimeError("why")

    with pytest.raises(RuntimeError, match="why"):
        failing()
    assert seen == [1]
    assert torch.get_num_threads() == before


@dataclass
class Notes:
    """A job that writes down which process did a picture."""

    folder: Path
    batch_size: int = 1

    def open(self, out: Path) -> None:
        """Nothing to load."""

    def prepare(self, data: bytes, work: Work) -> Work:
        """The work itself."""
        return work

    def run(self, batch: Sequence[Work]) -> list[Work]:
        """Each as it is."""
        return list(batch)

    def write(self, result: Work, work: Work) -> Row:
        """A file that names the process."""
        (self.folder / f"{work.number}.txt").write_text(str(os.getpid()))
        return Row(work.number, work.item, "done")

    def end_shard(self, shard: int, rows: Sequence[Row]) -> Sequence[Row]:
        """As they are."""
        return rows


def test_a_worker_that_dies_between_two_shards_is_replaced(tmp_path: Path) -> None:
    """Killed as it has said that a shard is done, before it gets the next."""
    (tmp_path / "notes").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "one.png")
    items = [Item(f"{number}.png", str(tmp_path / "one.png")) for number in range(12)]
    killed: list[int] = []

    def told(done: int, failed: int) -> None:
        if not killed:
            (note,) = list((tmp_path / "notes").glob("0.txt")) or [None]
            if note is not None:
                killed.append(int(note.read_text()))
                time.sleep(1)  # so that it has said "done" as well
                os.kill(killed[0], signal.SIGKILL)
                time.sleep(0.5)

    with Ledger.open(tmp_path / "out", {}, lambda: iter(items), Fingerprint, shard_size=2) as ledger:
        share = LocalShare(workers=2, threads=0, gpus=0)
        job: Any = Notes(tmp_path / "notes")
        run_local(job, ledger.handle(), tmp_path / "out", ledger.todo(), share=share, told=told, stop=threading.Event())
        assert ledger.counts() == (12, 0, 12)
    assert killed


def test_a_signal_to_the_whole_terminal_does_not_wait_for_workers_that_are_still_starting(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for number in range(4):
        Image.new("RGB", (40, 40), (number, 0, 0)).save(source / f"{number}.png")
    options = ["--workers", "2", "--shard-size", "1", "--outputs", "raw"]
    command = [sys.executable, "-m", "camapp", "heatmaps", str(source), str(tmp_path / "out"), *options]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 120
    while not (tmp_path / "out" / ".camapp" / "run.json").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.3)  # workers were started, and import
    os.killpg(child.pid, signal.SIGINT)
    _, errors = child.communicate(timeout=120)
    assert child.returncode == 130, errors
    assert "Traceback" not in errors
    assert "resume with the same command" in errors
    assert "0 of 4 done" in errors
