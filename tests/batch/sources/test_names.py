"""Names: safe inside any folder, readable, and none twice."""

from __future__ import annotations

import os
from pathlib import PureWindowsPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from camapp.batch.sources.names import UniqueNames, first_folder, name_of


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("cat/a.jpg", "cat/a.jpg"),
        ("./cat//a.jpg", "cat/a.jpg"),
        ("../../etc/a.jpg", "etc/a.jpg"),
        ("cat/../a.jpg", "cat/a.jpg"),
        ("cat/..", "cat"),
        ("/etc/a.jpg", "etc/a.jpg"),
        ("C:\\pictures\\a.jpg", "pictures/a.jpg"),
        ("C:/pictures/a.jpg", "pictures/a.jpg"),
        ("/C:/D:/pictures/a.jpg", "pictures/a.jpg"),
        ("C:a.jpg", "C_a.jpg"),
        ("..\\..\\a.jpg", "a.jpg"),
        ("..", "picture"),
        ("", "picture"),
        ("...", "..."),
        ("a..b/..c.jpg", "a..b/..c.jpg"),
        ("two words/line\nbreak.jpg", "two words/line\nbreak.jpg"),
        ("猫/ü.jpg", "猫/ü.jpg"),
        (os.fsdecode(b"bad\xff.jpg"), "bad\\xff.jpg"),
    ],
)
def test_a_path_becomes_a_name_within_its_source(path: str, name: str) -> None:
    assert name_of(path) == name


@given(st.text(alphabet="ab./\\:C ü", max_size=12))
def test_no_path_leads_out_of_the_folder_that_its_name_is_joined_to(path: str) -> None:
    name = name_of(path)
    assert name
    assert ".." not in name.split("/")
    assert "\\" not in name
    assert not name.startswith("/")
    assert os.path.normpath(os.path.join("/out", name)).startswith("/out/")
    assert not PureWindowsPath(name).drive
    assert name_of(name) == name


def test_the_first_folder_is_the_label() -> None:
    assert first_folder("cat/more/a.jpg") == "cat"
    assert first_folder("a.jpg") is None


def test_names_that_come_again_are_numbered_in_turn() -> None:
    names = UniqueNames()
    given_out = [names.take(name) for name in ["a", "a", "b", "a", "a (2)", "A", "a"]]
    assert given_out == ["a", "a (2)", "b", "a (3)", "a (2) (2)", "A", "a (4)"]


@given(st.lists(st.sampled_from(["a", "a (2)", "a (3)", "a (5)", "a (2) (2)", "b"]), max_size=40))
def test_no_name_is_given_out_twice_and_the_first_of_each_is_itself(wanted: list[str]) -> None:
    names = UniqueNames()
    given_out = [names.take(name) for name in wanted]
    assert len(set(given_out)) == len(given_out)
    assert all(out == name or out.startswith(f"{name} (") for out, name in zip(given_out, wanted, strict=True))
    again = UniqueNames()
    assert [again.take(name) for name in wanted] == given_out
