"""JSON lines: appended whole, readable at any moment, and read back equal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from camapp.errors import UsageError
from camapp.hooks.report.json_lines import JsonLines, read_json_lines
from camapp.hooks.report.records import Snapshot
from tests.hooks.report.snapshots import deep, empty, ordinary, sick


def as_text(snapshots: list[Snapshot]) -> list[str]:
    return [json.dumps(one.to_dict()) for one in snapshots]


def test_a_run_reads_back_equal_after_every_step(tmp_path: Path) -> None:
    written: list[Snapshot] = []
    with JsonLines(tmp_path / "new" / "run.jsonl") as writer:
        for snapshot in (ordinary(0), sick(1), empty(), deep(step=3)):
            writer.write(snapshot)
            written.append(snapshot)
            assert as_text(read_json_lines(writer.path)) == as_text(written)
    assert len(writer.path.read_text().splitlines()) == 4


def test_a_file_is_gone_on_with(tmp_path: Path) -> None:
    for step in (0, 50):
        with JsonLines(tmp_path / "run.jsonl") as writer:
            writer.write(ordinary(step))
    assert [one.step for one in read_json_lines(tmp_path / "run.jsonl")] == [0, 50]


def test_what_a_killed_process_left_half_done_spoils_no_line_behind_it(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with JsonLines(path) as writer:
        writer.write(ordinary(0))
        writer.write(ordinary(50))
    path.write_bytes(path.read_bytes()[:-300])
    with JsonLines(path) as writer:
        writer.write(ordinary(100))
    with pytest.warns(UserWarning, match="line 2 is no snapshot and was left out"):
        assert [one.step for one in read_json_lines(path)] == [0, 100]


def test_a_line_is_on_the_disk_when_the_process_dies(tmp_path: Path) -> None:
    program = (
        "import os, sys; from camapp.hooks.report.json_lines import JsonLines; "
        "from tests.hooks.report.snapshots import sick; JsonLines(sys.argv[1]).write(sick()); os._exit(9)"
    )
    path = tmp_path / "run.jsonl"
    done = subprocess.run([sys.executable, "-c", program, path], check=False)
    assert done.returncode == 9
    assert as_text(read_json_lines(path)) == as_text([sick()])


@pytest.mark.skipif(sys.platform != "linux", reason="a limit on files as Linux sets it")
def test_a_full_disk_leaves_no_half_line(tmp_path: Path) -> None:
    program = """
import resource, signal, sys
from camapp.hooks.report.json_lines import JsonLines
from tests.hooks.report.snapshots import ordinary
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
writer = JsonLines(sys.argv[1])
writer.write(ordinary(0))
size = writer.path.stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, resource.RLIM_INFINITY))
try:
    writer.write(ordinary(50))
except OSError:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert writer.path.stat().st_size == size, "the file is as it was"
    writer.write(ordinary(100))
"""
    path = tmp_path / "run.jsonl"
    subprocess.run([sys.executable, "-c", program, path], check=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [one.step for one in read_json_lines(path)] == [0, 100]


def test_a_closed_writer_says_so_and_may_be_closed_again(tmp_path: Path) -> None:
    writer = JsonLines(tmp_path / "run.jsonl")
    writer.close()
    writer.close()
    with pytest.raises(UsageError, match=r"run\.jsonl is closed"):
        writer.write(ordinary())


def test_a_file_of_something_else_is_refused_and_an_empty_one_is_an_empty_run(tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("hello\nworld\n")
    with pytest.raises(UsageError, match=r"other\.txt holds no snapshot\. Its line 1"):
        read_json_lines(other)
    other.write_bytes(b'\n{"step": 1}\n\xff\n')
    with pytest.raises(UsageError, match="Its line 2: This is no snapshot of an inspection: it has no 'loss'"):
        read_json_lines(other)
    other.write_bytes(b"")
    assert read_json_lines(other) == []


@pytest.mark.skipif(os.getuid() == 0 if hasattr(os, "getuid") else False, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_told_at_once(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError):
        JsonLines(tmp_path / "run.jsonl")
