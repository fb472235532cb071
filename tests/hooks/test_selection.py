"""Names, globs, indices, regular expressions and aliases of layers."""

from __future__ import annotations

import pytest
from torch import nn

from camapp.errors import LayerError
from camapp.hooks.layers import Layer, find_layer
from camapp.hooks.selection import select_layers


def network() -> nn.Module:
    blocks = nn.Sequential(*(nn.Sequential() for _ in range(4)))
    for block in blocks:
        block.add_module("conv", nn.Conv2d(3, 3, 1))
        block.add_module("attn", nn.Sequential(nn.Identity()))
    model = nn.Sequential()
    model.add_module("stem", nn.Conv2d(3, 3, 1))
    model.add_module("blocks", blocks)
    model.add_module("head", nn.Linear(3, 2))
    return model


def names(*patterns: str | type[nn.Module]) -> list[str]:
    return list(select_layers(network(), list(patterns), {}))


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("stem", ["stem"]),
        ("blocks.*", ["blocks.0", "blocks.1", "blocks.2", "blocks.3"]),
        ("blocks.?", ["blocks.0", "blocks.1", "blocks.2", "blocks.3"]),
        ("blocks.*.conv", ["blocks.0.conv", "blocks.1.conv", "blocks.2.conv", "blocks.3.conv"]),
        ("*", ["stem", "blocks", "head"]),
        ("**.attn.0", ["blocks.0.attn.0", "blocks.1.attn.0", "blocks.2.attn.0", "blocks.3.attn.0"]),
        ("**.conv", ["blocks.0.conv", "blocks.1.conv", "blocks.2.conv", "blocks.3.conv"]),
        ("**.stem", ["stem"]),
        ("blocks[-2:]", ["blocks.2", "blocks.3"]),
        ("blocks[::3]", ["blocks.0", "blocks.3"]),
        ("blocks[-1]", ["blocks.3"]),
        ("blocks[1].attn", ["blocks.1.attn"]),
        ("blocks[:2].conv:input", ["blocks.0.conv:input", "blocks.1.conv:input"]),
        ("[0]", ["stem"]),
        (r"re:blocks\.[02]", ["blocks.0", "blocks.2"]),
        ("blocks.*@0", ["blocks.0@0", "blocks.1@0", "blocks.2@0", "blocks.3@0"]),
        ("stem#1", ["stem#1"]),
        ("head:input", ["head:input"]),
    ],
)
def test_a_pattern_means_these_layers(pattern: str, expected: list[str]) -> None:
    assert names(pattern) == expected


def test_a_star_stays_within_one_part_of_a_name() -> None:
    assert "blocks.0.conv" not in names("blocks.*")
    assert "blocks.0.conv" in names("blocks.**")


def test_a_layer_that_two_patterns_mean_is_there_once_at_its_first_place() -> None:
    assert names("blocks.2", "blocks[-2:]", "stem", "blocks.3") == ["blocks.2", "blocks.3", "stem"]


def test_an_alias_is_asked_unless_a_layer_has_its_name() -> None:
    model = network()
    aliases = {"deep": lambda: find_layer(model, "blocks.3"), "stem": lambda: find_layer(model, "head")}
    found = select_layers(model, ["deep", "stem"], aliases)
    assert {name: layer.name for name, layer in found.items()} == {"deep": "blocks.3", "stem": "stem"}


def test_a_module_that_is_there_twice_is_counted_twice() -> None:
    one, other = nn.Linear(2, 2), nn.Linear(2, 2)
    model = nn.Sequential()
    model.add_module("blocks", nn.ModuleList([one, other, one]))
    assert list(select_layers(model, ["blocks[-1]"], {})) == ["blocks.2"]
    assert list(select_layers(model, ["blocks.*"], {})) == ["blocks.0", "blocks.1", "blocks.2"]


def test_a_module_is_found_by_itself() -> None:
    model = network()
    assert list(select_layers(model, model.get_submodule("blocks.1"), {})) == ["blocks.1"]


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("blocs.0", "Did you mean blocks"),
        ("block*.9", "matches"),
        ("blocks[7]", "4 parts"),
        ("blocks[9:]", "4 parts"),
        ("blocks[::0]", "means no layer"),
        ("blocks[x]", "cannot be read"),
        ("blocks[]", "cannot be read"),
        ("a\nb", "No layer"),
        ("re:(", "no regular expression"),
        ("re:nothing.*", "matches"),
        ("blocks[0].nothing", "No layer"),
    ],
)
def test_a_pattern_that_means_nothing_says_so(pattern: str, says: str) -> None:
    with pytest.raises(LayerError, match=says):
        names(pattern)


def test_no_pattern_at_all_is_an_error_that_says_so() -> None:
    with pytest.raises(LayerError, match="No layer is named"):
        select_layers(network(), [], {})


def test_the_error_of_an_unknown_name_lists_the_aliases() -> None:
    with pytest.raises(LayerError, match="Aliases: last"):
        select_layers(network(), "nowhere", {"last": lambda: Layer("", network())})


def test_a_class_of_modules_means_all_of_them():
    assert list(select_layers(network(), nn.Linear, {})) == ["head"]
    assert names(nn.Conv2d, "head") == ["stem", *(f"blocks.{n}.conv" for n in range(4)), "head"]
    with pytest.raises(LayerError, match=r"has no LSTM\. Its layers: Conv2d, Identity, Linear, Sequential"):
        names(nn.LSTM)


@pytest.mark.parametrize("key", ["lstm", "lstm@2", "lstm:input", "lstm#1.0", "lstm@2:input#x.3"])
def test_the_name_of_a_place_is_read_back_as_that_place(key: str) -> None:
    model = nn.ModuleDict({"lstm": nn.LSTM(2, 2)})
    assert find_layer(model, key).key == key
