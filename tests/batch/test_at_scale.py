"""Thousands of pictures: each is accounted for, and memory stays where it was."""

from __future__ import annotations

import io
import json
import os
import struct
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import camapp
from camapp.batch import read_manifest

ASSETS = Path(__file__).resolve().parents[2] / "assets"
SAMPLES = sorted(ASSETS.glob("*.jpg"))
FORMATS = ("jpg", "png", "webp", "bmp", "tif", "gif", "jpeg", "avif")
PICTURES, BROKEN = 2000, 20


def jpeg(image: Image.Image, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "jpeg", **options)
    return buffer.getvalue()


def png_that_claims(width: int, height: int) -> bytes:
    """A PNG with the header of a large picture, and no pixels to speak of."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    pixels = chunk(b"IDAT", zlib.compress(bytes(1000)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + pixels + chunk(b"IEND", b"")


def broken_files(sample: bytes) -> dict[str, tuple[bytes | None, str]]:
    """Ten ways to be no picture, by name: the bytes (None for a link to nothing) and a word of the reason."""
    return {
        "empty.jpg": (b"", "empty"),
        "text.png": (b"only words, and no picture at all", "is text"),
        "half.jpg": (sample[: len(sample) // 2], "damaged or truncated"),
        "page.jpg": (b"<!doctype html><html><body>404</body></html>", "web page"),
        "drawing.png": (b'<svg xmlns="http://www.w3.org/2000/svg"/>', "svg"),
        "paper.jpeg": (b"%PDF-1.7\n" + bytes(100), "pdf"),
        "bomb.png": (png_that_claims(60_000, 60_000), "pixels"),
        "strip.jpg": (jpeg(Image.new("RGB", (3000, 20))), "elongated"),
        "gone.jpg": (None, "no such file"),
        "noise.webp": (bytes(np.random.default_rng(0).integers(128, 256, 500, dtype=np.uint8)), "not a picture"),
    }


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2,000 inputs of eight formats and many sizes, of which 20 are broken in ten ways."""
    folder = tmp_path_factory.mktemp("thousands")
    samples = [Image.open(path).convert("RGB") for path in SAMPLES]
    broken = broken_files(SAMPLES[0].read_bytes())
    for turn in (0, 1):
        for name, (content, _) in broken.items():
            path = folder / f"class{turn}" / name
            path.parent.mkdir(exist_ok=True)
            path.symlink_to(folder / "nowhere") if content is None else path.write_bytes(content)
    rng = np.random.default_rng(0)
    for number in range(PICTURES - BROKEN):
        path = folder / f"class{number % 7}" / f"{number:05d}.{FORMATS[number % len(FORMATS)]}"
        path.parent.mkdir(exist_ok=True)
        size = (int(rng.integers(64, 500)), int(rng.integers(64, 400)))
        options = {"speed": 10} if path.suffix == ".avif" else {}
        samples[number % len(samples)].resize(size).save(path, **options)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("what", ["heatmaps", "features"])
def test_two_thousand_pictures_of_which_twenty_are_broken(source: Path, tmp_path: Path, what: str) -> None:
    out = tmp_path / "out"
    options = ["--outputs", "overlay,heatmap,raw"] if what == "heatmaps" else ["--parts"]
    command = [sys.executable, "-m", "camapp", what, str(source), str(out), *options, "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 3, ran.stderr
    assert json.loads(ran.stdout.splitlines()[-1])["failed"] == BROKEN

    rows = read_manifest(out).to_pylist()
    assert len(rows) == PICTURES
    assert Counter(row["status"] for row in rows) == {"done": PICTURES - BROKEN, "failed": BROKEN}
    reasons = {name: word for name, (_, word) in broken_files(b"").items()}
    failed = [(Path(row["name"]).name, row["reason"].lower()) for row in rows if row["status"] == "failed"]
    assert Counter(name for name, _ in failed) == dict.fromkeys(reasons, 2)
    assert [(name, reason) for name, reason in failed if reasons[name] not in reason] == []

    named = {file for row in rows for file in row["files"]}
    found = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    assert found == named | {"manifest.parquet", "run.json"}
    assert len(named) == (3 * (PICTURES - BROKEN) if what == "heatmaps" else -(-PICTURES // 256))
    for name in sorted(named):
        _opens(out / name)


def _opens(path: Path) -> None:
    if path.suffix == ".npy":
        assert np.isfinite(np.load(path)).all()
    elif path.suffix == ".parquet":
        assert np.isfinite(camapp.load_features(path)["penultimate"]).all()
    else:
        with Image.open(path) as image:
            image.load()


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """5,200 small pictures, and one of 40 megapixels among them."""
    folder = tmp_path_factory.mktemp("many")
    samples = [Image.open(path).convert("RGB").resize((160, 120)) for path in SAMPLES]
    for number in range(5200):
        samples[number % len(samples)].save(folder / f"{number:05d}.jpg")
    Image.open(SAMPLES[0]).convert("RGB").resize((7680, 5210)).save(folder / "00300.jpg", quality=90)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("export", [camapp.export_heatmaps, camapp.export_features])
def test_memory_is_the_same_after_500_and_after_5000_pictures(
    many: Path, tmp_path: Path, export: Callable[..., Any]
) -> None:
    seen: dict[int, float] = {}

    def watch(done: int, failed: int, total: int) -> None:
        seen[done + failed] = sum(_resident(pid) for pid in [os.getpid(), *_children(os.getpid())])

    report = export("efficientnet_lite0", many, tmp_path / "out", run=camapp.batch.RunOptions(progress=watch))
    assert (report.done, report.failed, report.finished) == (5200, 0, True)
    early = np.median([size for number, size in seen.items() if 500 <= number < 800])
    late = np.median([size for number, size in seen.items() if 4700 <= number < 5000])
    print(f"\n{export.__name__}: {early / 2**20:.0f} MB at 500, {late / 2**20:.0f} MB at 5,000")
    assert late == pytest.approx(early, rel=0.05)


def _resident(pid: int) -> int:
    """The resident memory of a process that no other shares with it, in bytes; 0 once it has ended."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return (int(pages[1]) - int(pages[2])) * os.sysconf("SC_PAGE_SIZE")


def _children(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").iterdir():
        yield from map(int, (task / "children").read_text().split())
