"""A run: every picture, method, layer and baseline gets its values, whatever goes wrong with the others."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

import camapp
from camapp.cam.methods import METHODS
from camapp.cam.methods.gradcam import GradCAM
from camapp.cam.metrics import METRICS, Sample, class_probability
from camapp.errors import AnnotationError, DecodeError, LayerError, TargetError, UsageError
from camapp.evaluation import Report, evaluate
from camapp.evaluation.boxes import object_boxes
from camapp.images.decode import decode
from tests.evaluation.annotated import write_own, write_picture
from tests.networks import Plain

EDGES = (20, 10, 40, 30)


@pytest.fixture
def model() -> camapp.LoadedModel:
    network = Plain().eval()
    with torch.no_grad():
        network.head.weight.mul_(20)
    return camapp.wrap_model(network, size=32, labels=["cat", "dog", "cow", "owl", "bee"], layer="last")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five pictures with a planted object each, and their boxes."""
    planted = {}
    for number in range(5):
        write_picture(tmp_path / "pictures" / f"{number}.png", (64, 48), EDGES, seed=number)
        planted[f"{number}.png"] = ((64, 48), [("thing", EDGES)])
    write_own(tmp_path / "boxes.json", planted)
    return tmp_path


def run(model: camapp.LoadedModel, folder: Path, **options: Any) -> Report:
    return evaluate(model, folder / "pictures", **{"metrics": "average_drop", **options})


def found(report: Report, method: str = "gradcam", metric: str = "average_drop") -> list[float]:
    return [row.value for row in report.values if (row.method, row.metric) == (method, metric)]


def test_a_value_is_the_metric_of_the_map_that_explain_gives(model: camapp.LoadedModel, folder: Path) -> None:
    report = run(model, folder, metrics=["average_drop", "energy"], boxes=folder / "boxes.json", baselines=())
    rows = {(row.picture, row.metric): row for row in report.values}
    assert len(rows) == len(report.values) == 10
    for number in range(5):
        picture = decode(folder / "pictures" / f"{number}.png")
        explanation = camapp.explain(model, picture)
        inputs, geometry, _ = model.prepare(picture)
        (target,) = explanation.classes
        box = camapp.evaluation.Box(tuple(map(float, EDGES)))  # type: ignore[attr-defined]
        sample = Sample(
            score=class_probability(model.module),
            inputs=inputs,
            targets=torch.tensor([target.index]),
            maps=torch.from_numpy(explanation.model_maps),
            boxes=[object_boxes([box], geometry, target.label, target.index).boxes],
        )
        for name in ("average_drop", "energy"):
            row = rows[f"{number}.png", name]
            assert row.value == pytest.approx(METRICS[name]().update(sample).item(), abs=1e-4)
            assert (row.method, row.layer, row.target, row.label) == ("gradcam", "last", target.index, target.label)
            assert row.reason == explanation.reasons[0]


@pytest.mark.parametrize("batch_size", [1, 3])
def test_batches_change_nothing(batch_size: int, model: camapp.LoadedModel, folder: Path) -> None:
    whole, parts = run(model, folder), run(model, folder, batch_size=batch_size)
    assert [(row.picture, row.method) for row in sorted(parts.values, key=lambda row: (row.method, row.picture))] == [
        (row.picture, row.method) for row in sorted(whole.values, key=lambda row: (row.method, row.picture))
    ]
    for method in ("gradcam", "center", "random", "uniform"):
        np.testing.assert_allclose(found(parts, method), found(whole, method), atol=1e-3)


def test_the_summary_sums_up_the_values(model: camapp.LoadedModel, folder: Path) -> None:
    report = run(model, folder)
    for row in report.summary:
        values = np.array(found(report, row.method))
        assert row.value == pytest.approx(values.mean(), rel=1e-5)
        assert row.standard_error == pytest.approx(values.std(ddof=1) / math.sqrt(5), rel=1e-5)
        assert row.pictures == 5
        assert row.kind == ("method" if row.method == "gradcam" else "baseline")
    assert [row.method for row in report.summary] == ["gradcam", "center", "random", "uniform"]
    assert report.summary[0].seconds_per_picture > 0


