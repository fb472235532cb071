"""Exports from stores are exports from folders; into stores there are none; and the page fetches nothing."""

from __future__ import annotations

import io
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from PIL import Image

import camapp
from camapp.batch import RunOptions, export_features, export_heatmaps, read_manifest
from camapp.errors import CamappError, DecodeError, UsageError
from tests.batch.sources.stores import put, web_server

ASSETS = Path(__file__).resolve().parents[2] / "assets"


@pytest.fixture(scope="module")
def model() -> Any:
    return camapp.load_model("efficientnet_lite0", device="cpu")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Six small pictures in folders, a broken one, and a .zip of all of them."""
    pictures = [Image.open(ASSETS / name).convert("RGB") for name in ("chelsea.jpg", "coffee.jpg", "rocket.jpg")]
    root = tmp_path / "photos"
    for number, name in enumerate(["a/1.png", "a/2.png", "a/two words.png", "b/1.png", "b/c/2.png", "z.png"]):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        pictures[number % 3].resize((64 + 4 * number, 48)).save(root / name)
    (root / "b" / "broken.jpg").write_bytes(b"no picture at all")
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as packed:
        for path in sorted(root.rglob("*.*")):
            packed.write(path, path.relative_to(root).as_posix())
    return root


@pytest.fixture
def memory(folder: Path) -> Iterator[str]:
    put(folder, "memory://bucket/photos")
    fsspec.filesystem("memory").pipe_file("/bucket/photos.zip", (folder.parent / "photos.zip").read_bytes())
    yield "memory://bucket"
    fsspec.filesystem("memory").store.clear()


def rows_of(out: Path) -> list[dict[str, Any]]:
    """The manifest, without what tells where the source lay."""
    return [
        {name: value for name, value in row.items() if name not in ("seconds", "path")}
        for row in read_manifest(out).to_pylist()
    ]


def same_features(one: Path, other: Path) -> None:
    names = sorted(path.name for path in (one / "features").iterdir())
    assert names == sorted(path.name for path in (other / "features").iterdir())
    for name in names:
        mine, theirs = camapp.load_features(one / "features" / name), camapp.load_features(other / "features" / name)
        assert mine.names == theirs.names
        for layer in mine.features:
            np.testing.assert_array_equal(mine[layer], theirs[layer])


@pytest.mark.parametrize("threads", [0, 3])
@pytest.mark.parametrize("source", ["photos", "photos.zip"])
def test_features_from_a_store_are_those_from_the_folder(
    source: str, threads: int, model: Any, folder: Path, memory: str, tmp_path: Path
) -> None:
    run, options = RunOptions(workers=1, threads=threads), {"batch_size": 2, "shard_size": 3}
    report = export_features(model, f"{memory}/{source}", tmp_path / "there", run=run, **options)
    assert (report.done, report.failed) == (6, 1)
    export_features(model, folder.parent / source, tmp_path / "here", run=run, **options)
    assert rows_of(tmp_path / "there") == rows_of(tmp_path / "here")
    assert all(row["path"].startswith(memory) for row in read_manifest(tmp_path / "there").to_pylist())
    same_features(tmp_path / "there", tmp_path / "here")


@pytest.mark.slow
def test_urls_of_files_are_exported_by_several_workers(folder: Path, tmp_path: Path) -> None:
    run, options = RunOptions(workers=2, threads=0), {"batch_size": 2, "shard_size": 3}
    report = export_features("efficientnet_lite0", f"file://{folder}", tmp_path / "there", run=run, **options)
    assert (report.done, report.failed) == (6, 1)
    export_features("efficientnet_lite0", folder, tmp_path / "here", run=RunOptions(workers=1), **options)
    assert rows_of(tmp_path / "there") == rows_of(tmp_path / "here")
    same_features(tmp_path / "there", tmp_path / "here")


def test_workers_fetch_from_a_web_server_on_their_own(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("aiohttp", reason="fsspec reads http:// with it")
    run, options = RunOptions(workers=2, threads=2), {"batch_size": 2, "shard_size": 3}
    with web_server(folder.parent) as (url, _):
        sources = [f"{url}/photos/", f"{url}/photos.zip"]
        report = export_features("efficientnet_lite0", sources, tmp_path / "there", run=run, **options)
    assert (report.done, report.failed) == (12, 2)
    sources = [str(folder), str(folder.parent / "photos.zip")]
    export_features("efficientnet_lite0", sources, tmp_path / "here", run=RunOptions(workers=1), **options)
    assert rows_of(tmp_path / "there") == rows_of(tmp_path / "here")
    same_features(tmp_path / "there", tmp_path / "here")


def test_objects_that_cannot_be_had_fail_alone_and_the_manifest_says_why(
    model: Any, memory: str, tmp_path: Path
) -> None:
    table = tmp_path / "t.csv"
    table.write_text(
        f"path\n{memory}/photos/z.png\n{memory}/gone.png\nnosuch://bucket/a.png\n{memory}/photos/a/1.png\n"
    )
    report = export_heatmaps(model, table, tmp_path / "out", outputs=("raw",), run=RunOptions(workers=1))
    assert (report.done, report.failed) == (2, 2)
    rows = read_manifest(tmp_path / "out").to_pylist()
    assert [row["status"] for row in rows] == ["done", "failed", "failed", "done"]
    assert "memory://bucket/gone.png is not there" in rows[1]["reason"]
    assert "nosuch://bucket/a.png" in rows[2]["reason"]
    assert all((tmp_path / "out" / file).is_file() for row in rows for file in row["files"])
    assert rows[0]["files"] == ["raw/bucket/photos/z.npy"]


def test_an_object_that_changed_ends_the_resumption(model: Any, folder: Path, memory: str, tmp_path: Path) -> None:
    out, options = tmp_path / "out", {"batch_size": 1, "shard_size": 3}

    def told(done: int, failed: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_features(model, f"{memory}/photos", out, run=RunOptions(workers=1, threads=0, progress=told), **options)
    fsspec.filesystem("memory").pipe_file("/bucket/photos/z.png", (folder / "a" / "1.png").read_bytes())
    with pytest.raises(UsageError, match="has changed"):
        export_features(model, f"{memory}/photos", out, run=RunOptions(workers=1), **options)


@pytest.mark.parametrize("out", ["s3://bucket/out", "memory://out", "S3:/b/x", "file:///tmp/x", "gs://b"])
def test_an_export_into_a_url_is_refused_before_anything_is_made(
    out: str, model: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    for wanted in (out, Path(out)):
        with pytest.raises(UsageError, match=r"is a URL; an export is written into a folder"):
            export_features(model, folder, wanted)
        with pytest.raises(UsageError, match="is a URL"):
            export_heatmaps("no_such_model", folder, wanted)
    assert list((tmp_path / "cwd").iterdir()) == []


def test_explaining_a_url_fetches_nothing(model: Any, folder: Path) -> None:
    with web_server(folder) as (url, asked):
        for name in (f"{url}/z.png", f"memory://{folder}/z.png", f"file://{folder}/z.png"):
            with pytest.raises(DecodeError, match="No such file"):
                camapp.explain(model, name)
        with pytest.raises(CamappError):
            camapp.extract_features(model, f"{url}/z.png")
        assert asked == []
        assert camapp.explain(model, io.BytesIO((folder / "z.png").read_bytes())).classes
    shutil.rmtree(folder)
