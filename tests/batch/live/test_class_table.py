"""Which class a table asks for: columns by their names, files by theirs, and a reason where there is none."""

from __future__ import annotations

import pytest

from camapp.batch.live import ClassTable
from camapp.batch.live.class_table import MOST_BYTES
from camapp.errors import UsageError


def table(text: str) -> ClassTable:
    return ClassTable.read(text.encode(), "classes.csv")


def named(*names: str) -> dict[str, str]:
    return {name: name for name in names}


def test_columns_are_found_by_their_names_in_any_case_and_order() -> None:
    read = table("Label,Year,File Name,filename\ntabby,2020,x,a.jpg\nlynx,2021,y,b.jpg\n")
    assert (read.file_column, read.class_columns) == ("filename", ("Label",))
    assert read.classes(named("a.jpg", "b.jpg")).classes == {"a.jpg": "tabby", "b.jpg": "lynx"}


def test_of_several_columns_of_classes_the_target_comes_first_and_another_can_be_chosen() -> None:
    read = table("path;class;target\na.jpg;cat;281\n")
    assert read.class_columns == ("target", "class")
    assert read.classes(named("a.jpg")).classes == {"a.jpg": "281"}
    assert read.classes(named("a.jpg"), "class").classes == {"a.jpg": "cat"}
    with pytest.raises(UsageError, match='no column of classes "<b>"; it has target, class'):
        read.classes(named("a.jpg"), "<b>")


def test_where_no_column_is_called_like_a_class_every_other_one_may_be_it() -> None:
    assert table("file,animal,breed\na.jpg,cat,tabby\n").class_columns == ("animal", "breed")


@pytest.mark.parametrize("file", ["cat.jpg", "CAT.JPG", "deep/cat.jpg", "photos\\deep\\cat.jpg", "/abs/deep/cat.jpg"])
@pytest.mark.parametrize("row", ["cat.jpg", "Cat.jpg", "deep/cat.jpg", "set\\photos\\deep\\cat.jpg"])
def test_files_are_matched_in_any_case_with_and_without_folders(file: str, row: str) -> None:
    found = table(f'file,class\n"{row}",tabby\n').classes({"one": file})
    assert (found.classes, found.failed, found.unmatched) == ({"one": "tabby"}, {}, ())


def test_of_rows_of_one_file_name_the_one_in_the_same_folder_counts() -> None:
    read = table("file,class\nx/cat.jpg,tabby\ny/cat.jpg,lynx\n")
    found = read.classes(named("set/y/cat.jpg"))
    assert found.classes == {"set/y/cat.jpg": "lynx"}
    assert found.unmatched == ("x/cat.jpg",)


def test_a_file_that_several_rows_may_mean_fails_with_what_they_say() -> None:
    found = table("file,class\nx/cat.jpg,tabby\ny/cat.jpg,lynx\n").classes(named("cat.jpg"))
    assert found.classes == {}
    assert 'several classes for it: "lynx" and "tabby"' in found.failed["cat.jpg"]


def test_several_rows_that_agree_are_no_contradiction() -> None:
    assert table("file,class\ncat.jpg,tabby\nCAT.jpg,tabby\n").classes(named("cat.jpg")).classes == {"cat.jpg": "tabby"}


def test_files_without_a_row_and_rows_without_a_file_are_told() -> None:
    found = table("file,class\na.jpg,tabby\nb.jpg,\ngone.jpg,lynx\n").classes(named("a.jpg", "b.jpg", "new.jpg"))
    assert found.classes == {"a.jpg": "tabby"}
    assert 'nothing in the column "class" for it' in found.failed["b.jpg"]
    assert 'no row for it in the column "file"' in found.failed["new.jpg"]
    assert found.unmatched == ("gone.jpg",)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no column of files .* it has none: its first line is empty"),
        (b"breed,animal\ntabby,cat\n", "no column of files .* it has breed, animal"),
        (b"file\na.jpg\n", "no column of classes"),
        (b"file,class\n", "no row under its columns"),
        (b"file,class\na.jpg\n", "wrong in line 2: 1 cells under 2 columns"),
        (b"file,class\n,tabby\n", "names no file in line 2"),
        (b"\x89PNG\r\n\x1a\n\xff\xfe", "is not a table of pictures"),
        (b"file,class\n" + b"a" * 200_000 + b",x\n", "is not a table of pictures: field larger than"),
        (b"file,class\n" + b"a,b\n" * 20_001, "more than 20,000 rows"),
        (b"x" * (MOST_BYTES + 1), "4,194,305 bytes; the limit is 4,194,304"),
    ],
)
def test_what_is_no_such_table_is_refused_in_words(content: bytes, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        ClassTable.read(content, "classes.csv")
