"""Sources of every kind together, and of any size."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import time
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from camapp.batch.sources import list_items
from camapp.errors import UsageError


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "1.jpg").write_bytes(b"1")
    (tmp_path / "single").write_bytes(b"no ending")
    (tmp_path / "l.txt").write_text("f/1.jpg\n")
    (tmp_path / "t.csv").write_text("path,target\nf/1.jpg,3\n")
    with zipfile.ZipFile(tmp_path / "z.zip", "w") as archive:
        archive.writestr("d/2.jpg", b"2")
    with tarfile.open(tmp_path / "w0.tar", "w") as shard:
        shard.add(tmp_path / "f" / "1.jpg", "3.jpg")
    with tarfile.open(tmp_path / "w1.tar", "w") as shard:
        shard.add(tmp_path / "f" / "1.jpg", "4.jpg")
    return tmp_path


def test_sources_of_every_kind_follow_each_other(mixed: Path) -> None:
    sources = [mixed / name for name in ("f", "single", "l.txt", "t.csv", "z.zip", "w*.tar", "gone.jpg")]
    found = [(item.name, item.label, item.target) for item in list_items(sources)]
    assert found == [
        ("1.jpg", None, None),
        ("single", None, None),
        ("f/1.jpg", None, None),
        ("f/1.jpg (2)", None, "3"),
        ("d/2.jpg", "d", None),
        ("3.jpg", None, None),
        ("4.jpg", None, None),
        ("gone.jpg", None, None),
    ]
    assert list(list_items(sources)) == list(list_items([str(source) for source in sources]))


@pytest.mark.parametrize("name", ["gone", "gone.jpg", "gone.zip", ""])
def test_a_source_that_is_not_there_is_refused(name: str, tmp_path: Path) -> None:
    source = str(tmp_path / name) if name else ""
    with pytest.raises(UsageError, match=rf'There is nothing at "{source}"'):
        list_items(source)


def test_relative_sources_are_found_by_workers_in_other_folders(mixed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = ["f", "single", "l.txt", "t.csv", "z.zip", "w*.tar", "f/*.jpg", "gone.jpg"]
    absolute = [(item.name, item.path) for item in list_items([mixed / source for source in sources])]
    monkeypatch.chdir(mixed)
    assert [(item.name, item.path) for item in list_items(sources)] == absolute
    assert [(item.name, item.path) for item in list_items(".")] == [("f/1.jpg", f"{mixed}/./f/1.jpg")]


def test_a_missing_archive_among_others_is_refused(mixed: Path) -> None:
    items = list_items([mixed / "f", mixed / "gone.tar"])
    with pytest.raises(UsageError, match=r"nothing at .*gone\.tar"):
        list(items)


def test_no_source_is_refused() -> None:
    with pytest.raises(UsageError, match="names no picture"):
        list_items([])


def test_errors_are_raised_by_the_call_and_not_only_by_the_first_item(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        list_items(tmp_path)


def test_listing_takes_no_more_memory_for_more_rows(tmp_path: Path) -> None:
    peaks = []
    for count in (5_000, 40_000):
        table = tmp_path / f"{count}.csv"
        with table.open("w") as file:
            file.write("path,label\n")
            file.writelines(f"images/{number:09}.jpg,{number % 7}\n" for number in range(count))
        tracemalloc.start()
        assert sum(1 for _ in list_items(table)) == count
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] < 40 * 35_000  # bytes a row: a name alone would take more


@pytest.mark.slow
def test_a_million_rows_are_listed_and_told_apart_in_seconds_and_little_memory(tmp_path: Path) -> None:
    table = tmp_path / "million.csv"
    with table.open("w") as file:
        file.write("path,label\n")
        file.writelines(f"images/{number:09}.jpg,{number % 1000}\n" for number in range(1_000_000))
    program = (
        "import resource, sys\n"
        "from camapp.batch.sources import fingerprint_of, list_items\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before = peak(); fingerprint_of(list_items(sys.argv[1])); print((peak() - before) // 1024)"
    )
    start = time.monotonic()
    run = [sys.executable, "-c", program, str(table)]
    result = subprocess.run(run, capture_output=True, check=True, cwd=Path(__file__).parents[3])
    assert int(result.stdout) < 100  # MiB
    assert time.monotonic() - start < 60
