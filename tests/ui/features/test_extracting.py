"""What the tab makes of choices that nobody vouches for: the library's own features and classifiers, or a sentence."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import camapp
from camapp.errors import CamappError, LayerError, ModelError, UsageError
from camapp.features.formats.packed import packed
from camapp.ui.features.downloads import probe_file, report_zip
from camapp.ui.features.extracting import (
    Extraction,
    Request,
    as_layers,
    checked_request,
    extract,
    has_labels,
    labelled,
    names_to_label,
    train,
)
from camapp.ui.features.map_view import map_of
from camapp.ui.features.probe_view import probe_of
from camapp.ui.features.summary_view import download_names, summary_of
from camapp.ui.frame.models import ModelPool
from tests.ui.features.made import COLOURS, coloured_zip, noisy

ODD = "=1+1<img src=x onerror=alert(1)>.png"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("archive")
    more = {f"set/red/{ODD}": noisy(COLOURS["red"], 0), "set/red/broken.png": b"no picture"}
    return coloured_zip(folder / "colours.zip", **more)


@pytest.fixture(scope="module")
def steps() -> list[tuple[int, int]]:
    return []


@pytest.fixture(scope="module")
def extraction(pool: ModelPool, archive: Path, steps: list[tuple[int, int]]) -> Extraction:
    request = Request((str(archive),), pool.default, ("penultimate", "blocks.2"))
    return extract(pool, request, progress=lambda *step: steps.append(step), cancel=lambda: False)


def test_features_are_those_of_the_library_on_the_unpacked_folder(
    pool: ModelPool, archive: Path, extraction: Extraction, tmp_path: Path, steps: list[tuple[int, int]]
) -> None:
    zipfile.ZipFile(archive).extractall(tmp_path)
    expected = camapp.extract_features(pool.load(pool.default), tmp_path / "set", layers=["penultimate", "blocks.2"])
    table = extraction.table
    assert len(table) == len(expected) == 19
    place = {name: row for row, name in enumerate(expected.names)}
    order = [place[name.lstrip("'").replace("/'", "/")] for name in table.names]
    for layer in ("penultimate", "blocks.2"):
        np.testing.assert_allclose(table[layer], expected[layer][order], rtol=1e-4, atol=1e-5)
    assert table.classes == ("blue", "green", "red")
    assert [name for name, _ in table.failures] == ["red/broken.png"]
    assert steps[-1] == (20, 20)
    assert extraction.stem == "colours"


@pytest.mark.parametrize(
    ("change", "kind", "said"),
    [
        ({"files": ()}, UsageError, "no pictures yet"),
        ({"model": "resnet999"}, ModelError, "resnet999"),
        ({"layers": ()}, UsageError, "No layer is chosen"),
        ({"layers": ("blocks.66",)}, LayerError, r'no layer "blocks\.66"\. Did you mean'),
        ({"layers": ("re:(a+)+$",)}, LayerError, "no layer"),
        ({"layers": tuple(f"blocks.{number}" for number in range(9))}, UsageError, "9 layers are more than 8"),
        ({"pool": "spp(99999)"}, UsageError, r'No pooling "spp\(99999\)"\. There are auto'),
    ],
)
def test_choices_that_cannot_be_meant_are_refused(
    pool: ModelPool, change: dict[str, Any], kind: type[CamappError], said: str
) -> None:
    with pytest.raises(kind, match=said):
        checked_request(pool, replace(Request(("a.zip",), pool.default), **change))


def test_views_are_plain_data_with_the_figures_of_the_library(extraction: Extraction) -> None:
    summary, plane = summary_of(extraction, "token", "files"), map_of(extraction, "token")
    assert json.loads(json.dumps([summary, plane])) == [summary, plane]
    assert summary["title"] == "19 pictures of 3 classes"
    first = summary["layers"][0]
    norms = np.linalg.norm(extraction.table["penultimate"].astype(float), axis=1)
    assert (first["name"], first["size"], first["norm"]) == ("penultimate", "1,280", f"{norms.mean():.3g}")
    assert first["deviation"] == f"{norms.std():.2g}"
    (broken,) = summary["failures"]
    assert broken[0] == "red/broken.png"
    flat = camapp.features.analysis.pca(extraction.table.flat("penultimate"))
    np.testing.assert_allclose(plane["layers"][0]["plane"]["points"], flat.coordinates, rtol=1e-4, atol=1e-6)
    assert plane["layers"][0]["plane"]["explained"][0] == f"{flat.explained_variance_ratio[0]:.1%}"
    odd, same = plane["pictures"].index(f"red/{ODD}"), plane["pictures"].index("red/0.png")
    groups = plane["layers"][0]["duplicates"]["groups"]
    assert any({odd, same} <= set(group["rows"]) for group in groups)
    assert plane["layers"][0]["neighbours"]["rows"][odd][0] == same
    assert plane["layers"][0]["neighbours"]["cosines"][odd][0] == "1.000"


@pytest.mark.parametrize("form", ["parquet", "npy", "npz", "safetensors", "hdf5", "csv", "mat", "projector"])
def test_downloads_are_called_as_they_are_packed(extraction: Extraction, form: str) -> None:
    assert download_names("colours")[form] == packed(extraction.table, form, "colours")[0]


@pytest.mark.parametrize("kind", ["linear", "ridge", "knn"])
def test_a_classifier_is_the_librarys_and_its_view_adds_up(
    pool: ModelPool, extraction: Extraction, kind: str, tmp_path: Path
) -> None:
    model = pool.load(pool.default)
    trained = train(model, labelled(extraction.table, ""), kind, 0.3)
    expected = camapp.train_probe(model, extraction.table, kind=kind, test_share=0.3)
    assert trained.report is not None
    assert expected.report is not None
    assert trained.report.to_dict() == expected.report.to_dict()
    view = probe_of(trained, extraction, 0.3, "token", {"files": "f", "probe": "p", "report": "r", "reason": None})
    assert json.loads(json.dumps(view)) == view
    assert sum(map(sum, view["confusion"])) == trained.report.pictures
    assert len(trained.trained_on) + trained.report.pictures == 19
    path = tmp_path / "colours.camapp"
    path.write_bytes(probe_file(trained))
    assert camapp.load_model(path, device="cpu").labels == ("blue", "green", "red")
    (tmp_path / "report.zip").write_bytes(report_zip(trained))
    with zipfile.ZipFile(tmp_path / "report.zip") as report:
        assert json.loads(report.read("report.json"))["accuracy"] == trained.report.accuracy


def test_typed_labels_stand_in_place_of_folders_and_are_made_safe(extraction: Extraction) -> None:
    waiting = names_to_label(extraction.table)
    assert waiting.splitlines()[0] == "red/0.png,"
    assert not has_labels(waiting)
    assert labelled(extraction.table, waiting).labels == extraction.table.labels
    table = labelled(extraction.table, "red/0.png,=cmd()\nblue/1.png,sea")
    assert table.labels == ("'=cmd()", "sea")
    with pytest.raises(UsageError, match="have no labels"):
        labelled(extraction.table.with_labels(None), waiting)
    with pytest.raises(UsageError, match="too many"):
        labelled(extraction.table, "x" * 300_000)


@pytest.mark.parametrize(
    ("kind", "share", "said"),
    [
        ("linaer", 0.25, "Did you mean linear"),
        ("linear", 0.9, "from 0.1 to 0.5"),
        ("linear", float("nan"), "from 0.1 to 0.5"),
        ("linear", "much", "from 0.1 to 0.5"),
    ],
)
def test_a_training_that_cannot_be_meant_is_refused(
    pool: ModelPool, extraction: Extraction, kind: str, share: Any, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        train(pool.load(pool.default), extraction.table, kind, share)


def test_a_class_of_one_picture_is_told_in_words(pool: ModelPool, extraction: Extraction) -> None:
    table = labelled(extraction.table, "red/0.png,a\nblue/1.png,b\nblue/2.png,b")
    with pytest.raises(UsageError, match='One picture only of "a"'):
        train(pool.load(pool.default), table, "linear", 0.25)


def test_one_picture_has_features_and_reasons_for_the_rest(pool: ModelPool, tmp_path: Path) -> None:
    (tmp_path / "one.png").write_bytes(noisy((9, 9, 9), 1))
    request = Request((str(tmp_path / "one.png"),), pool.default)
    found = extract(pool, request, progress=lambda *_: None, cancel=lambda: False)
    (layer,) = map_of(found, "token")["layers"]
    assert all("reason" in layer[part] for part in ("plane", "neighbours", "duplicates"))
    assert summary_of(found, "token", "files")["title"] == "1 picture without labels"


def test_layers_come_as_a_list_or_a_text() -> None:
    assert as_layers(" penultimate, last,,last") == as_layers(["penultimate", "last"]) == ("penultimate", "last")
    assert as_layers(None) == as_layers("") == ()
