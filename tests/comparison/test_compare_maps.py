"""Several methods at several layers on one picture: each cell is what explain gives, and a refusal is a cell too."""

from __future__ import annotations

import csv
import io
import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import stats

import camapp
from camapp.cam.compare import shares_passes
from camapp.cam.methods import find_method
from camapp.comparison import Comparison, compare_maps
from camapp.errors import LayerError, StoppedError, TargetError, UsageError
from camapp.resources import resource_folder

CHELSEA = resource_folder("assets") / "chelsea.jpg"
FINER = "blocks.4.2.conv_pwl"


@pytest.fixture(scope="module")
def model() -> camapp.LoadedModel:
    return camapp.load_model("efficientnet_lite0", device="cpu", download=False)


@pytest.fixture(scope="module")
def cat(model: camapp.LoadedModel) -> Comparison:
    methods = ["gradcam", "layercam", "cam", "fullgrad", "fused"]
    return compare_maps(model, CHELSEA, methods=methods, layers=[None, FINER])


def test_each_cell_is_what_explain_gives_for_its_method_and_layer(model: camapp.LoadedModel, cat: Comparison) -> None:
    for cell in cat.cells:
        if cell.explanation is None:
            continue
        alone = camapp.explain(model, CHELSEA, method=cell.method, layer=cell.layer, targets=cat.target.index)
        np.testing.assert_allclose(cell.explanation.model_maps, alone.model_maps, atol=1e-6, err_msg=cell.title)
        assert cell.explanation.layer == alone.layer
        assert cell.explanation.classes[0].index == cat.target.index


def test_all_cells_explain_the_likeliest_class_of_the_picture(model: camapp.LoadedModel, cat: Comparison) -> None:
    assert cat.target.index == camapp.explain(model, CHELSEA).predictions[0].index == cat.predictions[0].index
    named = compare_maps(model, CHELSEA, methods=["gradcam", "eigencam"], targets="Siamese cat")
    assert {cell.explanation.classes[0].index for cell in named.cells if cell.explanation} == {284}


def test_methods_of_one_layer_run_the_model_once_together(model: camapp.LoadedModel) -> None:
    runs = []
    counted = model.module.register_forward_hook(lambda *_: runs.append(1))
    try:
        compare_maps(model, CHELSEA, methods=["gradcam", "layercam", "xgradcam", "hirescam"], layers=["bn2", FINER])
    finally:
        counted.remove()
    assert len(runs) == 3  # one a layer, and one that tells the likeliest class


def test_a_method_that_refuses_a_layer_says_why_and_the_others_go_on(cat: Comparison) -> None:
    refused = cat.cell("cam", FINER)
    assert refused is not None
    assert refused.explanation is None
    assert "has 112 channels, and the linear head takes 1280" in str(refused.reason)
    assert sum(cell.explanation is None for cell in cat.cells) == 1


def test_a_method_of_the_whole_network_has_one_cell(cat: Comparison) -> None:
    assert [cell.layer for cell in cat.cells if cell.method == "fullgrad"] == [None]
    assert len(cat) == 9


def test_a_method_for_other_networks_is_a_reason_and_not_an_error(model: camapp.LoadedModel) -> None:
    comparison = compare_maps(model, CHELSEA, methods=["gradcam", "rollout"])
    assert "for vision transformers" in str(comparison.cell("rollout").reason)  # type: ignore[union-attr]


def test_a_refusal_within_a_shared_pass_leaves_the_others_their_maps(model: camapp.LoadedModel) -> None:
    comparison = compare_maps(model, CHELSEA, methods=["gradcam", "layercam"], layers=["bn2", "classifier"])
    assert [cell.explanation is None for cell in comparison.cells] == [False, True, False, True]
    assert "does not map onto a picture" in str(comparison.cells[1].reason)


def test_the_matrices_are_scipys_correlation_and_a_count_of_pixels(cat: Comparison) -> None:
    maps = [cell.explanation.model_maps[0].ravel() if cell.explanation else None for cell in cat.cells]
    for i, one in enumerate(maps):
        for j, other in enumerate(maps):
            if one is None or other is None:
                assert np.isnan(cat.correlation[i, j])
                assert np.isnan(cat.overlap[i, j])
                continue
            assert cat.correlation[i, j] == pytest.approx(stats.spearmanr(one, other).statistic, abs=1e-9)
            hot = [set(np.argsort(flat)[-round(flat.size / 5) :]) for flat in (one, other)]
            assert cat.overlap[i, j] == pytest.approx(len(hot[0] & hot[1]) / len(hot[0] | hot[1]), abs=2e-3)  # ties