def test_only_a_mean_has_a_standard_error(model: camapp.LoadedModel, folder: Path) -> None:
    metrics = ["energy", "max_box_acc", "max_box_acc_v2"]
    # Where the boxes are found at every threshold or none, the values' mean is the value, and yet it is no mean.
    report = run(model, folder, metrics=metrics, boxes=folder / "boxes.json", baselines=["uniform"])
    assert [(row.metric, math.isnan(row.standard_error)) for row in report.summary if row.method == "uniform"] == [
        ("energy", False),
        ("max_box_acc", True),
        ("max_box_acc_v2", True),
    ]
    assert report.metrics["max_box_acc"] == "MaxBoxAcc: the largest contour's box, IoU >= 0.5."


def test_layers_are_rows_of_their_own(model: camapp.LoadedModel, folder: Path) -> None:
    report = run(model, folder, layers=["last", "norm"], baselines=["uniform"])
    assert [(row.method, row.layer) for row in report.summary] == [
        ("gradcam", "last"),
        ("gradcam", "norm"),
        ("uniform", ""),
    ]
    assert report.summary[0].value != report.summary[1].value


class Stubborn(GradCAM):
    """Grad-CAM that takes no layer of the user's choice."""

    name = "stubborn"
    takes_layer = False

    def default_layers(self, inputs: torch.Tensor) -> tuple[str, ...]:
        return ("norm",)


def test_a_method_that_takes_no_layer_is_measured_once_whatever_the_layers(
    model: camapp.LoadedModel, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS, "stubborn", Stubborn)
    report = run(model, folder, layers=["last", "norm"], methods=["stubborn", "gradcam"], baselines=(), batch_size=2)
    found = {(row.method, row.layer): row.value for row in report.summary}
    assert list(found) == [("stubborn", "norm"), ("gradcam", "last"), ("gradcam", "norm")]
    assert found["stubborn", "norm"] == pytest.approx(found["gradcam", "norm"], rel=1e-4)


def test_a_class_can_be_named_for_all_pictures(model: camapp.LoadedModel, folder: Path) -> None:
    report = run(model, folder, target="owl")
    assert {(row.target, row.label) for row in report.values} == {(3, "owl")}
    assert report.settings["target"] == "owl"
    with pytest.raises(TargetError, match="Did you mean owl"):
        run(model, folder, target="owls")


def test_pictures_that_cannot_be_read_or_do_not_fit_their_boxes_are_skipped_with_the_reason(
    model: camapp.LoadedModel, folder: Path
) -> None:
    (folder / "pictures" / "2.png").write_bytes(b"no picture")
    boxes = json.loads((folder / "boxes.json").read_text())
    boxes[4]["size"] = [48, 64]
    (folder / "boxes.json").write_text(json.dumps(boxes))
    report = run(model, folder, boxes=folder / "boxes.json")
    assert report.pictures == ("0.png", "1.png", "3.png")
    assert [one.picture for one in report.failures] == ["2.png", "4.png"]
    assert "48x64 pixels, but the picture has 64x48" in report.failures[1].reason
    assert {row.picture for row in report.values} == {"0.png", "1.png", "3.png"}


