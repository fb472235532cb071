"""Tensors are found in structures, and replaced without changing what was given."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from camapp.hooks.structures import tensors_in, with_tensors

Pair = namedtuple("Pair", ["first", "second"])
ONE, TWO, NEW = torch.tensor([1.0]), torch.tensor([2.0]), torch.tensor([9.0])


@dataclass(frozen=True)
class Output:
    logits: torch.Tensor
    note: str = "kept"


@pytest.mark.parametrize(
    ("value", "places"),
    [
        (ONE, [""]),
        ((ONE, (TWO, ONE)), ["0", "1.0", "1.1"]),
        ([ONE, None, "text"], ["0"]),
        ({"x": ONE, "deep": {"y": [TWO]}}, ["x", "deep.y.0"]),
        ({0: ONE}, ["0"]),
        (Pair(ONE, TWO), ["0", "1"]),
        (Output(ONE), ["logits"]),
        (OrderedDict(a=ONE), ["a"]),
        (MappingProxyType({"a": ONE}), ["a"]),
        (3.5, []),
        (None, []),
        (SimpleNamespace(a=ONE), []),
        (Output, []),
    ],
)
def test_every_tensor_is_found_at_its_place_and_can_be_replaced_there(value: Any, places: list[str]) -> None:
    assert list(tensors_in(value)) == places
    for place in places:
        new = with_tensors(value, {place: NEW})
        assert type(new) is type(value)
        after = tensors_in(new)
        assert after[place] is NEW
        assert all(after[other] is tensor for other, tensor in tensors_in(value).items() if other != place)
        assert tensors_in(value)[place] is not NEW, "what was given has changed"


def test_nothing_to_replace_gives_the_very_same_object():
    value = (ONE, [TWO])
    assert with_tensors(value, {}) is value


def test_what_a_class_of_its_own_holds_beside_its_tensors_stays():
    kept = defaultdict(list, a=ONE)
    assert with_tensors(kept, {"a": NEW}).default_factory is list
    assert with_tensors(Output(ONE, "mine"), {"logits": NEW}).note == "mine"


def test_the_states_of_an_lstm_have_places_of_their_own():
    given = nn.LSTM(2, 3)(torch.randn(4, 1, 2))
    assert list(tensors_in(given)) == ["0", "1.0", "1.1"]


structures = st.recursive(
    st.just("tensor") | st.none() | st.integers(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(st.sampled_from("abc"), inner)
    ),
    max_leaves=8,
)


@given(structures)
def test_replacing_every_tensor_by_itself_gives_an_equal_structure(shape: Any) -> None:
    def filled(part: Any) -> Any:
        if part == "tensor":
            return torch.zeros(1)
        if isinstance(part, dict):
            return {key: filled(value) for key, value in part.items()}
        return type(part)(map(filled, part)) if isinstance(part, list | tuple) else part

    value = filled(shape)
    found = tensors_in(value)
    again = tensors_in(with_tensors(value, found))
    assert list(again) == list(found)
    assert all(again[place] is tensor for place, tensor in found.items())
