"""Sources: folders, patterns, lists and files give the same pictures in the same order everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from camapp.errors import UsageError
from camapp.sources.pictures import PictureFile, find_pictures


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.PNG", "a.jpg", "sub/c.webp", "sub/a.jpg", "notes.txt", "boxes.json", ".hidden.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    return tmp_path


def names(source: object, limit: int | None = None) -> list[str]:
    return [one.name for one in find_pictures(source, limit)]  # type: ignore[arg-type]


def test_a_folder_gives_its_pictures_and_its_subfolders_sorted(folder: Path) -> None:
    assert names(folder) == ["a.jpg", "b.PNG", "sub/a.jpg", "sub/c.webp"]
    assert names(str(folder), limit=2) == ["a.jpg", "b.PNG"]


def test_patterns_lists_and_files(folder: Path) -> None:
    assert names(folder / "*.jpg") == ["a.jpg"]
    assert names(f"{folder}/**/*.jpg") == ["a.jpg", "sub/a.jpg"]
    assert names(folder / "b.PNG") == ["b.PNG"]
    listed = folder / "sub" / "list.txt"
    listed.write_text("# the first two\n../b.PNG\n\nc.webp\n")
    found = find_pictures(listed)
    assert [one.name for one in found] == ["../b.PNG", "c.webp"]
    assert all(one.path.is_file() for one in found)


def test_no_picture_is_taken_twice_and_names_stay_apart(folder: Path) -> None:
    twice = find_pictures([folder / "a.jpg", folder, folder / "sub" / "a.jpg"])
    assert [one.path.relative_to(folder).as_posix() for one in twice] == ["a.jpg", "b.PNG", "sub/a.jpg", "sub/c.webp"]
    alike = names([folder / "a.jpg", folder / "sub" / "a.jpg"])
    assert len(set(alike)) == 2


def test_a_file_whose_name_holds_a_patterns_signs_is_itself(folder: Path) -> None:
    (folder / "x[1].jpg").write_text("")
    assert names(folder / "x[1].jpg") == ["x[1].jpg"]


def test_a_missing_file_is_left_to_decoding_which_says_so(folder: Path) -> None:
    assert names(folder / "no.jpg") == ["no.jpg"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("*.tiff", r'No file matches ".*\*\.tiff"'),
        ("empty", r"no picture in the folder .*empty"),
        ("empty.txt", r"names no picture"),
        ("binary.txt", r"not UTF-8"),
    ],
)
def test_a_source_without_pictures_is_refused(source: str, message: str, folder: Path) -> None:
    (folder / "empty").mkdir()
    (folder / "empty.txt").write_text("# nothing\n")
    (folder / "binary.txt").write_bytes(b"\xff\xd8\xff")
    with pytest.raises(UsageError, match=message):
        find_pictures(folder / source)


def test_no_source_and_no_limit_are_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="names no picture"):
        find_pictures([])
    with pytest.raises(UsageError, match="limit = 0"):
        find_pictures(folder, limit=0)


def test_pictures_that_were_found_before_keep_their_names_and_labels(tmp_path: Path) -> None:
    (tmp_path / "00001").write_bytes(b"x")
    given = [PictureFile(tmp_path / "00001", "hat/a.jpg", "hat"), PictureFile(tmp_path / "00002", "b.jpg")]
    assert find_pictures(given) == given