def test_no_readable_picture_at_all_is_an_error(model: camapp.LoadedModel, tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_bytes(b"no picture")
    with pytest.raises(DecodeError, match=r"None of 1 picture.*bad\.png: "):
        evaluate(model, tmp_path, metrics="average_drop")


def test_the_report_says_which_boxes_were_taken_for_the_object(model: camapp.LoadedModel, folder: Path) -> None:
    boxes = json.loads((folder / "boxes.json").read_text())[:4]
    boxes[0]["boxes"].append({"name": "OWL", "xyxy": [0, 0, 60, 40]})
    boxes[1]["boxes"] = [{"xyxy": [0, 0, 3, 3]}]  # cropped away: the model sees the middle 48 columns
    (folder / "boxes.json").write_text(json.dumps(boxes))
    options = {"metrics": "energy", "target": "owl", "baselines": ["uniform"]}
    report = run(model, folder, boxes=folder / "boxes.json", **options)
    assert report.notes == (
        "1 picture(s): boxes of the explained class taken as the object",
        "1 picture(s): its boxes lie outside of what the model sees, so no value of the metrics that need them",
        "2 picture(s): no box of the explained class: all its boxes taken as the object",
        "1 picture(s): no boxes, so no value of the metrics that need them",
    )
    uniform = found(report, "uniform", "energy")
    assert [math.isnan(value) for value in uniform] == [False, True, False, False, True]
    # The owl's box alone, of which the model's crop shows 48 x 40 pixels, against the planted one of 20 x 20.
    assert uniform[0] / uniform[2] == pytest.approx((48 * 40) / (20 * 20), rel=0.1)
    assert report.summary[0].pictures == 3


def test_metrics_that_need_boxes_are_refused_by_name_and_left_out_of_a_group_with_a_note(
    model: camapp.LoadedModel, folder: Path
) -> None:
    with pytest.raises(UsageError, match=r'"energy" needs boxes of the objects: --boxes FILE'):
        run(model, folder, metrics=["average_drop", "energy"])
    report = run(model, folder, metrics="cheap")
    assert "energy" not in {row.metric for row in report.summary}
    left_out = [note for note in report.notes if note.startswith("left out: ")]
    assert len(left_out) == 2  # one for all that lack the same: boxes, and masks
    assert "pointing, energy, iou" in left_out[0]
    assert "for want of boxes" in left_out[0]
    assert "pxap, for want of masks" in left_out[1]


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"methods": "gradcm"}, UsageError, "Did you mean gradcam"),
        ({"methods": []}, UsageError, "No method to evaluate"),
        ({"metrics": "insertin"}, UsageError, "Did you mean insertion"),
        ({"metrics": []}, UsageError, "No metric"),
        ({"metrics": "pxap"}, UsageError, "needs masks"),
        ({"layers": "lst"}, LayerError, "Did you mean last"),
        ({"baselines": ["centre"]}, UsageError, "Did you mean center"),
        ({"fit": "zoom"}, UsageError, "crop, letterbox, stretch"),
        ({"batch_size": 0}, UsageError, "batch_size = 0"),
        ({"batch_size": "8"}, UsageError, "batch_size = '8'.*whole number"),
        ({"batch_size": 2.5}, UsageError, r"batch_size = 2\.5"),
        ({"limit": "3"}, UsageError, "limit = '3'.*whole number"),
        ({"seed": -1}, UsageError, "seed = -1"),
        ({"seed": "one"}, UsageError, "seed = 'one'"),
        ({"boxes": "no.json"}, AnnotationError, "no such file or folder of boxes"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_the_first_picture(
    options: dict[str, Any], kind: type[Exception], message: str, model: camapp.LoadedModel, folder: Path
) -> None:
    def touched(names: list[str]) -> list[str]:
        raise AssertionError("a picture was touched")

    with pytest.raises(kind, match=message):
        run(model, folder, progress=touched, **options)


class Picky(GradCAM):
    """Grad-CAM that refuses pictures whose first pixel is bright."""

    name = "picky"

    def ready(self, inputs: torch.Tensor, *others: Any) -> Any:
        if bool((inputs[:, 0, 0, 0] > 1).any()):
            raise LayerError("too bright for picky")
        return super().ready(inputs, *others)


@pytest.mark.parametrize("batch_size", [1, 2, 8])
def test_a_method_that_refuses_a_picture_is_reported_and_keeps_the_others(
    batch_size: int, model: camapp.LoadedModel, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS, "picky", Picky)
    write_picture(folder / "pictures" / "3.png", (64, 48), (0, 0, 40, 40))
    report = run(model, folder, methods=["gradcam", "picky"], batch_size=batch_size)
    refused = [row for row in report.values if row.reason and row.reason.startswith("refused")]
    assert [(row.picture, row.method, row.reason) for row in refused] == [
        ("3.png", "picky", "refused: too bright for picky")
    ]
    assert math.isnan(refused[0].value)
    row = next(row for row in report.summary if row.method == "picky")
    assert (row.pictures, row.refused, row.blanks) == (4, 1, 0)
    others = {row.picture: row.value for row in report.values if row.method == "gradcam"}
    for row in report.values:
        if row.method == "picky" and row is not refused[0]:
            assert row.value == pytest.approx(others[row.picture], abs=1e-3)
    assert "too bright for picky" in report.markdown()


def test_a_method_that_refuses_everything_leaves_the_report_whole(
    model: camapp.LoadedModel, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(METHODS, "picky", Picky)
    for number in range(5):
        write_picture(folder / "pictures" / f"{number}.png", (64, 48), (0, 0, 40, 40))
    report = run(model, folder, methods=["gradcam", "picky"])
    row = next(row for row in report.summary if row.method == "picky")
    assert (row.pictures, row.refused) == (0, 5)
    assert math.isnan(row.value)
    assert len(report.save(tmp_path / "out")) >= 5


class Counting(Plain):
    """Counts the pictures that it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.pictures = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.pictures += len(x)
        return super().forward(x)


@pytest.mark.parametrize("batch_size", [1, 2])
def test_a_method_that_refuses_the_model_costs_a_probe_and_no_run_of_the_others(batch_size: int, folder: Path) -> None:
    def pictures_seen(methods: list[str], limit: int) -> int:
        network = Counting().eval()
        loaded = camapp.wrap_model(network, size=32, layer="last")
        network.pictures = 0
        report = run(loaded, folder, methods=methods, limit=limit, batch_size=batch_size, metrics="complexity")
        refused = [row for row in report.values if row.method in ("legrad", "rollout")]
        told = {(row.method, row.reason) for row in refused if row.reason and row.reason.startswith("refused: ")}
        assert len(refused) == len(methods[3:]) * limit
        assert {method for method, _ in told} == set(methods[3:])
        assert len(told) == len(methods[3:]), "the same reason for all pictures"
        return network.pictures

    cheap = ["gradcam", "layercam", "scorecam"]
    extra = [pictures_seen([*cheap, "legrad", "rollout"], limit) - pictures_seen(cheap, limit) for limit in (2, 5)]
    assert extra[0] == extra[1], "the pictures after the first batch are not run for a method that refuses them all"


class Costly(GradCAM):
    """Grad-CAM that counts its calls, as a method that runs the model many times would like to be called."""

    name = "costly"
    calls: ClassVar[list[int]] = []

    def ready(self, inputs: torch.Tensor, *others: Any) -> Any:
        self.calls.append(len(inputs))
        return super().ready(inputs, *others)


def test_a_method_runs_once_a_batch_whatever_others_refuse(
    model: camapp.LoadedModel, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS, "costly", Costly)
    monkeypatch.setitem(METHODS, "picky", Picky)
    monkeypatch.setattr(Costly, "calls", [])
    write_picture(folder / "pictures" / "0.png", (64, 48), (0, 0, 40, 40))  # refused by picky, but not as the model
    report = run(model, folder, methods=["costly", "legrad", "picky"], batch_size=2)
    assert Costly.calls == [2, 2, 1]
    reasons = {row.picture: row.reason for row in report.values if row.method == "picky"}
    assert [name for name, reason in reasons.items() if reason] == ["0.png"]


def test_blank_maps_are_counted_and_say_why(folder: Path) -> None:
    network = Plain().eval()
    with torch.no_grad():
        network.head.weight.copy_(-network.head.weight.abs())
        network.last.bias.fill_(10)  # positive everywhere, and every class counts it as a negative
    report = run(camapp.wrap_model(network, size=32, layer="last"), folder, limit=3)
    row = report.summary[0]
    assert row.blanks == sum(bool(value.reason) for value in report.values if value.method == "gradcam")
    assert row.blanks == 3
    assert all("no positive evidence" in str(v.reason) for v in report.values if v.method == "gradcam")
    assert all(value.reason is None for value in report.values if value.method != "gradcam")


def test_the_seed_decides_and_the_callers_random_state_stays(model: camapp.LoadedModel, folder: Path) -> None:
    state = torch.get_rng_state()
    first, again, other = (found(run(model, folder, seed=seed), "random") for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    assert first == again
    assert first != other


def test_the_seed_reaches_the_methods(model: camapp.LoadedModel, folder: Path) -> None:
    drawing, metric = ("randomcam", "smoothgradcam++"), "complexity"
    options: dict[str, Any] = {"methods": ["gradcam", *drawing], "metrics": metric, "batch_size": 2}
    first, again, other = (run(model, folder, seed=seed, **options) for seed in (1, 1, 2))
    for method in drawing:
        assert found(first, method, metric) == found(again, method, metric)
        assert found(first, method, metric) != found(other, method, metric)
    assert found(first, "gradcam", metric) == found(other, "gradcam", metric)


def test_progress_sees_every_picture(model: camapp.LoadedModel, folder: Path) -> None:
    seen: list[str] = []

    def watch(names: list[str]) -> list[str]:
        seen.extend(names)
        return names

    run(model, folder, progress=watch, limit=2)
    assert seen == ["0.png", "1.png"]


def test_a_plain_module_is_refused_with_the_way_to_wrap_it(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"camapp\.wrap_model"):
        evaluate(Plain(), folder / "pictures")  # type: ignore[arg-type]
