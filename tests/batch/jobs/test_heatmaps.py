"""What a job writes of a picture is what ``camapp.explain`` shows of it, whatever the batch."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image

import camapp
from camapp.batch.jobs.heatmaps import HeatmapJob
from camapp.batch.jobs.job import ModelChoice, Work
from camapp.batch.records import Item
from camapp.errors import CamappError, LayerError, TargetError, UsageError
from camapp.explanation import Explanation

ASSETS = Path(__file__).resolve().parents[3] / "assets"
PICTURES = ("chelsea.jpg", "coffee.jpg", "rocket.jpg")


@pytest.fixture(scope="module")
def model() -> Any:
    return camapp.load_model("efficientnet_lite0", device="cpu")


def opened(model: Any, out: Path, **options: Any) -> HeatmapJob:
    job = HeatmapJob(ModelChoice(model), **options)
    job.open(out)
    return job


def work(name: str, number: int = 0, **facts: Any) -> Work:
    return Work(number, Item(name, str(ASSETS / name), **facts), Path(name).stem, 3)


def through(job: HeatmapJob, names: tuple[str, ...] = PICTURES) -> list[Any]:
    return job.run([job.prepare((ASSETS / name).read_bytes(), work(name)) for name in names])


def test_the_files_are_those_that_explain_gives(model: Any, tmp_path: Path) -> None:
    job = opened(model, tmp_path, top_k=2, outputs=("overlay", "heatmap", "raw"), overlay_format="png")
    rows = [job.write(result, work(name)) for result, name in zip(through(job), PICTURES, strict=True)]
    for row, name in zip(rows, PICTURES, strict=True):
        stem = Path(name).stem
        single = camapp.explain(model, ASSETS / name, top_k=2)
        assert row.files == (
            f"overlays/{stem}-1.png",
            f"heatmaps/{stem}-1.png",
            f"overlays/{stem}-2.png",
            f"heatmaps/{stem}-2.png",
            f"raw/{stem}.npy",
        )
        for k, file in enumerate((f"overlays/{stem}-1.png", f"overlays/{stem}-2.png")):
            painted = np.asarray(Image.open(tmp_path / file)).astype(int)
            assert np.abs(painted - np.asarray(single.overlay(k)).astype(int)).max() <= 3  # a level of 256 at most
        heatmap = cv2.imread(str(tmp_path / f"heatmaps/{stem}-1.png"), cv2.IMREAD_UNCHANGED)
        assert heatmap.dtype == np.uint16
        assert np.abs(heatmap / 65535 - single.heatmap(0)).max() < 2e-5
        np.testing.assert_allclose(np.load(tmp_path / f"raw/{stem}.npy"), single.raw, rtol=1e-4, atol=1e-5)
        assert (row.width, row.height) == single.picture.rgb.shape[1::-1]
        assert [guess.label for guess in row.predictions] == [one.label for one in single.predictions]
        assert row.explained == tuple(one.label for one in single.classes)
        assert (row.status, row.shard) == ("done", 3)


@pytest.mark.parametrize(
    ("kind", "suffix", "opens"), [("jpeg", ".jpg", "JPEG"), ("webp", ".webp", "WEBP"), ("png", ".png", "PNG")]
)
def test_overlays_of_each_format_no_larger_than_asked(
    model: Any, tmp_path: Path, kind: str, suffix: str, opens: str
) -> None:
    job = opened(model, tmp_path, outputs=("overlay", "heatmap"), overlay_format=kind, max_side=120)
    (result,) = through(job, PICTURES[:1])
    row = job.write(result, work("chelsea.jpg"))
    whole = camapp.explain(model, ASSETS / "chelsea.jpg")
    assert row.files == (f"overlays/chelsea{suffix}", "heatmaps/chelsea.png")
    with Image.open(tmp_path / row.files[0]) as image:
        assert image.format == opens
        assert image.size == (120, 80)
        wanted = whole.overlay(0, frame=False).resize(image.size, Image.Resampling.LANCZOS)
        difference = np.asarray(image.convert("RGB")).astype(int) - np.asarray(wanted)
        assert np.abs(difference[8:-8, 28:-28]).mean() < 5  # inside of the frame; JPEG and WebP lose some
    heatmap = cv2.imread(str(tmp_path / row.files[1]), cv2.IMREAD_UNCHANGED) / 65535
    wanted = np.asarray(Image.fromarray(whole.heatmap(0)).resize((120, 80), Image.Resampling.BOX))
    assert np.abs(heatmap - wanted)[:, 15:-15].max() < 0.02  # without the edges of what was seen
    assert (row.width, row.height) == whole.picture.size == (451, 300)
    np.testing.assert_array_equal(result.raw, whole.raw)  # the model saw the picture as it is


def test_targets_are_the_same_for_all_or_each_pictures_own(model: Any, tmp_path: Path) -> None:
    data = (ASSETS / "chelsea.jpg").read_bytes()
    fixed = opened(model, tmp_path, targets=("tabby", 285))
    assert fixed.prepare(data, work("chelsea.jpg")).targets == (model.class_index("tabby"), 285)
    label = opened(model, tmp_path, targets="label")
    column = opened(model, tmp_path, targets="column")
    assert label.prepare(data, work("chelsea.jpg", label="281")).targets == (281,)
    assert column.prepare(data, work("chelsea.jpg", target="Egyptian cat")).targets == (285,)
    for job, facts, message in (
        (label, {}, "no label"),
        (column, {"label": "tabby"}, "no target class"),
        (column, {"target": "no such class"}, "has no class"),
    ):
        with pytest.raises(TargetError, match=message):
            job.prepare(data, work("chelsea.jpg", **facts))
    batch = [label.prepare(data, work("chelsea.jpg", label=name)) for name in ("281", "285")]
    first, second = label.run(batch)
    assert [one.classes[0].index for one in (first, second)] == [281, 285]


def test_a_picture_that_the_method_fails_on_leaves_the_others_of_its_batch(model: Any, tmp_path: Path) -> None:
    job = opened(model, tmp_path, targets="label")
    batch = [job.prepare((ASSETS / name).read_bytes(), work(name, label="5")) for name in PICTURES]
    object.__setattr__(batch[1], "targets", (5000,))  # as a class that only the model's output tells to be none
    results = job.run(batch)
    assert [type(one).__name__ for one in results] == ["Explanation", "TargetError", "Explanation"]
    assert isinstance(results[1], CamappError)
    assert isinstance(results[0], Explanation)


def large(name: str, **options: Any) -> bytes:
    """A sample picture as a JPEG of 2000 pixels and more a side."""
    buffer = io.BytesIO()
    with Image.open(ASSETS / name) as image:
        image.convert("RGB").resize((2600, 2000), Image.Resampling.LANCZOS).save(buffer, "jpeg", **options)
    return buffer.getvalue()


def test_drafts_change_maps_little_and_sizes_not_at_all(model: Any, tmp_path: Path) -> None:
    rotated = Image.Exif()
    rotated[0x0112] = 6
    for options, size in (({}, (2600, 2000)), ({"exif": rotated}, (2000, 2600))):
        rows = {}
        for draft in (False, True):
            job = opened(model, tmp_path / f"{draft}", outputs=("overlay", "raw"), max_side=300, draft=draft)
            painted = job.prepare(large("coffee.jpg", **options), work("coffee.jpg"))
            (result,) = job.run([painted])
            rows[draft] = job.write(result, work("coffee.jpg")), result
        (row, whole), (drafted_row, drafted) = rows[False], rows[True]
        assert (row.width, row.height) == (drafted_row.width, drafted_row.height) == size
        assert drafted_row.notes[0].startswith("decoded at 1300x1000 of 2600x2000")
        assert np.corrcoef(whole.raw.ravel(), drafted.raw.ravel())[0, 1] > 0.999
        assert drafted.classes[0].index == whole.classes[0].index
        assert drafted.picture.size == whole.picture.size
        difference = drafted.picture.rgb.astype(int) - whole.picture.rgb
        assert np.abs(difference).mean() < 2
        assert drafted.geometry.seen == pytest.approx(whole.geometry.seen, abs=1)


def test_one_scale_of_several_classes_is_that_of_each_picture_and_not_of_its_batch(model: Any, tmp_path: Path) -> None:
    job = opened(model, tmp_path, top_k=3, normalize="shared")
    for result, name in zip(through(job), PICTURES, strict=True):
        single = camapp.explain(model, ASSETS / name, top_k=3, normalize="shared")
        np.testing.assert_allclose(result.model_maps, single.model_maps, atol=1e-5)
        assert result.model_maps.max() == 1


def test_how_a_picture_is_fitted_is_decided_by_its_own_size_also_as_a_draft(model: Any, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with Image.open(ASSETS / "coffee.jpg") as image:
        image.convert("RGB").resize((4485, 1121)).save(buffer, "jpeg")  # 4.0009:1, and at half of it 3.998:1
    results = {}
    for draft in (False, True):
        job = opened(model, tmp_path, outputs=("raw",), draft=draft)
        (results[draft],) = job.run([job.prepare(buffer.getvalue(), work("coffee.jpg"))])
    assert results[True].picture.size == (2243, 561)
    assert results[True].geometry.fit == results[False].geometry.fit == "letterbox"
    assert np.corrcoef(results[True].raw.ravel(), results[False].raw.ravel())[0, 1] > 0.99


def test_lower_precision_changes_maps_little(model: Any, tmp_path: Path) -> None:
    (whole,) = through(opened(model, tmp_path), PICTURES[:1])
    (rounded,) = through(opened(model, tmp_path, precision="bfloat16"), PICTURES[:1])
    assert rounded.raw.dtype == np.float32
    assert np.abs(rounded.raw - whole.raw).max() > 0  # it was heeded
    assert np.corrcoef(rounded.raw.ravel(), whole.raw.ravel())[0, 1] > 0.97
    assert rounded.classes[0].index == whole.classes[0].index


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"outputs": ()}, UsageError, "outputs are one or more of"),
        ({"outputs": ("overlays",)}, UsageError, "Did you mean overlay"),
        ({"overlay_format": "gif"}, UsageError, "overlay_format is one of"),
        ({"quality": 0}, UsageError, "quality = 0 cannot be meant; give a whole number from 1 to 100"),
        ({"top_k": 0}, UsageError, "top_k"),
        ({"max_side": 4}, UsageError, "max_side"),
        ({"raw_format": "parquet", "outputs": ("overlay",)}, UsageError, "raw is not among the outputs"),
        ({"raw_format": "npz"}, UsageError, "raw_format is one of npy, parquet"),
        ({"targets": ("label", "tabby")}, UsageError, '"label" or "column" alone'),
        ({"precision": "int8"}, UsageError, "precision is one of float32"),
        ({"draft": True}, UsageError, "Give a max_side"),
        ({"alpha": 2.0}, UsageError, "alpha"),
        ({"sign": "both"}, UsageError, "painted"),
        ({"layer": "blocks.99"}, LayerError, "blocks.99"),
        ({"targets": ("no such class",)}, TargetError, "has no class"),
        ({"method": "gradcamm"}, UsageError, "gradcam"),
    ],
)
def test_options_that_cannot_be_meant_are_found_when_the_job_is_opened(
    model: Any, tmp_path: Path, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        opened(model, tmp_path, **options)
    assert list(tmp_path.iterdir()) == []
