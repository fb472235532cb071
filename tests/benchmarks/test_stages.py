"""The stages of an export, timed alone: pictures that differ, and times that add up."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from benchmarks.scaling.work import KINDS, job_of
from benchmarks.stages import cpu_seconds, make_pictures, spend
from camapp.batch.jobs.job import Work
from camapp.batch.records import Row


def test_no_two_pictures_are_alike(tmp_path: Path) -> None:
    pictures = make_pictures(tmp_path / "pictures", 130)
    assert len({path.read_bytes() for path in pictures}) == 130
    with Image.open(pictures[-1]) as image:
        assert (image.format, image.size) == ("JPEG", (640, 480))


def test_stages_write_real_files(tmp_path: Path) -> None:
    pictures = make_pictures(tmp_path / "pictures", 6)
    for kind in KINDS:
        spent = spend(job_of(kind), pictures, tmp_path / kind)
        assert min(spent.read, spent.decode, spent.model, spent.write) > 0
        assert [row.status for row in spent.rows] == ["done"] * 6
        assert all((tmp_path / kind / file).stat().st_size > 0 for row in spent.rows for file in row.files)


def work_for(seconds: float) -> None:
    begun = time.process_time()
    while time.process_time() - begun < seconds:
        pass


class Known:
    """A job whose stages take known times of a processor."""

    batch_size = 4

    def open(self, out: Path) -> None:
        """Nothing to load."""

    def prepare(self, data: bytes, work: Work) -> Work:
        """20 ms a picture."""
        work_for(0.02)
        return work

    def run(self, batch: Sequence[Work]) -> list[Work]:
        """160 ms a batch."""
        work_for(0.16)
        return list(batch)

    def write(self, result: Work, work: Work) -> Row:
        """10 ms a picture."""
        work_for(0.01)
        return Row(work.number, work.item, "done")

    def end_shard(self, shard: int, rows: Sequence[Row]) -> Sequence[Row]:
        """50 ms a shard."""
        work_for(0.05)
        return rows


def test_each_stage_is_given_the_time_that_it_takes(tmp_path: Path) -> None:
    job: Any = Known()
    spent = spend(job, make_pictures(tmp_path / "pictures", 8), tmp_path)
    assert spent.decode == pytest.approx(0.02, rel=0.1)
    assert spent.model == pytest.approx(0.04, rel=0.1)
    assert spent.write == pytest.approx(0.01, rel=0.1)
    assert spent.end == pytest.approx(0.05, rel=0.1)


def test_seconds_of_processors_count_work_and_not_waiting() -> None:
    begun = cpu_seconds()
    time.sleep(0.2)
    assert cpu_seconds() - begun < 0.1
    while cpu_seconds() - begun < 0.2:
        pass
