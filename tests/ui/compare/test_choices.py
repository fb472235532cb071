"""What visitors send to the Compare tab is checked before a model runs, and copied texts say what was done."""

from __future__ import annotations

import ast
import io
import json
import shlex
import zipfile
from typing import Any

import pytest

from camapp.errors import CamappError, LayerError, TargetError, UsageError
from camapp.resources import resource_folder
from camapp.ui.compare.choices import CompareChoices, Compared, compare_choices, compare_patches
from camapp.ui.compare.downloads import keep_comparison
from camapp.ui.compare.recipes import command_of, patches_python, python_of
from camapp.ui.frame.models import ModelPool
from camapp.ui.frame.results import Results
from camapp.ui.frame.scheduler import Task

CHELSEA = str(resource_folder("assets") / "chelsea.jpg")
MODEL = "efficientnet_lite0"
FINER = "blocks.4.2.conv_pwl"


@pytest.fixture(scope="module")
def compared(pool: ModelPool) -> Compared:
    choices = CompareChoices(CHELSEA, MODEL, ["bn2", FINER], ["gradcam", "fused", "cam"])
    return compare_choices(pool, choices, task())


def task() -> Task[Any]:
    return Task(lambda _: None, "somebody")


def test_the_recommended_layer_means_each_methods_own_choice_as_in_explain(compared: Compared) -> None:
    assert compared.comparison.layers == (None, FINER)
    fused = compared.comparison.cell("fused")
    assert fused is not None
    assert fused.explanation is not None
    assert fused.explanation.layer.startswith("bn2 + ")
    assert compared.columns == [("bn2", "1280 × 7 × 7 · recommended"), (FINER, "112 × 14 × 14")]


def test_to_a_program_the_recommended_layer_means_itself(pool: ModelPool) -> None:
    choices = CompareChoices(CHELSEA, MODEL, ["bn2"], ["gradcam", "fused"], exact=True)
    fused = compare_choices(pool, choices, task()).comparison.cell("fused", "bn2")
    assert fused is not None
    assert fused.explanation is not None
    assert fused.explanation.layer == "bn2"


def test_downloads_leave_no_map_of_the_pictures_own_size_behind(compared: Compared) -> None:
    comparison, results = compared.comparison, Results()
    token = keep_comparison(results, comparison, "somebody")
    files = results._kept.find(token).files
    archive = zipfile.ZipFile(io.BytesIO(files["comparison.zip"]({})))  # type: ignore[operator]
    assert {"comparison.json", "correlation.csv"} <= set(archive.namelist())
    assert json.loads(files["comparison.json"]({}))["input"] == "chelsea.jpg"  # type: ignore[operator]
    kept = [cell.explanation._last_heatmap for cell in comparison.cells if cell.explanation]
    assert kept == [{}] * len(kept)


@pytest.mark.parametrize(
    ("choices", "error", "words"),
    [
        ((None, MODEL, ["bn2"], ["gradcam", "cam"]), UsageError, "There is no picture yet"),
        ((CHELSEA, MODEL, ["bn2"], []), UsageError, "methods is empty"),
        ((CHELSEA, MODEL, ["bn2"], ["gradcam"]), UsageError, "nothing to compare it with"),
        ((CHELSEA, MODEL, ["bn2"], ["gradcam"] * 7), UsageError, "7 methods are too many"),
        ((CHELSEA, MODEL, ["bn2"], ["<b>"]), UsageError, 'No method "<b>"'),
        ((CHELSEA, MODEL, ["a"] * 30, ["gradcam", "cam"]), UsageError, "30 layers are too many"),
        ((CHELSEA, MODEL, ["__class__"], ["gradcam", "cam"]), LayerError, 'has no layer "__class__" with a map'),
        ((CHELSEA, "../secret", ["bn2"], ["gradcam", "cam"]), CamappError, "is not available on this page"),
        ((CHELSEA, MODEL, ["bn2"], ["gradcam", "cam"], 99_999), TargetError, "99999"),
        ((CHELSEA, MODEL, ["bn2"], ["gradcam", "cam"], "unicorn<script>"), TargetError, "unicorn"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_words(
    pool: ModelPool, choices: tuple, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        compare_choices(pool, CompareChoices(*choices), task())


def test_layers_and_class_of_another_model_are_not_settled_yet(pool: ModelPool) -> None:
    def settled(layers: list[str], target: int) -> bool:
        return CompareChoices(CHELSEA, MODEL, layers, ["gradcam", "cam"], target).settled(pool)

    assert settled(["bn2"], -1)
    assert settled(["bn2"], 281)
    assert not settled(["encoder.layer.11"], -1)
    assert not settled(["bn2"], 21_000)


def test_methods_that_take_long_go_the_slow_way() -> None:
    assert CompareChoices(CHELSEA, MODEL, [], ["gradcam", "scorecam"]).slow
    assert not CompareChoices(CHELSEA, MODEL, [], ["gradcam", "layercam"]).slow


def test_the_copied_program_is_python_that_names_what_was_compared(compared: Compared) -> None:
    program = ast.parse(python_of(compared))
    call = next(node for node in ast.walk(program) if isinstance(node, ast.Call) and len(node.args) == 2)
    assert [ast.literal_eval(one) for one in call.args] == [MODEL, "chelsea.jpg"]
    named = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
    assert named == {
        "methods": ["gradcam", "fused", "cam"],
        "layers": [None, FINER],
        "targets": compared.comparison.target.index,
    }


def test_the_copied_command_names_what_was_compared(compared: Compared) -> None:
    words = shlex.split(command_of(compared))
    assert words[:3] == ["camapp", "compare", "chelsea.jpg"]
    assert [words[at + 1] for at, word in enumerate(words) if word == "--method"] == ["gradcam", "fused", "cam"]
    assert [words[at + 1] for at, word in enumerate(words) if word == "--layer"] == ["own", FINER]


def test_patches_are_of_the_layer_chosen_or_of_a_finer_one(pool: ModelPool) -> None:
    assert compare_patches(pool, CHELSEA, None, MODEL, "").layer == "blocks.5.0.bn1"
    two = compare_patches(pool, CHELSEA, CHELSEA, MODEL, "bn2")
    assert (two.layer, len(two.pictures)) == ("bn2", 2)
    ast.parse(patches_python(two))
    with pytest.raises(LayerError, match="has no layer"):
        compare_patches(pool, CHELSEA, None, MODEL, "classifier")
    with pytest.raises(UsageError, match="no picture yet"):
        compare_patches(pool, None, None, MODEL, "")
