"""Typed labels: by name or in order, and every line that cannot be meant is refused with its own words."""

from __future__ import annotations

import numpy as np
import pytest

from camapp.errors import UsageError
from camapp.features.info import FeatureInfo
from camapp.features.table import FeatureTable
from camapp.transfer.typed_labels import with_typed_labels

NAMES = ("a/1.jpg", "b/1.jpg", "b/2.jpg", 'odd, "name".jpg')


@pytest.fixture
def table() -> FeatureTable:
    info = FeatureInfo("fc", "Linear", "NC", (2,), None, None, 0, "float32", "avg", (2,))
    return FeatureTable(NAMES, {"fc": np.arange(8, dtype=np.float32).reshape(4, 2)}, {"fc": info})


def test_lines_without_a_comma_label_the_pictures_in_their_order(table: FeatureTable) -> None:
    assert with_typed_labels(table, "x\ny\n\n# note\nx\nx\n").labels == ("x", "y", "x", "x")


def test_names_take_their_rows_along_in_the_order_of_the_table(table: FeatureTable) -> None:
    labelled = with_typed_labels(table, "2.jpg, dog\na/1.jpg,cat\n")
    assert (labelled.names, labelled.labels) == (("a/1.jpg", "b/2.jpg"), ("cat", "dog"))
    np.testing.assert_array_equal(labelled["fc"], table["fc"][[0, 2]])


def test_a_name_with_a_comma_stands_in_quotes(table: FeatureTable) -> None:
    assert with_typed_labels(table, '"odd, ""name"".jpg",z').names == (NAMES[3],)


def test_a_name_without_a_label_leaves_the_picture_out(table: FeatureTable) -> None:
    assert with_typed_labels(table, "a/1.jpg,\n2.jpg,dog").names == ("b/2.jpg",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "No labels were typed"),
        ("# only a note", "No labels were typed"),
        ("x\ny", r"2 label\(s\) for 4 picture\(s\).*a/1.jpg,label"),
        ("a/1.jpg,", 'Every line lacks its label, such as "a/1.jpg,"'),
        ("a/1.jpgg,x", 'No picture is called "a/1.jpgg". Did you mean a/1.jpg'),
        ("1.jpg,x", r'2 pictures are called "1.jpg" \(a/1.jpg, b/1.jpg\)'),
        ("a/1.jpg,x\na/1.jpg,y", 'a/1.jpg has two labels, "x" and "y"'),
        ("a/1.jpg,x,y", r"3 part\(s\)"),
        (f"a/1.jpg,{'x' * 60}1\na/1.jpg,{'x' * 60}2", 'A label has 61 characters; 60 are the most: "a/1.jpg,xxx'),
        (f"x\ny\n{'z' * 61}\nx", 'A label has 61 characters; 60 are the most: "zzz'),
    ],
)
def test_what_cannot_be_meant_is_refused(table: FeatureTable, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        with_typed_labels(table, text)
