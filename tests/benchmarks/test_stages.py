"""The stages of an export, timed alone: pictures that differ, and times that add up."""

from __future__ import annotations

import time
from pathlib import Path

from PIL import Image

from benchmarks.scaling.work import KINDS, job_of
from benchmarks.stages import cpu_seconds, make_pictures, spend


def test_no_two_pictures_are_alike(tmp_path: Path) -> None:
    pictures = make_pictures(tmp_path / "pictures", 130)
    assert len({path.read_bytes() for path in pictures}) == 130
    with Image.open(pictures[-1]) as image:
        assert (image.format, image.size) == ("JPEG", (640, 480))


def test_stages_add_up_to_what_the_whole_takes_and_write_real_files(tmp_path: Path) -> None:
    pictures = make_pictures(tmp_path / "pictures", 10)
    for kind in KINDS:
        begun = time.process_time()
        spent = spend(job_of(kind), pictures, tmp_path / kind)
        whole = time.process_time() - begun
        stages = (spent.read, spent.decode, spent.model, spent.write)
        assert all(seconds > 0 for seconds in stages)
        assert 10 * sum(stages) + spent.end < whole
        assert [row.status for row in spent.rows] == ["done"] * 10
        assert all((tmp_path / kind / file).stat().st_size > 0 for row in spent.rows for file in row.files)


def test_seconds_of_processors_count_work_and_not_waiting() -> None:
    begun = cpu_seconds()
    time.sleep(0.2)
    assert cpu_seconds() - begun < 0.1
    while cpu_seconds() - begun < 0.2:
        pass
