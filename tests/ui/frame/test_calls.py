"""What is copied from the page works away from it: odd file names, random weights, classifiers trained on it."""

from __future__ import annotations

import io
import json
import shlex
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from camapp.cli import app
from camapp.features import FeatureExtractor
from camapp.features.probe import fit_probe
from camapp.features.saved import ProbeSettings, headed_model, save_probe
from camapp.ui.compare.choices import CompareChoices, Compared, compare_choices, compare_patches
from camapp.ui.compare.downloads import json_of
from camapp.ui.compare.recipes import copies_of, patches_python
from camapp.ui.frame.models import ModelPool
from camapp.ui.frame.scheduler import Task
from camapp.ui.inspect.choices import Choices, Looks
from camapp.ui.inspect.downloads import _inspection
from camapp.ui.inspect.recipes import copies_of_channels, copies_of_inspection

MODEL = "efficientnet_lite0"
TRAINED = "hats.camapp"
FINER = "blocks.4.2.conv_pwl"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a picture whose name begins with a dash."""
    folder = tmp_path_factory.mktemp("pictures")
    pixels = np.random.default_rng(0).integers(0, 256, (64, 80, 3), np.uint8)
    Image.fromarray(pixels).save(folder / "-v.png")
    return folder


@pytest.fixture(scope="module")
def pool() -> ModelPool:
    return ModelPool(device="cpu", random_weights=True)


@pytest.fixture(scope="module")
def secret(pool: ModelPool, folder: Path) -> str:
    """The pool's name of a classifier that was trained on the page; its file lies in the folder."""
    backbone = pool.load(MODEL)
    inputs = torch.randn(4, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    features = FeatureExtractor(backbone)(inputs)["penultimate"].numpy()
    probe = fit_probe(features, ["hat", "shoe"] * 2, C=1.0)
    save_probe(folder / TRAINED, probe, backbone, ProbeSettings(), {})
    return pool.add(headed_model(backbone, probe, ProbeSettings(), "hats classifier"), TRAINED)


def copied(pool: ModelPool, model: str, picture: str) -> dict[str, str]:
    """All that may be copied or downloaded as text of a comparison and an inspection, by what it is."""
    task: Task[Any] = Task(lambda _: None, "somebody")
    compared: Compared = compare_choices(pool, CompareChoices(picture, model, [], ["gradcam", "layercam"]), task)
    looks, choices = Looks(pool), Choices(picture, model)
    maps, inspection = looks.channels(choices), looks.inspection(choices, task)
    (_, channels_python), (_, channels_command) = copies_of_channels(maps, choices, None)
    (_, inspection_python), (_, inspection_command) = copies_of_inspection(inspection, None)
    comparison = copies_of(compared)
    alike = compare_patches(pool, picture, None, model, "")
    return {
        "compare python": comparison["python"],
        "compare command": comparison["command"],
        "patches python": patches_python(alike, random=pool.random_weights),
        "channels python": channels_python,
        "channels command": channels_command,
        "inspect python": inspection_python,
        "inspect command": inspection_command,
        "compare json": json_of(compared.comparison).decode(),
        "patches json": json.dumps(alike.to_dict()),
        "channels json": json.dumps(maps.to_dict(1)),
        "inspect json": json.dumps(inspection.to_dict()),
        "inspect download": snapshot_in(_inspection(inspection, {})),
    }


def snapshot_in(packed: bytes) -> str:
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        return archive.read("snapshot.json").decode()


@pytest.fixture(scope="module")
def of_random(pool: ModelPool, folder: Path) -> dict[str, str]:
    return copied(pool, MODEL, str(folder / "-v.png"))


@pytest.fixture(scope="module")
def of_trained(pool: ModelPool, secret: str, folder: Path) -> dict[str, str]:
    return copied(pool, secret, str(folder / "-v.png"))


def test_the_secret_name_of_a_trained_classifier_is_in_nothing_that_leaves_the_page(
    of_trained: dict[str, str], secret: str
) -> None:
    for what, text in of_trained.items():
        assert secret not in text, what
        assert TRAINED in text, what
        assert ("download it from the Features tab" in text) == what.endswith("python"), what


@pytest.mark.parametrize("what", ["compare", "channels", "inspect"])
@pytest.mark.parametrize("made_of", ["of_random", "of_trained"])
def test_copied_commands_run_where_the_picture_is(
    what: str, made_of: str, folder: Path, tmp_path: Path, monkeypatch: Any, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(folder)
    words = shlex.split(request.getfixturevalue(made_of)[f"{what} command"])
    out = ["--out", str(tmp_path / "out")]  # of the two the last one holds
    ran = CliRunner().invoke(app, [*words[1:], *out])
    assert ran.exit_code == 0, ran.output
    assert "RANDOM WEIGHTS" in ran.output


@pytest.mark.parametrize("what", ["compare", "patches", "channels", "inspect"])
def test_copied_programs_run_with_random_weights(
    of_random: dict[str, str], what: str, folder: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    (tmp_path / "-v.png").write_bytes((folder / "-v.png").read_bytes())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Image.Image, "show", lambda *_: None)
    program = of_random[f"{what} python"]
    assert f"camapp.load_model('{MODEL}', random_weights=True)" in program
    exec(program, {})


def test_a_classifier_that_the_page_was_started_with_is_called_by_its_file(
    secret: str, folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "hats.camapp"
    path.write_bytes((folder / TRAINED).read_bytes())
    pool = ModelPool(default=str(path), device="cpu", random_weights=True)
    task: Task[Any] = Task(lambda _: None, "somebody")
    choices = CompareChoices(str(folder / "-v.png"), "hats", [], ["gradcam", "layercam"])
    assert compare_choices(pool, choices, task).comparison.model == "hats.camapp"
