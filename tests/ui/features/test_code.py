"""What the page copies runs as it stands, in Python and in a shell, and gives what the page gave."""

from __future__ import annotations

import shlex
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import camapp
from camapp import cli
from camapp.features.formats import load_features
from camapp.features.table import FeatureTable
from camapp.ui.features.code import extract_code, train_code
from camapp.ui.features.extracting import Request
from camapp.ui.frame.calls import CalledModel
from tests.ui.features.made import coloured_zip

REQUEST = Request(("x.zip",), "efficientnet_lite0", ("penultimate", "last"), "max", True)
MODEL = CalledModel("efficientnet_lite0")
SOURCE = "-it's set"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the code runs: beside a folder of labelled pictures."""
    zipfile.ZipFile(coloured_zip(tmp_path / "x.zip", 4)).extractall(tmp_path)
    (tmp_path / "set").rename(tmp_path / SOURCE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> FeatureTable:
    top = tmp_path_factory.mktemp("expected")
    zipfile.ZipFile(coloured_zip(top / "x.zip", 4)).extractall(top)
    return camapp.extract_features(
        "efficientnet_lite0", top / "set", layers=["penultimate", "last"], pool="max", normalize=True
    )


def in_shell(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", shlex.split(command))
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert not end.value.code


def test_features_by_python_and_by_shell_are_those_wanted(
    folder: Path, expected: FeatureTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = extract_code(REQUEST, MODEL, SOURCE)
    exec(compile(code["python"], "copied.py", "exec"), {})
    by_python = load_features(folder / f"{SOURCE}.parquet")
    (folder / f"{SOURCE}.parquet").unlink()
    in_shell(code["command"], monkeypatch)
    by_shell = load_features(folder / f"{SOURCE}.parquet")
    for found in (by_python, by_shell):
        assert found.layers == expected.layers
        for layer in expected.layers:
            np.testing.assert_allclose(found[layer], expected[layer], atol=1e-5)


def test_a_classifier_by_python_and_by_shell_is_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = train_code(REQUEST, MODEL, SOURCE, "ridge", 0.4)
    exec(compile(code["python"], "copied.py", "exec"), {})
    path = folder / f"{SOURCE}.camapp"
    by_python = path.read_bytes()
    path.unlink()
    in_shell(code["command"], monkeypatch)
    assert path.read_bytes() == by_python


def test_random_weights_are_told_in_both_calls() -> None:
    untrained = CalledModel("efficientnet_lite0", random_weights=True)
    for code in (extract_code(REQUEST, untrained, "set"), train_code(REQUEST, untrained, "set", "knn", 0.25)):
        assert "camapp.load_model('efficientnet_lite0', random_weights=True)" in code["python"]
        assert "--random-weights" in shlex.split(code["command"])
