"""The manifest: lossless, strict, the same bytes for the same rows, and quick to ask."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from camapp.batch.ledger import iterate_manifest, manifest, manifest_schema, read_manifest, rows_to_table
from camapp.batch.ledger.manifest import write_manifest
from camapp.batch.records import Guess, Item, Row
from camapp.errors import UsageError


def made_row(number: int, status: str = "done") -> Row:
    item = Item(f"a/{number}.jpg", f"/p/a/{number}.jpg", label="a")
    return Row(number, item, status, files=(f"a/{number}.png",), shard=number // 10)  # type: ignore[arg-type]


def test_a_row_is_told_in_full() -> None:
    row = Row(
        7,
        Item("a/b.jpg", "/p/x.tar", "m/b.jpg", 512, 99, "a", "tabby"),
        "done",
        "",
        640,
        480,
        ("turned", "blank"),
        (Guess(281, "tabby", 0.1), Guess(7, "", math.nan)),
        ("tabby", "cock"),
        ("a/b.png",),
        3,
        math.inf,
    )
    assert rows_to_table([row]).to_pylist() == [
        {
            "number": 7,
            "name": "a/b.jpg",
            "path": "/p/x.tar",
            "member": "m/b.jpg",
            "label": "a",
            "target": "tabby",
            "status": "done",
            "reason": "",
            "width": 640,
            "height": 480,
            "notes": ["turned", "blank"],
            "predictions": [
                {"index": 281, "label": "tabby", "probability": 0.1},
                {"index": 7, "label": "", "probability": None},
            ],
            "explained": ["tabby", "cock"],
            "files": ["a/b.png"],
            "shard": 3,
            "seconds": None,
        }
    ]


def test_names_that_are_no_unicode_are_written_out_wherever_they_lie() -> None:
    bad = "\udcff\ud800"
    row = Row(
        0, Item("n", "/p/\udcff", label="ok"), "failed", bad, notes=(bad,), predictions=(Guess(0, "\udcfe", 0.5),)
    )
    (told,) = rows_to_table([row]).to_pylist()
    assert told["path"] == "/p/\\xff"
    assert told["reason"] == "\\udcff\\ud800"
    assert told["notes"] == ["\\udcff\\ud800"]
    assert told["predictions"][0]["label"] == "\\xfe"


@given(st.lists(st.integers(0, 9), max_size=8))
@settings(max_examples=25, deadline=None)
def test_the_bytes_depend_on_the_rows_alone(tmp_path_factory: pytest.TempPathFactory, sizes: list[int]) -> None:
    folder = tmp_path_factory.mktemp("manifests")
    rows = [made_row(number) for number in range(sum(sizes))]
    pieces, start = [], 0
    for size in sizes:
        pieces.append(rows_to_table(rows[start : start + size]))
        start += size
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest, "GROUP_ROWS", 7)
        assert write_manifest(folder / "pieces", pieces) == len(rows)
        write_manifest(folder / "whole", [rows_to_table(rows)])
    assert (folder / "pieces").read_bytes() == (folder / "whole").read_bytes()
    assert pq.read_table(folder / "pieces", partitioning=None) == rows_to_table(rows)


def test_the_bytes_of_today_are_those_of_tomorrow(tmp_path: Path) -> None:
    digests = set()
    for name in "ab":
        write_manifest(tmp_path / name, [rows_to_table(map(made_row, range(50)))])
        digests.add(hashlib.sha256((tmp_path / name).read_bytes()).hexdigest())
    assert len(digests) == 1
    assert b"pandas" not in (tmp_path / "a").read_bytes()


def written(out: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(manifest, "GROUP_ROWS", 10)
    out.mkdir(parents=True)
    write_manifest(
        out / "manifest.parquet", [rows_to_table(made_row(n, "failed" if n == 23 else "done") for n in range(40))]
    )
    return out


def test_rows_are_found_by_what_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = written(tmp_path / "class=dog" / "out", monkeypatch)  # which pyarrow would make a column of
    assert read_manifest(out) == pq.ParquetFile(out / "manifest.parquet").read()
    assert read_manifest(out, columns=["number"], filters=[("status", "=", "failed")]).to_pylist() == [{"number": 23}]
    assert list(iterate_manifest(out, columns=["name"], filters=[("number", ">=", 38)])) == [
        {"name": "a/38.jpg"},
        {"name": "a/39.jpg"},
    ]
    assert [row["number"] for row in iterate_manifest(out)] == list(range(40))


def test_a_filter_can_skip_row_groups_and_what_repeats_is_stored_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pq.ParquetFile(written(tmp_path / "out", monkeypatch) / "manifest.parquet") as file:
        columns = [file.metadata.row_group(2).column(at) for at in range(file.metadata.num_columns)]
    by_name = {column.path_in_schema: column for column in columns}
    assert (by_name["status"].statistics.min, by_name["status"].statistics.max) == ("done", "failed")
    assert (by_name["number"].statistics.min, by_name["number"].statistics.max) == (20, 29)
    assert {name for name, column in by_name.items() if column.has_dictionary_page} >= {"status", "label", "shard"}


def test_a_manifest_can_be_read_by_other_tools_as_its_schema_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = written(tmp_path / "out", monkeypatch)
    assert pq.read_schema(out / "manifest.parquet").equals(manifest_schema())
    assert pa.types.is_string(read_manifest(out).schema.field("status").type)


def test_where_there_is_no_manifest_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no finished export: there is no manifest\.parquet"):
        read_manifest(tmp_path)
    (tmp_path / ".camapp").mkdir()
    with pytest.raises(UsageError, match="is not finished"):
        next(iterate_manifest(tmp_path))
