"""FeatureTable: what it checks, and what it makes of its features."""

from __future__ import annotations

import pickle
import sys
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from camapp.errors import LayerError, UsageError
from camapp.features.info import FeatureInfo
from camapp.features.table import FeatureTable

NAMES = ("b.jpg", "a.jpg", "c/d.jpg")


def info_of(size: tuple[int, ...]) -> FeatureInfo:
    return FeatureInfo("layer4", "ReLU", "NCHW", (8, 7, 5), (7, 5), (32.0, 45.5), 0, "float32", "avg", size)


def table(**changes: Any) -> FeatureTable:
    given: dict[str, Any] = {
        "names": NAMES,
        "features": {
            "map": np.array([[[1, 2], [3, 4]], [[5, 6], [7, 8]], [[9, 10], [11, 12]]], np.float16),
            "score": np.array([0.25, 0.5, 0.75], np.float32),
        },
        "info": {"score": info_of(()), "map": info_of((2, 2))},
        "labels": ("dog", "cat", "dog"),
        "failures": (("broken.jpg", "damaged"),),
    }
    return FeatureTable(**{**given, **changes})


def test_layers_keep_the_order_of_the_features() -> None:
    assert table().layers == tuple(table().info) == ("map", "score")
    assert len(table()) == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"names": ("a", "b", "a")}, "1 name\\(s\\) occur more than once, such as 'a'"),
        ({"names": "abc"}, "names is one text, 'abc'"),
        ({"names": ("a", "b", 3)}, "names: 3 is a int, not a text"),
        ({"names": ("a", "b", "\udcff")}, r"names: '\\udcff' holds a NUL or bytes that are no Unicode"),
        ({"labels": ("a", "b", "c\0")}, "labels: 'c\\\\x00' holds a NUL"),
        ({"names": ("a", "b")}, r"3 label\(s\) for 2 picture\(s\)"),
        ({"names": ("a", "b"), "labels": None}, r'"map" have the shape \(3, 2, 2\); 2 picture\(s\).* make \(2, 2, 2\)'),
        ({"labels": ("cat",)}, r"1 label\(s\) for 3 picture\(s\)"),
        ({"labels": ("cat", "dog", None)}, "labels: None is a NoneType"),
        ({"info": {"map": info_of((2, 2))}}, 'features are of "map", "score", the info is of "map"'),
        ({"features": {}, "info": {}}, "of no layer, the info is of no layer"),
        ({"info": {"map": info_of((4,)), "score": info_of(())}}, r"shape \(3, 2, 2\).* size \(4,\) .* make \(3, 4\)"),
        ({"features": {"x": np.zeros((3, 2), np.int64)}, "info": {"x": info_of((2,))}}, '"x" are int64, not float16'),
        ({"features": {"x": np.zeros((3, 0))}, "info": {"x": info_of((0,))}}, "a feature without values"),
        ({"provenance": {"device": torch.device("cpu")}}, "provenance cannot be written as JSON"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        table(**changes)


def test_provenance_is_what_json_makes_of_it() -> None:
    assert table(provenance={"input": (224, 224), "classes": {1: "cat"}}).provenance == {
        "input": [224, 224],
        "classes": {"1": "cat"},
    }


def test_a_layer_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(LayerError, match=r'No features of "mapp". Did you mean map\? The table has "map", "score"\.'):
        table()["mapp"]
    with pytest.raises(LayerError):
        table()["no such"]
    with pytest.raises(TypeError):
        iter(table())  # type: ignore[call-overload]


def test_targets_are_places_in_the_sorted_classes() -> None:
    assert table().classes == ("cat", "dog")
    assert table().targets.tolist() == [1, 0, 1]
    assert table().targets.dtype == np.int64
    unlabelled = table(labels=None)
    assert unlabelled.classes == ()
    with pytest.raises(UsageError, match=r"no labels\. Give them: table\.with_labels"):
        _ = unlabelled.targets


@given(st.lists(st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=2), max_size=9))
def test_classes_of_targets_are_the_labels(labels: list[str]) -> None:
    features = {"x": np.zeros((len(labels), 1), np.float32)}
    made = FeatureTable(tuple(map(str, range(len(labels)))), features, {"x": info_of((1,))}, labels)
    assert [made.classes[target] for target in made.targets] == labels
    assert list(made.classes) == sorted(set(labels))


def test_joined_is_all_values_side_by_side_in_the_order_asked_for() -> None:
    joined = table().joined()
    assert joined.dtype == np.float32
    assert joined.tolist() == [[1, 2, 3, 4, 0.25], [5, 6, 7, 8, 0.5], [9, 10, 11, 12, 0.75]]
    assert table().joined(["score", "map"])[1].tolist() == [0.5, 5, 6, 7, 8]
    assert table().joined(["map"]).dtype == np.float16
    assert table().rows([]).joined().shape == (0, 5)


