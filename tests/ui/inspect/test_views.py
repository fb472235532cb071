"""What the views of the Inspect tab are told: plain data, strict JSON, the numbers of the library."""

from __future__ import annotations

import base64
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import camapp
from camapp.backbones.costs import measure_costs
from camapp.backbones.layers import list_layers
from camapp.backbones.load import LoadedModel
from camapp.channels import ChannelMaps, channel_maps
from camapp.images.picture import Picture
from camapp.inspection import inspect_picture
from camapp.ui.frame.words import amount, figure
from camapp.ui.inspect.channels import channels_of
from camapp.ui.inspect.depth import depth_of
from camapp.ui.inspect.tree import tree_of

NAN, INF = float("nan"), float("inf")


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU()),
        nn.Conv2d(6, 4, 3, padding=1, stride=2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 2),
    )
    return camapp.wrap_model(network, size=16, labels=["<b>cat</b>", "dog"])


@pytest.fixture(scope="module")
def picture() -> Picture:
    pixels = np.random.default_rng(0).integers(0, 256, (16, 24, 3), np.uint8)
    return Picture.from_array(pixels)


@pytest.fixture
def maps(model: LoadedModel, picture: Picture) -> ChannelMaps:
    return channel_maps(model, picture, "1")


def strict(view: dict[str, Any]) -> dict[str, Any]:
    """As the browser gets it; fails where there is a NaN."""
    loaded: dict[str, Any] = json.loads(json.dumps(view, allow_nan=False))
    return loaded


def pixels_of(url: str) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))))


def test_the_tree_lists_every_module_with_its_cost_and_marks_what_can_be_inspected(model: LoadedModel) -> None:
    layers = [layer for layer in list_layers(model) if layer.worth_explaining]
    view = strict(tree_of(measure_costs(model), layers, "Small", "0.1@0", "token"))
    rows = {row["name"]: row for row in view["rows"]}
    assert list(rows) == ["0", "0.0", "0.1", "1", "2", "3", "4"]
    assert (rows["0"]["depth"], rows["0"]["parts"], rows["0.1"]["depth"]) == (1, 2, 2)
    assert (rows["0.0"]["shape"], rows["0.0"]["parameters"]) == ("6 × 16 × 16", "168")
    first, second, last = 9 * 3 * 6 * 256, 9 * 6 * 4 * 64, 8
    assert rows["0.0"]["share"] == pytest.approx(first / (first + second + last))
    assert rows["0.0"]["compute"] == f"{first / (first + second + last):.1%}"
    assert [name for name, row in rows.items() if row["map"]] == ["0", "0.0", "0.1", "1"]
    assert view["chosen"] == "0.1"
    assert "398 parameters, 55.3 thousand multiply-accumulates for a picture of 16 × 16" in view["summary"]


def test_tiles_hold_each_channels_own_range_and_say_it_in_words(maps: ChannelMaps) -> None:
    view = strict(channels_of(maps, 3, "channel", "token"))
    assert [tile["channel"] for tile in view["tiles"]] == list(maps.top(3))
    assert view["tile"] == [8, 8]
    levels = pixels_of(view["levels"])
    assert levels.shape == (24, 8, 3)
    for number, tile in enumerate(view["tiles"]):
        values = maps.values[tile["channel"]]
        own = levels[number * 8 : number * 8 + 8, :, 0]
        assert (own.min(), own.max()) == (0, 255)
        np.testing.assert_allclose(
            own / 255 * (tile["high"] - tile["low"]) + tile["low"], values, atol=0.003 * np.ptp(values)
        )
        assert tile["words"].startswith("Strongest at ")
    assert view["common"] == [maps.ranges[list(maps.top(3)), 0].min(), maps.ranges[list(maps.top(3)), 1].max()]


def test_where_the_map_lies_in_the_picture_is_told_exactly(maps: ChannelMaps) -> None:
    view = channels_of(maps, 1, "channel", "token")
    assert view["size"] == (24, 16)
    assert (view["seen"], view["sees_all"]) == ([4, 0, 20, 16], False)
    assert (view["origin"], view["extent"]) == ([4.0, 0.0], [16.0, 16.0])


def test_broken_dead_and_flat_channels_are_marked_and_counted(maps: ChannelMaps) -> None:
    values = np.zeros((4, 2, 2), np.float32)
    values[0], values[1, 0, 0], values[3] = 5, NAN, np.arange(4).reshape(2, 2)
    broken = replace(maps, values=values, scores=np.array([5, NAN, 0, 1.5]))
    view = strict(channels_of(broken, 4, "channel", "token"))
    assert [(tile["channel"], tile["badge"], tile["score"]) for tile in view["tiles"]] == [
        (1, "NaN/Inf", "NaN"),
        (0, "flat", "5.00"),
        (3, "", "1.50"),
        (2, "dead", "0"),
    ]
    assert view["tiles"][0]["words"].endswith("1 value is NaN or infinite.")
    assert view["tiles"][3]["words"].endswith("Dead: 0 everywhere.")
    assert pixels_of(view["levels"])[0, 0].tolist() == [0, 255, 0]
    assert view["warnings"] == ["1 value is NaN or infinite: channels that hold such values come first."]
    facts = dict(view["facts"])
    assert facts["Dead channels"] == "1 of 4 (25.0%)"
    assert facts["NaN or infinite"] == "1 of 16"
    assert sum(view["histogram"]["counts"]) == 15


