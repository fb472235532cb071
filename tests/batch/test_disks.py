"""Disks that are full or may not be written: named, nothing is lost, and the same command goes on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from camapp.batch import read_manifest

ASSETS = Path(__file__).resolve().parents[2] / "assets"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of a megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "none", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("only root may mount a small disk, and not everywhere")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    picture = Image.open(ASSETS / "coffee.jpg").convert("RGB").resize((400, 300))
    for number in range(24):
        picture.rotate(number).save(folder / f"{number:02d}.jpg")
    return folder


def run(source: Path, out: Path, workers: int) -> subprocess.CompletedProcess[str]:
    options = ["--outputs", "overlay", "--overlay-format", "png", "--shard-size", "4", "--workers", str(workers)]
    command = [sys.executable, "-m", "camapp", "heatmaps", str(source), str(out), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_full_disk_is_named_and_with_more_room_the_same_command_goes_on(
    source: Path, disk: Path, tmp_path: Path, workers: int
) -> None:
    ended = run(source, disk / "out", workers)
    assert ended.returncode == 1
    assert "No space left on device" in ended.stderr
    assert "What was done is kept; resume with the same command" in ended.stderr
    assert "Traceback" not in ended.stderr
    done = len(list((disk / "out" / ".camapp" / "shards").glob("*.parquet")))
    assert 0 < done < 6

    subprocess.run(["mount", "-o", "remount,size=50m", disk], check=True)
    resumed = run(source, disk / "out", workers)
    assert resumed.returncode == 0, resumed.stderr
    assert "(resumed)" in resumed.stdout
    rows = read_manifest(disk / "out").to_pylist()
    assert [row["status"] for row in rows] == ["done"] * 24
    found = {path.relative_to(disk / "out").as_posix() for path in (disk / "out").rglob("*") if path.is_file()}
    assert found == {file for row in rows for file in row["files"]} | {"manifest.parquet", "run.json"}
    for name in found - {"manifest.parquet", "run.json"}:
        with Image.open(disk / "out" / name) as image:
            image.load()


def test_a_disk_that_may_only_be_read_is_refused_at_once(source: Path, disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    refused = run(source, disk / "out", 1)
    assert refused.returncode == 2
    assert "cannot be written (Read-only file system). Give another folder" in refused.stderr
    assert "Traceback" not in refused.stderr
