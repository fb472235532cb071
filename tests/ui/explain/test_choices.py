"""From choices that nobody vouches for to an explanation, without a browser."""

from __future__ import annotations

import ast
import shlex
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from camapp.contrast import Contrast
from camapp.errors import CamappError
from camapp.explainer import explain
from camapp.ui.explain.choices import Choices, Explained, explain_choices
from camapp.ui.explain.recipes import address_of, command_of, python_of
from camapp.ui.explain.summary import summary_of
from camapp.ui.explain.viewer import view_of
from camapp.ui.frame.models import ModelPool
from camapp.ui.frame.samples import sample_path
from camapp.ui.frame.scheduler import Task
from tests.ui.served import ASSETS

CAT = str(ASSETS / "chelsea.jpg")


def explained(pool: ModelPool, **options: Any) -> Explained:
    given = {"picture": CAT, "model": "efficientnet_lite0", **options}
    return explain_choices(pool, Choices(**given), Task(lambda task: None, "test"))


def labels(found: Explained) -> list[str]:
    return [one.label for one in found.explanation.classes]


def test_a_class_is_set_against_another_or_against_the_next_likeliest(pool: ModelPool) -> None:
    assert labels(explained(pool, rival=-1)) == ["tiger cat", "Egyptian cat"]
    assert labels(explained(pool, rival="tabby")) == ["tiger cat", "tabby"]
    assert labels(explained(pool, target="tabby", rival=-1)) == ["tabby", "tiger cat"]
    assert labels(explained(pool, target="espresso", rival="lynx")) == ["espresso", "lynx"]
    with pytest.raises(CamappError, match="tiger cat is compared with itself"):
        explained(pool, rival="tiger cat")


def test_several_layers_are_joined_and_too_many_are_refused(pool: ModelPool) -> None:
    two = explained(pool, layers=["bn2", "blocks.4.2.conv_pwl"])
    expected = explain(pool.load("efficientnet_lite0"), CAT, layer=["bn2", "blocks.4.2.conv_pwl"])
    np.testing.assert_array_equal(two.explanation.model_maps, expected.model_maps)
    with pytest.raises(CamappError, match="4 layers are too many: choose up to 3"):
        explained(pool, layers=["bn2", "a", "b", "c"])


def test_a_layer_that_a_program_names_is_that_layer_also_where_it_is_the_recommended_one(pool: ModelPool) -> None:
    assert explained(pool, method="fused", layers=["bn2"]).explanation.layer.startswith("bn2 + ")
    assert explained(pool, method="fused", layers=["bn2"], exact=True).explanation.layer == "bn2"


def test_the_next_likeliest_class_is_that_of_the_picture_as_it_is_fitted(pool: ModelPool) -> None:
    rocket = str(ASSETS / "rocket.jpg")
    for fit in ("crop", "letterbox"):
        likeliest = explain(pool.load("efficientnet_lite0"), rocket, fit=fit, top_k=2).classes  # type: ignore[arg-type]
        found = explained(pool, picture=rocket, fit=fit, target=likeliest[0].index, rival=-1)
        assert [one.index for one in found.explanation.classes] == [one.index for one in likeliest]


def test_fit_and_sign_are_handed_on(pool: ModelPool) -> None:
    assert explained(pool, fit="letterbox").explanation.geometry.fit == "letterbox"
    against = explained(pool, sign="negative").explanation
    expected = explain(pool.load("efficientnet_lite0"), CAT, sign="negative")
    np.testing.assert_array_equal(against.model_maps, expected.model_maps)
    assert against.to_dict()["sign"] == "negative"


@pytest.mark.parametrize(
    "wrong",
    [
        {"picture": None},
        {"model": "resnet5000"},
        {"layers": ["nothing"]},
        {"method": "magic"},
        {"method": ""},
        {"target": 10**9},
        {"target": -7},
        {"rival": 10**9},
        {"fit": "squash"},
        {"sign": "both"},
    ],
)
def test_what_is_not_there_is_refused_in_words(pool: ModelPool, wrong: dict[str, Any]) -> None:
    with pytest.raises(CamappError):
        explained(pool, **wrong)


