"""Parquet from many tables: one held at a time, groups of rows, one schema."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from camapp.errors import UsageError
from camapp.features.formats import load_features, parquet, write_stream
from camapp.features.table import FeatureTable
from tests.features.formats.tables import assert_equal, odd_table, table_of


def parts_of(table: FeatureTable, *ends: int) -> list[FeatureTable]:
    return [table.rows(slice(start, end)) for start, end in zip((0, *ends), (*ends, None), strict=True)]


def test_tables_one_after_the_other_make_the_table_of_all_rows(tmp_path: Path) -> None:
    table = odd_table()
    first, *others = parts_of(replace(table, failures=()), 2, 2, 5)
    others[-1] = replace(others[-1], failures=table.failures)
    write_stream(iter([first, *others]), tmp_path / "x.parquet")
    assert_equal(load_features(tmp_path / "x.parquet"), table)


def test_one_table_is_held_at_a_time(tmp_path: Path) -> None:
    held: list[weakref.ref[np.ndarray]] = []

    def stream() -> Iterator[FeatureTable]:
        for number in range(6):
            gc.collect()
            # The first names the schema; of the others only the last may still be there.
            assert sum(one() is not None for one in held[1:]) <= 1
            table = table_of({"x": (1000,)}, (f"{number}.jpg",))
            held.append(weakref.ref(table["x"]))
            yield table
            del table

    write_stream(stream(), tmp_path / "x.parquet")
    assert len(load_features(tmp_path / "x.parquet")) == 6


def test_rows_are_grouped_by_their_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "GROUP_BYTES", 3 * 40)
    table = table_of({"x": (8,), "y": (2,)}, tuple("abcdefgh"))  # 40 bytes a row
    write_stream([table], tmp_path / "x.parquet")
    metadata = pq.read_metadata(tmp_path / "x.parquet")
    assert [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)] == [3, 3, 2]
    assert_equal(load_features(tmp_path / "x.parquet"), table)


def test_tables_that_differ_are_refused_and_nothing_is_left(tmp_path: Path) -> None:
    table = table_of({"x": (2,)}, ("a",), labels=("cat",), provenance={"model": "resnet18"})
    for other, message in (
        (table_of({"x": (3,)}, ("b",), labels=("cat",), provenance={"model": "resnet18"}), "the same layers"),
        (
            table_of({"x": (2,)}, ("b",), "float16", labels=("cat",), provenance={"model": "resnet18"}),
            "the same layers",
        ),
        (table_of({"x": (2,)}, ("b",), provenance={"model": "resnet18"}), "the same labels"),
        (table_of({"x": (2,)}, ("b",), labels=("cat",), provenance={"model": "vgg16"}), "the same provenance"),
        (table, "Two of the tables have the picture 'a'"),
    ):
        with pytest.raises(UsageError, match=message):
            write_stream([table, other], tmp_path / "x.parquet")
    with pytest.raises(UsageError, match="No tables"):
        write_stream([], tmp_path / "x.parquet")
    assert list(tmp_path.iterdir()) == []


def test_a_stream_that_raises_leaves_the_old_file(tmp_path: Path) -> None:
    def stream() -> Iterator[FeatureTable]:
        yield table_of({"x": (2,)}, ("new",))
        raise KeyboardInterrupt

    old = table_of({"x": (2,)}, ("old",))
    write_stream([old], tmp_path / "x.parquet")
    with pytest.raises(KeyboardInterrupt):
        write_stream(stream(), tmp_path / "x.parquet")
    assert_equal(load_features(tmp_path / "x.parquet"), old)
    assert [file.name for file in tmp_path.iterdir()] == ["x.parquet"]


def test_floats_are_smaller_than_in_memory(tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal((50, 2000)).astype(np.float32)
    table = FeatureTable(tuple(map(str, range(50))), {"x": values}, table_of({"x": (2000,)}, ()).info)
    (file,) = parquet.write(table, tmp_path / "x.parquet")
    assert file.stat().st_size < 0.9 * values.nbytes
