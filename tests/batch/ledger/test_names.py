"""Stems: safe on every file system, no two alike on any, and the same whatever follows."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from camapp.batch.ledger import Stems


def stems_of(names: list[str]) -> list[str]:
    stems = Stems()
    return [stems.stem(name) for name in names]


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("a.jpg", "a"),
        ("cats/köttur 猫 (1).JPEG", "cats/köttur 猫 (1)"),
        ("a.b.jpg", "a.b"),
        ("frame.0001", "frame.0001"),  # two frames are not two formats of one
        ("v1.0/a.jpg", "v1.0/a"),
        ("a.png/b.jpg", "a_png/b"),  # or the folder would be in the way of the output a.png of a.jpg
        ("../../etc/passwd.png", "_/_/etc/passwd"),
        ("/absolute//a.jpg", "absolute/a"),
        (".hidden.jpg", "hidden"),
        (".jpg", "jpg"),
        ("", "_"),
        ("a/", "a/_"),
        ("a .jpg", "a"),
        ("dir. /a...jpg", "dir/a"),
        ("a\nb\x00c\x7f\u202ed.jpg", "a_b_c__d"),
        ('a<b>:"|?*\\c.jpg', "a_b_______c"),
        ("CON.jpg", "_CON"),
        ("nul/com1.tar.gz", "_nul/_com1.tar"),
        ("lpt³ .x.png", "_lpt³ .x"),
        ("console.jpg", "console"),
        ("e\u0301.jpg", "\u00e9"),
        ("\ud800.jpg", "_"),
    ],
)
def test_stems_by_hand(name: str, stem: str) -> None:
    assert stems_of([name]) == [stem]


def test_stems_that_some_file_system_takes_for_one_get_numbers_in_order() -> None:
    names = ["a.jpg", "a.png", "A.gif", "b/a.jpg", "a_2.jpg", "B/A.webp", "a.bmp"]
    assert stems_of(names) == ["a", "a_2", "A_3", "b/a", "a_2_2", "B/A_2", "a_4"]
    assert stems_of(["é.jpg", "e\u0301.png", "É.gif"]) == ["é", "é_2", "É_3"]
    assert stems_of(["ıi.jpg", "II.jpg"]) == ["ıi", "II_2"]  # NTFS compares upper case
    assert stems_of(["ab.jpg", "a\u200db.jpg"]) == ["ab", "a\u200db_2"]  # HFS+ sees no joiners


def test_the_exports_own_files_are_never_overwritten() -> None:
    assert stems_of(["run.jpg", "Manifest.png", "a/run.jpg"]) == ["run_2", "Manifest_2", "a/run"]


def test_names_of_200_signs_survive_and_longer_ones_are_cut_at_a_character() -> None:
    assert stems_of(["x" * 200 + ".jpg"]) == ["x" * 200]
    first, second = stems_of(["猫" * 80 + "1.jpg", "猫" * 80 + "2.jpg"])
    assert first.startswith("猫" * 63 + "_")  # 191 bytes are left beside 9 of the mark
    assert second.startswith("猫" * 63 + "_")
    assert first != second
    assert len(first.encode()) == 63 * 3 + 9


def test_a_number_never_makes_a_stem_too_long() -> None:
    stems = stems_of(["x" * 200 + ending for ending in (".jpg", ".png", ".gif")])
    assert len(set(stems)) == 3
    assert [len(stem) for stem in stems] == [200, 200, 200]
    assert [stem[-2:] for stem in stems[1:]] == ["_2", "_3"]


def test_folders_too_deep_for_a_path_become_one() -> None:
    deep, other = (f"{'folder/' * 200}{last}/a.jpg" for last in "xy")
    first, second = stems_of([deep, other])
    assert first.count("/") == second.count("/") == 1
    assert first.split("/")[0] != second.split("/")[0]
    assert len(first.encode()) <= 203


def test_a_hundred_thousand_pictures_of_one_name_are_numbered_one_after_the_other() -> None:
    stems = stems_of(["a.jpg"] * 100_000)  # in seconds: the search goes on where the last one ended
    assert stems[:3] == ["a", "a_2", "a_3"]
    assert stems[-1] == "a_100000"


def test_stems_can_be_written_side_by_side(tmp_path: Path) -> None:
    names = ["a.jpg", "a.png", "a.png/b.jpg", "a/b.jpg", "..", ".", "CON", "x" * 300, "\x01", "\x02", "ö", "o\u0308"]
    stems = stems_of(names)
    for stem in stems:
        path = tmp_path / f"{stem}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(stem)
    assert sum(len(files) for _, _, files in os.walk(tmp_path)) == len(names)


SIGNS = st.sampled_from(
    [*"aAbßſıİKÅ ._-/\\~2:\n\x00é猫", "\u0301", "\u200d", "\ufe0f", "\u212a", "\ud83d", "con", ".jpg", "_2"]
)
NAMES = st.lists(st.one_of(st.lists(SIGNS, max_size=9).map("".join), st.text(max_size=300)), max_size=12)


@given(NAMES)
@settings(max_examples=300, deadline=None)
def test_no_two_stems_are_one_on_any_file_system(names: list[str]) -> None:
    stems = stems_of(names)
    for form in ("NFC", "NFD"):
        for fold in (str.lower, str.upper, str.casefold):
            assert len({unicodedata.normalize(form, fold(unicodedata.normalize(form, one))) for one in stems}) == len(
                stems
            )


@given(st.text(max_size=700))
@settings(max_examples=300, deadline=None)
def test_every_component_is_safe(name: str) -> None:
    (stem,) = stems_of([name])
    assert not set(stem) & set('\\:*?"<>|')
    assert len(stem.encode()) <= 500 + 1 + 200
    for component in stem.split("/"):
        assert 0 < len(component.encode()) <= 200
        assert component.strip(" .") == component
        assert not any(unicodedata.category(sign) in ("Cc", "Cs") for sign in component)
        assert component.split(".")[0].strip().upper() not in {"CON", "PRN", "AUX", "NUL", "COM1", "LPT9"}


@given(NAMES, NAMES)
@settings(max_examples=200, deadline=None)
def test_what_is_added_to_a_source_changes_no_stem_before_it(names: list[str], more: list[str]) -> None:
    assert stems_of(names + more)[: len(names)] == stems_of(names)


@given(NAMES)
@settings(max_examples=200, deadline=None)
def test_no_folder_is_in_the_way_of_a_file(names: list[str]) -> None:
    stems = stems_of(names)
    files = {f"{stem}.png".casefold() for stem in stems}
    folders = {str(parent).casefold() for stem in stems for parent in Path(stem).parents}
    assert not files & folders
