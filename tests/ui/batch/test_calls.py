"""The calls that the copy buttons give do what they say, whatever files are called."""

from __future__ import annotations

import shlex
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from camapp.cli import app
from camapp.ui.batch.calls import python_call, shell_call
from camapp.ui.frame.calls import CalledModel

MODEL = CalledModel("efficientnet_lite0")
NAMES = ["it's; $(touch gone).png", "-v.png", 'two "words".png']


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, name in enumerate(NAMES):
        noise = np.random.default_rng(number).integers(0, 255, (40, 50, 3), np.uint8)
        Image.fromarray(noise).save(tmp_path / name)
    return tmp_path


def test_the_python_runs_and_makes_the_archive(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    exec(python_call(NAMES, MODEL, "gradcam", [], {NAMES[0]: "281", NAMES[1]: 3}, ["raw"]), {})
    with zipfile.ZipFile("heatmaps.zip") as archive:
        maps = [name for name in archive.namelist() if name.startswith("raw/")]
        table = archive.read("results.csv").decode()
    assert len(maps) == 2
    assert "'-v.png,done" in table
    assert "No class is named for it." in table


def test_the_command_is_one_of_the_shell_and_makes_the_same_files(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    words = shlex.split(shell_call(NAMES, MODEL, "gradcam", ["bn2"], 281, ["overlay", "raw"]))
    assert words[:6] == ["camapp", "heatmaps", NAMES[0], "./-v.png", NAMES[2], "heatmaps"]
    app([*words[1:], "--device", "cpu"], standalone_mode=False)
    assert len(list(Path("heatmaps/raw").iterdir())) == 3
    assert not Path("heatmaps/heatmaps").exists()
    assert not Path("gone").exists()


def test_with_a_table_the_command_reads_its_columns(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    Path("my classes.csv").write_text(f'Picture,kind\n"{NAMES[1]}",tabby\n')
    table = ("my classes.csv", "Picture", "kind")
    words = shlex.split(shell_call([NAMES[1]], MODEL, "gradcam", [], None, ["raw"], table))
    app([*words[1:], "--device", "cpu"], standalone_mode=False)
    assert [path.name for path in Path("heatmaps/raw").iterdir()] == ["-v.npy"]


def test_random_weights_and_classifiers_are_named_so_that_the_calls_run() -> None:
    untrained = CalledModel("efficientnet_lite0", random_weights=True)
    python = python_call(["a.png"], untrained, "gradcam", [], None, ["raw"])
    assert "import camapp\n" in python
    assert "explain_each(camapp.load_model('efficientnet_lite0', random_weights=True), 'a.png'" in python
    assert "--random-weights" in shlex.split(shell_call(["a.png"], untrained, "gradcam", [], None, ["raw"]))
    classifier = CalledModel("-colours.camapp")
    assert "download it from the Features tab" in python_call(["a.png"], classifier, "gradcam", [], None, ["raw"])
    words = shlex.split(shell_call(["a.png"], classifier, "gradcam", [], None, ["raw"]))
    assert words[words.index("--model") + 1] == "./-colours.camapp"
