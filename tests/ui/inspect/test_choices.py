"""Choices of the Inspect tab: whatever anybody sends is refused in words; what was made is remembered."""

from __future__ import annotations

import io
import zipfile
from typing import Any

import numpy as np
import pytest
from PIL import Image

from camapp.channels import channel_maps
from camapp.errors import CamappError, LayerError, ModelError, StoppedError, TargetError, UsageError
from camapp.resources import resource_folder
from camapp.ui.frame.models import ModelPool
from camapp.ui.frame.scheduler import Task
from camapp.ui.inspect.choices import Choices, Looks
from camapp.ui.inspect.downloads import _channels, _inspection, _overlay
from camapp.ui.inspect.recipes import copies_of_channels, copies_of_inspection

CAT = str(resource_folder("assets") / "chelsea.jpg")
MODEL = "efficientnet_lite0"


@pytest.fixture(scope="module")
def looks(pool: ModelPool) -> Looks:
    return Looks(pool)


def task() -> Task[Any]:
    return Task(lambda _: None, "somebody")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"ranking": "<b>best</b>"}, "use one of mean, max, gradient"),
        ({"scale": "<script>"}, "Scales: channel, common"),
        ({"most": 0}, "choose from 1 to 256"),
        ({"most": 10**9}, "choose from 1 to 256"),
        ({"most": "36"}, "choose from 1 to 256"),
        ({"most": True}, "choose from 1 to 256"),
        ({"most": 2.5}, "choose from 1 to 256"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_a_model_runs(given: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Choices(**{"picture": CAT, "model": MODEL, **given}).check()


def test_a_program_without_a_picture_is_told_so() -> None:
    for picture in (None, ""):
        with pytest.raises(UsageError, match="There is no picture yet"):
            Choices(picture, MODEL).check_with_picture()


@pytest.mark.parametrize("layer", ["bn22", "", "__class__", "classifier", "bn2@99", "<img src=x>", "a" * 300])
def test_only_layers_with_a_map_are_inspected(looks: Looks, layer: str) -> None:
    choices = Choices(CAT, MODEL, (layer,))
    if not layer:
        assert looks.layer(choices) == "bn2"
        return
    with pytest.raises(LayerError):
        looks.channels(choices)


def test_models_and_classes_that_are_not_there_are_refused(looks: Looks) -> None:
    with pytest.raises(ModelError, match="not available on this page"):
        looks.costs("../../etc/passwd")
    with pytest.raises(TargetError):
        looks.channels(Choices(CAT, MODEL, ranking="gradient", target=1000))
    with pytest.raises(TargetError):
        looks.inspection(Choices(CAT, MODEL, target="no such class"), task())
    with pytest.raises(CamappError):
        looks.inspection(Choices(__file__, MODEL), task())


def test_channels_are_those_of_the_library(looks: Looks) -> None:
    maps = looks.channels(Choices(CAT, MODEL, ("conv_head",), "tabby", "gradient"))
    same = channel_maps(looks.pool.load(MODEL), CAT, "conv_head", ranking="gradient", target="tabby")
    np.testing.assert_array_equal(maps.values, same.values)
    assert maps.target == "tabby"
    assert looks.channels(Choices(CAT, MODEL, ("conv_head", "bn2"), "tabby")).target is None


def test_another_layer_of_the_same_picture_needs_no_new_inspection(looks: Looks) -> None:
    first = looks.inspection(Choices(CAT, MODEL, ("bn2",), target=281), task())
    assert looks.knows_inspection(Choices(CAT, MODEL, ("conv_head",), target="tabby"))
    assert looks.inspection(Choices(CAT, MODEL, ("conv_head",), target="tabby"), task()) is first
    assert not looks.knows_inspection(Choices(CAT, MODEL, ("bn2",), target=282))
    assert looks.costs(MODEL) is looks.costs(MODEL)


def test_an_inspection_that_nobody_waits_for_ends_and_is_not_remembered(looks: Looks) -> None:
    choices, stopped = Choices(CAT, MODEL, ("bn2",), target=7), task()
    stopped.cancel()
    with pytest.raises(StoppedError):
        looks.inspection(choices, stopped)
    assert not looks.knows_inspection(choices)


def test_downloads_are_what_the_library_saves_and_refuse_wrong_queries(looks: Looks) -> None:
    choices = Choices(CAT, MODEL, ("bn2",), most=16, scale="common")
    maps = looks.channels(choices)
    with zipfile.ZipFile(io.BytesIO(_channels(maps, choices, {}))) as archive:
        names = archive.namelist()
        contents = {name: archive.read(name) for name in names}
    assert names == ["channels.npy", "channels.png", "channels.csv", "channels.json"]
    np.testing.assert_array_equal(np.load(io.BytesIO(contents["channels.npy"])), maps.values)
    grid = np.asarray(Image.open(io.BytesIO(contents["channels.png"])))
    np.testing.assert_array_equal(grid, maps.grid(16, scale="common").pixels)
    overlay = np.asarray(Image.open(io.BytesIO(_overlay(maps, {"channel": "112", "opacity": "0.5"}))))
    np.testing.assert_array_equal(overlay, np.asarray(maps.overlay(112, alpha=0.5)))
    for query in ({"channel": "-1"}, {"channel": "9999"}, {"channel": "²"}, {"channel": "1", "opacity": "7"}):
        with pytest.raises(UsageError):
            _overlay(maps, query)
    with pytest.raises(ValueError, match="could not convert"):
        _overlay(maps, {"opacity": "x"})
    with zipfile.ZipFile(io.BytesIO(_inspection(looks.inspection(choices, task()), {}))) as archive:
        assert archive.namelist() == ["snapshot.json", "table.txt", "depth.png"]


def test_what_is_copied_makes_the_same_thing(looks: Looks, monkeypatch: Any, tmp_path: Any) -> None:
    choices = Choices(CAT, MODEL, ("conv_head",), 281, "gradient", 9, "common")
    maps, inspection = looks.channels(choices), looks.inspection(choices, task())
    monkeypatch.chdir(tmp_path)
    (tmp_path / "chelsea.jpg").write_bytes((resource_folder("assets") / "chelsea.jpg").read_bytes())
    (_, program), (_, command) = copies_of_channels(maps, choices, 281)
    assert command == (
        "camapp channels chelsea.jpg conv_head --model efficientnet_lite0 --ranking gradient --target 281 "
        "--most 9 --scale common --out channels"
    )
    exec(program, {})
    assert (tmp_path / "channels" / "channels.csv").read_bytes() == maps.files(9)["channels.csv"]
    (_, program), (_, command) = copies_of_inspection(inspection, 281)
    assert "camapp.inspect_pictures('efficientnet_lite0', 'chelsea.jpg', target=281)" in program
    assert command == "camapp inspect chelsea.jpg --model efficientnet_lite0 --out inspection --target 281"