@pytest.mark.parametrize(
    ("layers", "error", "message"),
    [
        ("map", UsageError, r'a list of names: \["map"\]'),
        ([], UsageError, "No layers to join"),
        (["map", "fc"], LayerError, 'No features of "fc"'),
    ],
)
def test_layers_that_cannot_be_joined_are_refused(layers: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        table().joined(layers)


@pytest.mark.parametrize(
    ("indices", "numbers"),
    [
        ([2, 0], [2, 0]),
        ([-1], [2]),
        (np.array([1], np.uint8), [1]),
        ([True, False, True], [0, 2]),
        (torch.tensor([2, 1]), [2, 1]),
        (slice(None, None, -2), [2, 0]),
        (slice(1, 99), [1, 2]),
        ([], []),
    ],
)
def test_rows_are_those_asked_for(indices: Any, numbers: list[int]) -> None:
    whole, some = table(provenance={"model": "vgg16"}), table(provenance={"model": "vgg16"}).rows(indices)
    assert some.names == tuple(whole.names[number] for number in numbers)
    assert some.labels == tuple(whole.labels[number] for number in numbers)  # type: ignore[index]
    for layer in whole.layers:
        assert some[layer].tolist() == [whole[layer][number].tolist() for number in numbers]
    assert (some.provenance, some.failures, some.info) == (whole.provenance, whole.failures, whole.info)


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        ([3], "Row 3 is out of range: the table has 3"),
        ([0, -4], "Row -4 is out of range"),
        ([0, 0], "occur more than once"),
        ([True, False], "3 booleans or a slice, not bool"),
        ([0.5], "not float64"),
        (1, r"of the shape \(\)"),
    ],
)
def test_rows_that_are_not_there_are_refused(indices: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        table().rows(indices)


def test_a_slice_of_rows_copies_no_features() -> None:
    whole = table()
    assert np.shares_memory(whole.rows(slice(1, 3))["map"], whole["map"])


def test_other_labels_leave_the_rest() -> None:
    assert table().with_labels(["x", "y", "x"]).targets.tolist() == [0, 1, 0]
    assert table().with_labels(None).labels is None
    assert table().with_labels(["x", "y", "x"]).names == NAMES
    with pytest.raises(UsageError, match="labels is one text"):
        table().with_labels("xyx")
    with pytest.raises(UsageError, match=r"2 label\(s\) for 3"):
        table().with_labels(["x", "y"])


def test_tensors_share_memory_but_never_open_a_closed_array_for_writing() -> None:
    whole = table()
    tensor = whole.torch("map")
    assert tensor.dtype == torch.float16
    tensor[0, 0, 0] = 99
    assert whole["map"][0, 0, 0] == 99
    whole["score"].flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        whole.torch("score")[0] = 99
    assert whole["score"][0] == 0.25
    with pytest.raises(LayerError):
        whole.torch("fc")


def test_a_data_frame_has_a_column_a_value() -> None:
    frame = table().to_pandas()
    assert list(frame.columns) == ["path", "label", "map[0][0]", "map[0][1]", "map[1][0]", "map[1][1]", "score"]
    assert frame["path"].tolist() == list(NAMES)
    assert frame["map[1][0]"].tolist() == [3, 7, 11]
    assert frame["map[1][0]"].dtype == np.float16
    assert frame["score"].dtype == np.float32
    assert list(table(labels=None).rows([]).to_pandas().columns)[:2] == ["path", "map[0][0]"]


def test_without_pandas_a_data_frame_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError, match="pip install pandas"):
        table().to_pandas()


def test_it_shows_itself_in_a_line() -> None:
    assert repr(table()) == (
        'FeatureTable(3 pictures of 2 classes: "map" (2, 2) float16, "score" () float32; 1 failed)'
    )
    many = {f"l{number}": np.zeros((1, 2), np.float32) for number in range(9)}
    wide = FeatureTable(("a",), many, {layer: info_of((2,)) for layer in many})
    assert repr(wide).startswith('FeatureTable(1 picture: "l0" (2,) float32, ')
    assert repr(wide).endswith('"l3" (2,) float32, and 5 more layers)')


def test_tables_go_from_process_to_process() -> None:
    found = pickle.loads(pickle.dumps(table()))
    assert replace(found, labels=None).names == NAMES
    assert found["map"].tolist() == table()["map"].tolist()


def test_tensors_and_lists_of_numbers_in_place_of_arrays_become_arrays() -> None:
    made = table(features={"map": torch.ones(3, 2, 2), "score": [0.5, 1.5, 2.5]})
    assert made["map"].dtype == np.float32
    assert made["score"].tolist() == [0.5, 1.5, 2.5]
