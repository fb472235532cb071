"""Tables: paths, labels and classes to explain, from CSV, TSV and Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from camapp.batch.sources import Columns, list_items
from camapp.errors import UsageError


def rows(source: Path, **columns: str) -> list[tuple[str, str | None, str | None]]:
    return [(item.name, item.label, item.target) for item in list_items(source, Columns(**columns))]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", "path,label,target\na/1.jpg,cat,281\nb 2.jpg,,\n"),
        ("t.csv", "\ufefftarget_class;Class;FILE;number\r\n281;cat;a/1.jpg;7\r\n\r\n;;b 2.jpg;8\r\n"),
        ("t.TSV", 'filename\tcategory\ttarget\n"a/1.jpg"\t cat \t281\nb 2.jpg\t\t\n'),
    ],
)
def test_columns_are_found_by_their_usual_names(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(text.encode())
    assert rows(tmp_path / name) == [("a/1.jpg", "cat", "281"), ("b 2.jpg", None, None)]
    assert next(list_items(tmp_path / name)).path == str(tmp_path / "a/1.jpg")


def test_named_columns_come_before_the_usual_ones(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("path,Photo,label,breed,target,wanted\nno.jpg,a.jpg,no,tabby,no,cat\n")
    named = {"path": "photo", "label": "breed", "target": "wanted"}
    assert rows(tmp_path / "t.csv", **named) == [("a.jpg", "tabby", "cat")]


def test_a_column_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("path,labels\na.jpg,cat\n")
    pq.write_table(pa.table({"path": ["a.jpg"], "labels": ["cat"]}), tmp_path / "t.parquet")
    for name in ("t.csv", "t.parquet"):
        with pytest.raises(
            UsageError, match=r'no column "label" \(--label-column\); it has path, labels\. Did you mean'
        ):
            list_items(tmp_path / name, Columns(label="label"))


def test_columns_without_a_table_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").touch()
    with pytest.raises(UsageError, match=r"Columns are named \(breed\), but no source is a table"):
        list_items(tmp_path, Columns(label="breed"))


def test_a_picture_may_be_named_twice_for_two_classes(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("path,label,target\na.jpg,x,1\na.jpg,y,2\nb.jpg,x,1\n")
    assert rows(tmp_path / "t.csv") == [("a.jpg", "x", "1"), ("a.jpg (2)", "y", "2"), ("b.jpg", "x", "1")]


def test_paths_may_lie_anywhere_and_names_stay_inside(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    table = tmp_path / "set" / "t.csv"
    table.write_text(f"path\n../a.jpg\n{tmp_path}/set/b.jpg\n/elsewhere/../c.jpg\n")
    found = [(item.name, item.path) for item in list_items(table)]
    assert found == [
        ("a.jpg", f"{tmp_path}/set/../a.jpg"),
        ("b.jpg", f"{tmp_path}/set/b.jpg"),
        ("elsewhere/c.jpg", "/elsewhere/../c.jpg"),
    ]


def test_quoted_cells_keep_separators_and_line_breaks(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('path,label\n"one, two.jpg","a\nb"\n"say ""hi"".jpg",x\n')
    assert rows(tmp_path / "t.csv") == [("one, two.jpg", "a\nb", None), ('say "hi".jpg', "x", None)]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", r'no column "path"; it has none'),
        (b"where,label\nx.jpg,cat\n", r'no column "path"; it has where, label\. Name'),
        (b"path,label\n", "names no picture"),
        (b'path,label\n"a\nb.jpg",cat\nx.jpg\n', "wrong in line 4: 1 cells under 2 columns"),
        (b"path,label\n ,cat\n", "no path in line 2"),
        (b"path,label\n\xff\xfe.jpg,cat\n", "not a table"),
        ("path,label\na.jpg,cat\n".encode("utf-16"), "not a table"),
    ],
)
def test_a_table_that_cannot_be_read_says_where_and_why(content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(UsageError, match=says):
        list(list_items(tmp_path / "t.csv"))


def test_what_is_wrong_further_down_is_said_when_it_is_reached(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("path,label\na.jpg,cat\nb.jpg\n")
    items = list_items(tmp_path / "t.csv")
    assert next(items).name == "a.jpg"
    with pytest.raises(UsageError, match="line 3"):
        next(items)


def test_parquet_is_read_over_row_groups_with_values_of_any_kind(tmp_path: Path) -> None:
    count = 10_000  # more than are read at once, and than a row group holds
    table = pa.table(
        {
            "Image": pa.array([f"{number}.jpg" for number in range(count)]).dictionary_encode(),
            "class": pa.array([None if number % 2 else number for number in range(count)], pa.float64()),
            "target": pa.array(range(count), pa.int16()),
            "pixels": [b"not read"] * count,
        }
    )
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=3000)
    expected = [(f"{number}.jpg", None if number % 2 else str(number), str(number)) for number in range(count)]
    assert rows(tmp_path / "t.parquet") == expected


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"path": ["a.jpg", None]}, "no path in row 2"),
        ({"image": [{"path": "a.jpg", "bytes": b""}]}, r'column "image" .* holds struct<.*>, not text'),
        ({"text": ["x"]}, r'no column "path"; it has text'),
        ({"path": pa.array([], pa.string())}, "names no picture"),
    ],
)
def test_parquet_that_names_no_pictures_is_refused(columns: dict[str, Any], says: str, tmp_path: Path) -> None:
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    with pytest.raises(UsageError, match=says):
        list(list_items(tmp_path / "t.parquet"))


def test_a_file_that_is_no_parquet_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(UsageError, match="cannot be read as Parquet"):
        list_items(tmp_path / "t.parquet")