def test_saved_files_hold_the_same_maps_and_numbers(cat: Comparison, tmp_path: Path) -> None:
    saved = cat.save(tmp_path / "new")
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == sorted(path.name for path in saved.files)
    assert saved.overlays[5] is None  # CAM refused the finer layer
    with Image.open(saved.overlays[0]) as overlay:  # type: ignore[arg-type]
        np.testing.assert_array_equal(np.asarray(overlay), np.asarray(cat.cells[0].explanation.overlay()))  # type: ignore[union-attr]
    rows = list(csv.reader(io.StringIO(saved.correlation.read_text())))
    assert rows[0][1:] == [cell.title for cell in cat.cells]
    assert float(rows[1][2]) == pytest.approx(cat.correlation[0, 1], abs=1e-6)
    assert rows[6][1] == ""
    facts = json.loads(saved.summary.read_text())
    assert facts["cells"][0]["overlay"] == saved.overlays[0].name  # type: ignore[union-attr]
    assert facts["target"]["label"] == cat.target.label
    with Image.open(saved.sheet) as sheet:
        assert sheet.width > 2 * 300, "two layers beside each other"
        assert not sheet.getexif()


def test_a_notebook_shows_text_from_files_as_text(model: camapp.LoadedModel) -> None:
    picture = camapp.Picture(camapp.decode(CHELSEA).rgb, name="<script>cat</script>")
    shown = compare_maps(model, picture, methods=["gradcam", "cam"], layers=[FINER])._repr_html_()
    assert "<script>" not in shown
    assert "the linear head takes" in shown


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"methods": []}, UsageError, "methods is empty"),
        ({"methods": ["gradcam"]}, UsageError, "nothing to compare it with"),
        ({"methods": ["gradcam", "gradcan"]}, UsageError, 'No method "gradcan". Did you mean gradcam'),
        ({"methods": ["gradcam", "cam"], "layers": ["a", "b", "c", "d"]}, UsageError, "4 layers are too many"),
        ({"methods": ["gradcam", "cam"], "layers": ["bn22"]}, LayerError, "bn22"),
        ({"methods": ["gradcam", "cam"], "targets": [1, 2]}, TargetError, "one class"),
        ({"methods": ["gradcam", "cam"], "targets": 5000}, TargetError, "5000"),
        ({"methods": ["legrad", "rollout"]}, UsageError, "None of the 2 maps can be made"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_words(
    model: camapp.LoadedModel, options: dict, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        compare_maps(model, CHELSEA, **options)


def test_seven_methods_are_too_many(model: camapp.LoadedModel) -> None:
    seven = ["gradcam", "layercam", "xgradcam", "hirescam", "eigencam", "fem", "cam"]
    with pytest.raises(UsageError, match="7 methods are too many"):
        compare_maps(model, CHELSEA, methods=seven)


def test_at_the_deadline_the_quick_maps_stay_and_the_slow_ones_say_so(
    model: camapp.LoadedModel, monkeypatch: Any
) -> None:
    clock = [0.0]
    monkeypatch.setattr("camapp.cam.watch.time", SimpleNamespace(monotonic=lambda: clock[0]))

    def progress(done: int, expected: int) -> None:
        clock[0] = float(done > 20)

    methods = ["scorecam", "gradcam", "sscam"]
    comparison = compare_maps(model, CHELSEA, methods=methods, deadline=0.8, progress=progress)
    slow, quick, slower = comparison.cells
    assert quick.explanation is not None
    assert "Not done within 0.8 s" in str(slow.reason)
    assert "not begun" in str(slower.reason)


def test_a_deadline_between_retries_keeps_what_was_made(model: camapp.LoadedModel, monkeypatch: Any) -> None:
    clock = [0.0]
    monkeypatch.setattr("camapp.cam.watch.time", SimpleNamespace(monotonic=lambda: clock[0]))

    def progress(done: int, expected: int) -> None:
        clock[0] += 0.7  # so that the second of the cells that are tried one by one is the last

    methods = ["gradcam", "kpcacam", "layercam"]  # of one pass; KPCA-CAM refuses so many places
    assert all(shares_passes(find_method(name)) for name in methods)
    comparison = compare_maps(model, CHELSEA, methods=methods, layers=["conv_stem"], deadline=1.0, progress=progress)
    made, refused, late = comparison.cells
    assert made.explanation is not None
    assert "places" in str(refused.reason)
    assert "Not done within 1 s" in str(late.reason)


def test_a_cancel_stops_everything_and_progress_is_told_before(model: camapp.LoadedModel) -> None:
    stop, told = threading.Event(), []

    def progress(done: int, expected: int) -> None:
        told.append((done, expected))
        if done > 20:
            stop.set()

    with pytest.raises(StoppedError):
        compare_maps(model, CHELSEA, methods=["gradcam", "scorecam"], progress=progress, cancel=stop)
    assert told[0] == (1, 2)
    assert all(done <= expected for done, expected in told)


def test_the_model_is_left_as_it_was(model: camapp.LoadedModel) -> None:
    before = {name: tensor.clone() for name, tensor in model.module.state_dict().items()}
    compare_maps(model, CHELSEA, methods=["gradcam", "cam"], layers=["bn2", FINER])
    assert all(torch.equal(before[name], tensor) for name, tensor in model.module.state_dict().items())
    assert not any(parameter.grad is not None for parameter in model.module.parameters())