OPTIONS: list[dict[str, Any]] = [
    {},
    {"rival": -1},
    {"method": "layercam", "layers": ["blocks.4.2.conv_pwl"], "target": "tabby"},
    {"layers": ["bn2", "blocks.5.0.bn1"], "fit": "letterbox", "sign": "negative"},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_the_copied_program_makes_the_same_maps(
    pool: ModelPool, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = explained(pool, **options)
    program = ast.parse(python_of(found))
    call = program.body[1].value  # type: ignore[attr-defined]
    given = [ast.literal_eval(argument) for argument in call.args]
    named = {one.arg: ast.literal_eval(one.value) for one in call.keywords}
    assert given == ["efficientnet_lite0", "chelsea.jpg"]
    again = explain(pool.load("efficientnet_lite0"), CAT, **named)
    np.testing.assert_array_equal(again.model_maps, found.explanation.model_maps)


@pytest.mark.parametrize("options", OPTIONS)
def test_the_copied_command_makes_the_same_maps(pool: ModelPool, options: dict[str, Any], tmp_path: Any) -> None:
    from typer.testing import CliRunner

    from camapp.cli import app

    found = explained(pool, **options)
    words = shlex.split(command_of(found))
    assert words[:3] == ["camapp", "explain", "chelsea.jpg"]
    done = CliRunner().invoke(app, ["explain", CAT, *words[3:], "--out", str(tmp_path), "--device", "cpu"])
    assert done.exit_code == 0, done.output
    difference = tmp_path / "chelsea-difference.npy"
    assert difference.exists() == (len(found.explanation) == 2)
    if difference.exists():
        np.testing.assert_array_equal(np.load(difference), Contrast(found.explanation).heatmap())
    stored = sorted({*tmp_path.glob("*.npy")} - {difference})
    assert len(stored) == len(found.explanation)
    for k, path in enumerate(stored):
        np.testing.assert_array_equal(np.load(path), found.explanation.heatmap(k))


def test_a_hostile_file_name_stays_one_word_of_the_command_and_one_text_of_the_program(
    pool: ModelPool, tmp_path: Any
) -> None:
    evil = tmp_path / 'a\'; rm -rf $(pwd) """ .jpg'
    evil.write_bytes((ASSETS / "chelsea.jpg").read_bytes())
    found = explained(pool, picture=str(evil))
    assert shlex.split(command_of(found))[2] == evil.name
    call = ast.parse(python_of(found)).body[1].value  # type: ignore[attr-defined]
    assert ast.literal_eval(call.args[1]) == evil.name


def test_a_name_that_begins_with_a_dash_is_no_option_of_the_command(pool: ModelPool, tmp_path: Any) -> None:
    dashed = tmp_path / "-v.jpg"
    dashed.write_bytes((ASSETS / "chelsea.jpg").read_bytes())
    assert shlex.split(command_of(explained(pool, picture=str(dashed))))[2] == "./-v.jpg"


def test_copies_of_random_weights_say_so(pool: ModelPool) -> None:
    found = explained(pool)
    random = replace(found.explanation, weights={**found.explanation.weights, "random": True})
    copied = replace(found, explanation=random)
    assert "camapp.load_model('efficientnet_lite0', random_weights=True)" in python_of(copied)
    assert "--random-weights" in shlex.split(command_of(copied))


def test_a_class_of_several_lines_adds_none_to_the_program(pool: ModelPool) -> None:
    found = explained(pool)
    evil = replace(found.explanation.classes[0], label="cat\nimport os  # ")
    program = python_of(replace(found, explanation=replace(found.explanation, classes=(evil,))))
    imported = [one for one in ast.walk(ast.parse(program)) if isinstance(one, ast.Import)]
    assert [name.name for one in imported for name in one.names] == ["camapp"]


def test_the_secret_name_of_a_classifier_is_not_copied(pool: ModelPool) -> None:
    name = pool.add(pool.load("efficientnet_lite0"), "my.camapp")
    found = explained(pool, model=name)
    assert "'my.camapp'" in python_of(found)
    assert "--model my.camapp " in command_of(found)
    assert name not in python_of(found) + command_of(found)


def test_the_address_says_everything_but_an_upload(pool: ModelPool) -> None:
    usual = address_of(explained(pool))
    assert {name: value for name, value in usual.items() if value} == {"model": "efficientnet_lite0"}
    sample = sample_path("chelsea.jpg")
    told = address_of(explained(pool, picture=sample, target=281, rival=-1, method="layercam", layers=["blocks.5"]))
    assert told | {"model": ""} == {
        **dict.fromkeys(usual, ""),
        "class": "281",
        "vs": "-1",
        "method": "layercam",
        "layer": "blocks.5",
        "sample": "chelsea.jpg",
    }


def test_the_view_of_two_classes_has_their_difference(pool: ModelPool) -> None:
    found = explained(pool, rival=-1)
    view = view_of(found.explanation, "token")
    first, second, difference = view["maps"]
    assert first["label"] == "tiger cat"
    assert second["label"] == "Egyptian cat"
    assert difference["signed"]
    y, x = np.unravel_index(np.abs(Contrast(found.explanation).heatmap()).argmax(), found.explanation.maps.shape[1:])
    assert difference["peak"] == [x, y]
    assert difference["alternative"].startswith("Orange speaks for tiger cat, strongest at ")
    facts = dict(summary_of(found, "token")["facts"])
    assert facts["Against"].startswith("Egyptian cat (285), ")
