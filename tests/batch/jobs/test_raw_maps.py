"""Raw maps as one column a shard are those of single calls, to half precision, and come back in their order."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import camapp
from camapp.batch import RunOptions, export_heatmaps, read_raw_maps
from camapp.batch.jobs.raw_maps import RawMaps, read_part
from camapp.batch.ledger.manifest import rows_to_table, write_manifest
from camapp.batch.records import Item, Row
from camapp.errors import UsageError

ASSETS = Path(__file__).resolve().parents[3] / "assets"


def test_the_maps_of_an_export_are_those_of_explain(tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    names = ("chelsea.jpg", "coffee.jpg", "rocket.jpg")
    for name in names:
        (source / name).symlink_to(ASSETS / name)
    (source / "d.jpg").write_bytes(b"no picture")
    model = camapp.load_model("efficientnet_lite0", device="cpu")
    options = {"outputs": ("raw",), "raw_format": "parquet", "top_k": 2, "shard_size": 3}
    report = export_heatmaps(model, source, out, run=RunOptions(workers=1), **options)  # type: ignore[arg-type]
    assert (report.done, report.failed) == (3, 1)
    assert sorted(path.name for path in (out / "raw").iterdir()) == ["part-00000.parquet", "part-00001.parquet"]

    maps = list(read_raw_maps(out))
    assert [one.number for one in maps] == [0, 0, 1, 1, 3, 3]
    assert [one.name for one in maps] == [name for name in names for _ in "12"]
    for one, (name, k) in zip(maps, [(name, k) for name in names for k in (0, 1)], strict=True):
        single = camapp.explain(model, ASSETS / name, top_k=2)
        assert one.target == single.classes[k].label
        assert one.values.dtype == np.float32
        np.testing.assert_allclose(one.values, single.raw[k], atol=np.abs(single.raw[k]).max() * 2**-11)


def test_maps_of_any_size_keep_their_digits_and_names_are_as_in_the_manifest(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    maps = [(rng.normal(size=(1, 4, 3)) * factor).astype(np.float32) for factor in (1e-12, 1.0, 1e12, 0.0)]
    gathered = RawMaps()
    rows = []
    for number, values in enumerate(maps):
        gathered.add(0, number, values)
        rows.append(Row(number, Item(f"{number}\udcff.png", "x"), "done", explained=("cat",)))
    assert gathered.write(tmp_path, 0, rows) == "raw/part-00000.parquet"
    read = list(read_part(tmp_path / "raw" / "part-00000.parquet"))
    assert [one.name for one in read] == [f"{number}\\xff.png" for number in range(4)]
    for one, values in zip(read, maps, strict=True):
        np.testing.assert_allclose(one.values, values[0], atol=np.abs(values).max() * 2**-11)
    assert gathered.write(tmp_path, 1, rows) is None


def test_a_value_that_is_no_number_leaves_the_others(tmp_path: Path) -> None:
    gathered = RawMaps()
    gathered.add(0, 0, np.array([[[1.0, np.nan], [np.inf, -3.0]]], np.float32))
    gathered.write(tmp_path, 0, [Row(0, Item("a.png", "a.png"), "done", explained=("cat",))])
    (one,) = read_part(tmp_path / "raw" / "part-00000.parquet")
    np.testing.assert_allclose(one.values, [[1.0, np.nan], [np.inf, -3.0]], rtol=2**-11)


def test_many_maps_of_pixels_are_read_few_at_a_time(tmp_path: Path) -> None:
    gathered = RawMaps()
    rows = [Row(number, Item(f"{number}.png", "x"), "done", explained=("cat",)) for number in range(200)]
    for row in rows:
        gathered.add(0, row.number, np.full((1, 224, 224), row.number, np.float32))
    gathered.write(tmp_path, 0, rows)
    tracemalloc.start()
    for number, one in enumerate(read_part(tmp_path / "raw" / "part-00000.parquet")):
        assert one.number == number
        assert (one.values == number).all()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert number == 199
    assert peak < 5 * 2**20  # of 40 MB; what pyarrow holds itself is not counted


def test_parts_come_in_the_order_of_the_manifest_which_names_none_of_a_run_that_was_killed(tmp_path: Path) -> None:
    files = {}
    for shard in (9, 99_999, 100_000, 100_001):
        gathered = RawMaps()
        gathered.add(shard, shard, np.ones((1, 1, 1), np.float32))
        row = Row(shard, Item(f"{shard}.png", "a.png"), "done", explained=("cat",))
        files[shard] = replace(row, files=(str(gathered.write(tmp_path, shard, [row])),))
    with pytest.raises(UsageError, match="no finished export"):
        next(read_raw_maps(tmp_path))
    write_manifest(tmp_path / "manifest.parquet", [rows_to_table([files[9], files[99_999], files[100_000]])])
    assert [one.number for one in read_raw_maps(tmp_path)] == [9, 99_999, 100_000]
    with pytest.raises(UsageError, match="no finished export"):
        next(read_raw_maps(tmp_path / "elsewhere"))


def test_an_export_without_such_maps_says_how_they_are_written(tmp_path: Path) -> None:
    write_manifest(tmp_path / "manifest.parquet", [rows_to_table([Row(0, Item("a.png", "a.png"), "done")])])
    with pytest.raises(UsageError, match="--raw-format parquet"):
        next(read_raw_maps(tmp_path))


def test_a_shard_of_which_nothing_is_left_leaves_no_older_part(tmp_path: Path) -> None:
    gathered = RawMaps()
    gathered.add(0, 0, np.ones((1, 1, 1), np.float32))
    done = Row(0, Item("a.png", "a.png"), "done", explained=("cat",))
    assert gathered.write(tmp_path, 0, [done]) is not None
    assert gathered.write(tmp_path, 0, [replace(done, status="failed")]) is None
    assert not list((tmp_path / "raw").iterdir())
