"""File names that every file system takes, and files that are whole or not there."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from camapp.files import (
    LONGEST_STEM_BYTES,
    put_aside,
    safe_name,
    safe_stem,
    unused_stem,
    whole_folder,
    write_atomically,
    write_together,
    zipped,
    zipped_folder,
)


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("cat.jpg", "cat"),
        ("/a/b/cat.final.PNG", "cat.final"),
        ("C:\\pictures\\cat.jpg", "cat"),
        ("../../etc/passwd", "passwd"),
        ("köttur 猫 (1).jpg", "köttur_猫_(1)"),
        ("<img src=x>.png", "img_src_x"),
        ("...", "picture"),
        ("", "picture"),
        ("cat", "cat"),
        (".hidden", "hidden"),
    ],
)
def test_stems_by_hand(name: str, stem: str) -> None:
    assert safe_stem(name) == stem


def test_a_class_name_is_no_path() -> None:
    assert safe_name("a/b") == "a_b"
    assert safe_name("St. Bernard") == "St._Bernard"


@given(st.text(max_size=400))
def test_any_text_becomes_a_name_that_can_be_written(name: str) -> None:
    stem = safe_stem(name)
    assert stem
    assert len(stem.encode()) <= LONGEST_STEM_BYTES
    assert not set(stem) & set('/\\:*?"<>|\0\n')
    assert not stem.startswith(".")


@given(st.lists(st.sampled_from(["cat", "Cat", "CAT", "cat_2", "dog"]), max_size=12))
def test_no_two_stems_are_alike_even_where_case_is_ignored(stems: list[str]) -> None:
    used: set[str] = set()
    given_out = [unused_stem(stem, used).casefold() for stem in stems]
    assert len(set(given_out)) == len(stems)


def test_a_write_that_fails_leaves_the_old_file_and_no_part_behind(tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    write_atomically(path, b"old")
    with pytest.raises(TypeError):
        write_atomically(path, "not bytes")  # type: ignore[arg-type]
    assert path.read_bytes() == b"old"
    assert [one.name for one in tmp_path.iterdir()] == ["facts.json"]
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"


def test_files_written_together_are_all_new_or_all_old(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    paths = write_together(folder, {"a": b"old", "b": b"old"})
    with pytest.raises(TypeError):
        write_together(folder, {"a": b"new", "b": "not bytes"})  # type: ignore[dict-item]
    assert [path.read_bytes() for path in paths] == [b"old", b"old"]
    assert sorted(one.name for one in folder.iterdir()) == ["a", "b"]
    write_together(folder, {"a": b"new"})
    assert [path.read_bytes() for path in paths] == [b"new", b"old"]


def test_a_long_name_of_any_script_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("猫" * 80 + ".json")
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"


def test_a_folder_that_fails_leaves_the_old_one_and_no_part_behind(tmp_path: Path) -> None:
    path = tmp_path / "x[1]"
    for content in ("old", "new"):
        with whole_folder(path) as part:
            (part / content).touch()
            assert not (path / content).exists()
    assert [one.name for one in path.iterdir()] == ["new"]

    def interrupted() -> None:
        with whole_folder(path) as part:
            (part / "half").touch()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [str(one.relative_to(tmp_path)) for one in tmp_path.rglob("*")] == ["x[1]", "x[1]/new"]


def test_a_folder_is_put_back_where_the_new_one_cannot_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x"
    path.mkdir()
    (path / "old").touch()
    rename = Path.rename

    def refused(self: Path, target: Path) -> Path:
        if self.suffix == ".part":
            assert [one.name for one in put_aside(path)[0].iterdir()] == ["old"]
            raise PermissionError
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refused)
    with pytest.raises(PermissionError), whole_folder(path):
        pass
    assert [one.name for one in path.iterdir()] == ["old"]
    assert put_aside(path) == []


def test_the_same_files_are_the_same_zip_whenever_it_is_made(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "map.png").write_bytes(b"\0" * 1000)
    (tmp_path / "a.txt").write_bytes(b"text" * 1000)
    first = zipped_folder(tmp_path)
    os.utime(tmp_path / "a.txt", (1, 1))
    assert zipped_folder(tmp_path) == first
    with zipfile.ZipFile(io.BytesIO(first)) as archive:
        sizes = {one.filename: (one.file_size, one.compress_type) for one in archive.infolist()}
    assert sizes == {"a.txt": (4000, zipfile.ZIP_DEFLATED), "b/map.png": (1000, zipfile.ZIP_STORED)}
    assert zipped({"a.txt": b"text" * 1000, "b/map.png": b"\0" * 1000}) == first
