"""Labels of pictures: from subfolders, and from tables of paths and labels."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from camapp.errors import UsageError
from camapp.sources.pictures import find_pictures


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def test_the_first_subfolder_is_the_label_however_deep_a_picture_lies(tmp_path: Path) -> None:
    touch(tmp_path, "cat/1.jpg", "cat/more/2.jpg", "dog/1.jpg", "loose.jpg")
    found = {picture.name: picture.label for picture in find_pictures(tmp_path)}
    assert found == {"cat/1.jpg": "cat", "cat/more/2.jpg": "cat", "dog/1.jpg": "dog", "loose.jpg": None}


@pytest.mark.parametrize(
    "text",
    [
        "path,label\na/1.jpg,cat\nb/2.jpg,dog\n",
        "label;file\ncat;a/1.jpg\ndog;b/2.jpg\n",
        "\ufeffFilename\tnumber\tClass\r\na/1.jpg\t7\tcat\r\n\r\nb/2.jpg\t8\tdog\r\n",
        'image,target\n"a/1.jpg",cat\nb/2.jpg, dog \n',
    ],
)
def test_a_table_gives_paths_from_its_own_folder_and_labels(text: str, tmp_path: Path) -> None:
    touch(tmp_path, "a/1.jpg", "b/2.jpg")
    table = tmp_path / "train.csv"
    table.write_bytes(text.encode())
    found = [(picture.path, picture.name, picture.label) for picture in find_pictures(table)]
    assert found == [(tmp_path / "a/1.jpg", "a/1.jpg", "cat"), (tmp_path / "b/2.jpg", "b/2.jpg", "dog")]


def test_a_table_without_labels_gives_none_and_quoted_names_keep_their_commas(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text('path,label\n"one, two.jpg",\nthree.jpg,x\n')
    assert [(one.name, one.label) for one in find_pictures(tmp_path / "list.csv")] == [
        ("one, two.jpg", None),
        ("three.jpg", "x"),
    ]


def test_one_picture_under_two_labels_is_refused_and_twice_the_same_counts_once(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text("path,label\na.jpg,x\na.jpg,x\nb.jpg,y\n")
    assert [one.name for one in find_pictures(tmp_path / "list.csv")] == ["a.jpg", "b.jpg"]
    (tmp_path / "list.csv").write_text("path,label\na.jpg,x\na.jpg,y\n")
    with pytest.raises(UsageError, match="is there twice, as 'x' and as 'y'"):
        find_pictures(tmp_path / "list.csv")


def test_links_to_folders_are_followed_once_and_hidden_folders_are_not_searched(tmp_path: Path) -> None:
    touch(tmp_path, "real/1.jpg", "set/cat/1.jpg", "set/.ipynb_checkpoints/2.jpg", "set/cat/.hidden/3.jpg")
    os.symlink(tmp_path / "real", tmp_path / "set" / "dog")
    os.symlink(tmp_path / "set", tmp_path / "set" / "cat" / "loop")
    assert [(one.name, one.label) for one in find_pictures(tmp_path / "set")] == [
        ("cat/1.jpg", "cat"),
        ("dog/1.jpg", "dog"),
    ]


def test_names_that_print_alike_stay_apart(tmp_path: Path) -> None:
    touch(tmp_path, "bad\\xff.jpg")
    (tmp_path / os.fsdecode(b"bad\xff.jpg")).touch()
    names = [one.name for one in find_pictures(tmp_path)]
    assert len(set(names)) == 2
    assert all(name.isprintable() for name in names)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "no column"),
        (b"where,label\nx.jpg,cat\n", "where, label"),
        (b"path,label\n", "names no picture"),
        (b"path,label\nx.jpg\n", "line 2"),
        (b"path,label\n ,cat\n", "line 2"),
        (b"path,label\n\xff\xfe.jpg,cat\n", "not a table"),
    ],
)
def test_a_table_that_cannot_be_read_says_where_and_why(content: bytes, says: str, tmp_path: Path) -> None:
    table = tmp_path / "train.csv"
    table.write_bytes(content)
    with pytest.raises(UsageError, match=says):
        find_pictures(table)