def test_a_channel_that_differs_by_rounding_alone_is_flat_everywhere(maps: ChannelMaps) -> None:
    values = np.full((2, 2, 2), 0.7, np.float32)
    values[0, 0, 0], values[1, 1, 1] = np.nextafter(values[0, 0, 0], np.float32(1)), 0.8
    rounded = replace(maps, values=values, scores=values.mean((1, 2)))
    tiles = {tile["channel"]: tile for tile in strict(channels_of(rounded, 2, "channel", "token"))["tiles"]}
    assert (tiles[0]["badge"], tiles[0]["flat"]) == ("flat", True)
    assert (tiles[1]["badge"], tiles[1]["flat"]) == ("", False)
    assert pixels_of(channels_of(rounded, 2, "channel", "token")["levels"])[2:, :, 0].max() == 0
    assert rounded.peak(0) is None
    assert not rounded.heatmap(0).any()
    inside = slice(1, -1), slice(5, 19)  # without the frame around what was seen
    np.testing.assert_array_equal(np.asarray(rounded.overlay(0))[inside], rounded.picture.rgb[inside])
    assert rounded.grid(2).constant == (0,)


def test_a_layer_of_nothing_but_nan_or_zeros_is_told_too(maps: ChannelMaps) -> None:
    nothing = replace(maps, values=np.full((2, 2, 2), NAN, np.float32), scores=np.array([NAN, NAN]))
    view = strict(channels_of(nothing, 2, "common", "token"))
    assert (view["common"], view["histogram"]["words"]) == ([0, 0], "None of the values is finite.")
    dead = replace(maps, values=np.zeros((2, 2, 2), np.float32), scores=np.zeros(2))
    view = strict(channels_of(dead, 2, "common", "token"))
    assert view["warnings"] == ["All channels are dead: the layer is 0 everywhere in this picture."]


def test_large_maps_are_sent_coarser_and_small_ones_as_they_are(maps: ChannelMaps) -> None:
    values = np.random.default_rng(0).random((8, 800, 800)).astype(np.float32)
    view = channels_of(replace(maps, values=values, scores=values.mean((1, 2))), 8, "channel", "token")
    assert view["tile"] == [266, 266]
    assert pixels_of(view["levels"]).shape == (8 * 266, 266, 3)


def test_depth_has_the_norms_of_the_snapshot_and_none_where_they_are_not_finite(
    model: LoadedModel, picture: Picture
) -> None:
    inspection = inspect_picture(model, picture)
    view = strict(depth_of(inspection, ["0.0", "1"], "token"))
    assert [layer["name"] for layer in view["layers"]] == ["0.0", "0.1", "1", "2", "3", "4"]
    assert [layer["map"] for layer in view["layers"]] == [True, False, True, False, False, False]
    gradients, activations = view["panels"]
    assert gradients["values"] == [one.norm for one in inspection.snapshot.of("gradient")]
    assert activations["values"] == [one.norm for one in inspection.snapshot.of("activation")]
    assert view["stages"] == [[0, "0.0"], [1, "0.1"], [2, "1"], [3, "2"], [4, "3"], [5, "4"]]
    assert "norms from" in view["words"]


def test_verdicts_are_marks_and_sentences(model: LoadedModel, picture: Picture) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.Flatten(), nn.Linear(576, 2))
    with torch.no_grad():
        network[0].weight.zero_()
        network[0].bias.fill_(-1.0)  # a dead ReLU: nothing behind it depends on the picture
    sick = camapp.wrap_model(network, size=16, labels=["a", "b"])
    view = strict(depth_of(inspect_picture(sick, picture), [], "token"))
    said = {(one["what"], one["subject"]) for one in view["verdicts"]}
    assert ("dead", "1 (activation)") in said
    assert [1, "dead"] in view["panels"][1]["marks"]
    assert view["layers"][1]["what"] == ["dead"]
    assert view["layers"][0]["what"] == ["vanishing"]  # of its weights, which no gradient reaches through the ReLU
    assert [0, "vanishing"] in view["panels"][0]["marks"]
    assert view["panels"][1]["values"][1] == 0.0


def test_a_network_of_nan_gives_gaps_and_lists_only_the_first_verdicts(picture: Picture) -> None:
    layers = [nn.Conv2d(3, 3, 1) for _ in range(20)]
    with torch.no_grad():
        layers[0].weight.fill_(NAN)
    sick = camapp.wrap_model(nn.Sequential(*layers, nn.Flatten(), nn.Linear(768, 2)), size=16, labels=["a", "b"])
    view = strict(depth_of(inspect_picture(sick, picture), [], "token"))
    assert view["panels"][1]["values"][:20] == [None] * 20
    assert view["panels"][1]["broken"][:20] == list(range(20))
    assert [one["what"] for one in view["verdicts"]] == ["non-finite"] * 4
    assert view["more"] > 20


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.0, "0"),
        (5.4478, "5.45"),
        (0.04461, "0.0446"),
        (10700.4, "10,700"),
        (999.96, "1,000"),
        (-17.06, "-17.1"),
        (3.2e-9, "3.20e-09"),
        (1.5e7, "1.50e+07"),
        (NAN, "NaN"),
        (INF, "infinite"),
        (-INF, "-infinite"),
    ],
)
def test_numbers_have_three_digits(value: float, words: str) -> None:
    assert figure(value) == words


def test_amounts_are_told_in_words() -> None:
    assert [amount(count) for count in (999, 55_300, 385_187_552, 16_900_000_000)] == [
        "999",
        "55.3 thousand",
        "385 million",
        "16.9 billion",
    ]


def test_styles_and_scripts_are_there_and_write_no_data_as_html() -> None:
    folder = Path(camapp.__file__).parent / "ui" / "inspect"
    for view in ("tree", "channels", "depth"):
        script = (folder / f"{view}.js").read_text()
        assert script.count("innerHTML") == (1 if view == "tree" else 0)  # an arrow, a constant
        assert (folder / f"{view}.css").stat().st_size
        assert (folder / f"{view}.html").stat().st_size
