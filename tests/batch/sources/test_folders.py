"""Folders, files, patterns, lists and standard input."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from camapp.batch.sources import list_items
from camapp.errors import UsageError

LONG = "x" * 196 + ".jpg"


def touch(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def names(source: object) -> list[str]:
    return [item.name for item in list_items(source)]  # type: ignore[arg-type]


def test_a_folder_is_listed_by_name_with_its_first_subfolders_as_labels(tmp_path: Path) -> None:
    touch(tmp_path, "b.PNG", "a.jpg", "a/z.webp", "a/b/c.jpg", "notes.txt", "jpg")
    found = [(item.name, item.label, item.path) for item in list_items(tmp_path)]
    assert found == [
        ("a/b/c.jpg", "a", str(tmp_path / "a/b/c.jpg")),
        ("a/z.webp", "a", str(tmp_path / "a/z.webp")),
        ("a.jpg", None, str(tmp_path / "a.jpg")),
        ("b.PNG", None, str(tmp_path / "b.PNG")),
    ]


def test_unusual_names_are_listed_as_they_are(tmp_path: Path) -> None:
    unusual = ["A.jpg", "a.jpg", "line\nbreak.jpg", "two words.jpg", LONG, "ü 猫.jpg", "#1.jpg", "x[1].jpg", "~.jpg"]
    touch(tmp_path, *unusual)
    assert names(tmp_path) == sorted(unusual)
    assert names(str(tmp_path / "x[1].jpg")) == ["x[1].jpg"]


def test_names_that_are_no_unicode_can_be_written_and_stay_apart_from_those_that_look_alike(tmp_path: Path) -> None:
    touch(tmp_path, "bad\\xff.jpg")
    (tmp_path / os.fsdecode(b"bad\xff.jpg")).touch()
    items = list(list_items(tmp_path))
    assert {item.name for item in items} == {"bad/xff.jpg", "bad\\xff.jpg"}
    assert all(os.path.isfile(item.path) for item in items)


def test_hidden_files_and_folders_are_left_out(tmp_path: Path) -> None:
    touch(tmp_path, ".a.jpg", ".cache/b.jpg", "c/.d.jpg", "c/e.jpg")
    assert names(tmp_path) == ["c/e.jpg"]


def test_links_to_folders_are_followed_once_and_loops_end(tmp_path: Path) -> None:
    folder = touch(tmp_path / "set", "cat/1.jpg")
    touch(tmp_path / "elsewhere", "2.jpg")
    (folder / "cat" / "up").symlink_to(folder)
    (folder / "dog").symlink_to(tmp_path / "elsewhere")
    (folder / "eel").symlink_to(tmp_path / "elsewhere")
    (folder / "self.jpg").symlink_to("self.jpg")
    assert names(folder) == ["cat/1.jpg", "dog/2.jpg", "self.jpg"]


def test_a_folder_without_pictures_says_what_it_holds_instead(tmp_path: Path) -> None:
    touch(tmp_path / "empty", "notes.txt")
    with pytest.raises(UsageError, match=r"no picture in the folder .*empty"):
        list_items(tmp_path / "empty")
    touch(tmp_path / "shards", "0.tar")
    with pytest.raises(UsageError, match=r"For the \.tar files in it, give \".*/\*\.tar\""):
        list_items(tmp_path / "shards")


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_a_folder_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    touch(tmp_path, "a.jpg", "closed/b.jpg")
    (tmp_path / "closed").chmod(0)
    try:
        if os.access(tmp_path / "closed", os.R_OK):
            pytest.skip("this user may read everything")
        items = list_items(tmp_path)
        with pytest.raises(UsageError, match=r"closed.* cannot be searched \(Permission denied\)"):
            list(items)
    finally:
        (tmp_path / "closed").chmod(0o700)


def test_a_folder_that_vanishes_while_its_parent_is_listed_is_named(tmp_path: Path) -> None:
    touch(tmp_path, "a.jpg", "gone/b.jpg")
    items = list_items(tmp_path)
    (tmp_path / "gone" / "b.jpg").unlink()
    (tmp_path / "gone").rmdir()
    with pytest.raises(UsageError, match=r"gone.* cannot be searched \(No such file"):
        list(items)


def test_a_pattern_names_files_from_its_fixed_part(tmp_path: Path) -> None:
    touch(tmp_path, "p/a/1.jpg", "p/a/2.png", "p/b/3.jpg", "p/d.jpg/4.jpg", "q/5.jpg")
    assert names(f"{tmp_path}/p/*/*.jpg") == ["a/1.jpg", "b/3.jpg", "d.jpg/4.jpg"]
    assert names(f"{tmp_path}/p/**/*.jpg") == ["a/1.jpg", "b/3.jpg", "d.jpg/4.jpg"]
    assert names(f"{tmp_path}/p/a/?.*") == ["1.jpg", "2.png"]
    with pytest.raises(UsageError, match=r'No file matches ".*\*\.gif"'):
        list_items(f"{tmp_path}/p/*.gif")


def test_a_list_gives_the_paths_in_it_from_its_own_folder(tmp_path: Path) -> None:
    listed = tmp_path / "lists" / "set.txt"
    touch(tmp_path, "lists/a.jpg", "up.jpg")
    listed.write_bytes(f"\ufeff# a comment\r\na.jpg\r\n\r\n  ../up.jpg \r\n{tmp_path}/lists/a.jpg\r\n".encode())
    found = [(item.name, os.path.isfile(item.path)) for item in list_items(listed)]
    assert found == [("a.jpg", True), ("up.jpg", True), ("a.jpg (2)", True)]


@pytest.mark.parametrize(("content", "says"), [(b"# none\n", "names no picture"), (b"\xff\xd8\xff\n", "not UTF-8")])
def test_a_list_that_cannot_be_read_says_why(content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "set.lst").write_bytes(content)
    with pytest.raises(UsageError, match=says):
        list_items(tmp_path / "set.lst")


def test_standard_input_names_files_from_the_current_folder_exactly(tmp_path: Path) -> None:
    program = (
        "import os\n"
        "from camapp.batch.sources import list_items\n"
        "for item in list_items('-'): print(ascii(item.name), os.fsencode(item.path).removeprefix(os.getcwdb()))"
    )
    given = b"\xef\xbb\xbf#1.jpg\r\n\n./two words.jpg \n../up.jpg\nbad\xff.jpg"
    run = [sys.executable, "-c", program]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "PYTHONUTF8": "1"}
    result = subprocess.run(run, input=given, capture_output=True, cwd=tmp_path, env=environment, check=True)
    assert result.stdout.decode().splitlines() == [
        "'#1.jpg' b'/#1.jpg'",
        "'two words.jpg ' b'/./two words.jpg '",
        "'up.jpg' b'/../up.jpg'",
        r"'bad\\xff.jpg' b'/bad\xff.jpg'",
    ]
    nothing = subprocess.run(run, input=b"\n", capture_output=True, cwd=tmp_path, env=environment, check=False)
    assert b"Standard input names no picture" in nothing.stderr
