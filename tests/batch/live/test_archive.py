"""The .zip of a small batch: a row an input, maps that read back, the same bytes again, all of it or nothing."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from PIL import Image

import camapp
from camapp.batch.live import Outcome, PictureExplainer, ResultsArchive, explain_each
from camapp.batch.live.archive import COLUMNS, safe_cell, settings_of_batch
from camapp.batch.records import Item
from camapp.errors import UsageError
from camapp.images.decode import Limits
from tests.networks import Plain


@pytest.fixture(scope="module")
def tiny() -> Any:
    torch.manual_seed(0)
    return camapp.wrap_model(Plain().eval(), size=32, labels=["=ant", "bee", "cat", "dog", "eel"], layer="last")


@pytest.fixture(scope="module")
def outcomes(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> list[Outcome]:
    folder = tmp_path_factory.mktemp("pictures")
    for number, name in enumerate(["=cmd.png", "a.PNG", "A.png", "<b>.png"]):
        noise = np.random.default_rng(number).integers(0, 255, (4, 5, 3), np.uint8)
        Image.fromarray(noise).resize((50, 40)).save(folder / name)
    (folder / "broken.png").write_bytes(b"only words")
    names = ["=cmd.png", "a.PNG", "A.png", "<b>.png", "broken.png"]
    done = list(explain_each(tiny, [folder / name for name in names], targets=0))
    return [*done, Outcome(Item("late.png", "late.png"), "left", reason="-stopped")]


def written(path: Path, outcomes: list[Outcome], **options: Any) -> Path:
    with ResultsArchive(path, **options) as archive:
        for outcome in outcomes:
            archive.add(outcome)
    return path


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def test_every_input_has_a_row_and_every_done_one_its_files(outcomes: list[Outcome], tmp_path: Path) -> None:
    found = members(written(tmp_path / "z.zip", outcomes))
    rows = list(csv.DictReader(io.StringIO(found["results.csv"].decode())))
    assert list(rows[0]) == list(COLUMNS)
    assert [row["status"] for row in rows] == ["done"] * 4 + ["failed", "left"]
    named = [name for row in rows for name in row["files"].split("; ") if name]
    assert sorted(named) == sorted(set(found) - {"results.csv", "settings.json"})
    assert len(named) == 4 * 3


def test_the_numbers_of_the_table_are_those_of_the_explanations(outcomes: list[Outcome], tmp_path: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(members(written(tmp_path / "z.zip", outcomes))["results.csv"].decode())))
    for row, outcome in zip(rows[:4], outcomes, strict=False):
        explained = outcome.explanation.classes[0]
        assert (int(row["index"]), float(row["probability"]), float(row["logit"])) == (
            explained.index,
            explained.probability,
            explained.logit,
        )
        assert (row["layer"], row["method"]) == ("last", "gradcam")


def test_no_cell_of_text_is_a_formula(outcomes: list[Outcome], tmp_path: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(members(written(tmp_path / "z.zip", outcomes))["results.csv"].decode())))
    assert (rows[0]["name"], rows[0]["label"], rows[-1]["reason"]) == ("'=cmd.png", "'=ant", "'-stopped")
    assert [safe_cell(text) for text in ("+1", "-1", "@x", "\tx", "a=b")] == ["'+1", "'-1", "'@x", "'\tx", "a=b"]


def test_maps_read_back_as_they_were(outcomes: list[Outcome], tmp_path: Path) -> None:
    found = members(written(tmp_path / "z.zip", outcomes))
    explanation = outcomes[1].explanation
    np.testing.assert_array_equal(np.load(io.BytesIO(found["raw/a.npy"])), explanation.raw)
    heatmap = cv2.imdecode(np.frombuffer(found["heatmaps/a.png"], np.uint8), cv2.IMREAD_UNCHANGED)
    assert heatmap.dtype == np.uint16
    np.testing.assert_allclose(heatmap / 65535, explanation.heatmap(), atol=0.5 / 65535 + 1e-7)
    with Image.open(io.BytesIO(found["overlays/a.jpg"])) as overlay:
        assert not overlay.getexif()
        difference = np.abs(np.asarray(overlay, int) - np.asarray(explanation.overlay(), int))
        assert difference.mean() < 6  # of 255: a JPEG


def test_names_are_safe_and_unlike_each_other_ignoring_case(outcomes: list[Outcome], tmp_path: Path) -> None:
    found = members(written(tmp_path / "z.zip", outcomes, outputs=["overlay"]))
    overlays = [name for name in found if name.startswith("overlays/")]
    assert overlays == ["overlays/=cmd.jpg", "overlays/a.jpg", "overlays/A_2.jpg", "overlays/_b_.jpg"]
    assert not [name for name in found if name.startswith(("raw/", "heatmaps/"))]


def test_the_same_results_give_the_same_bytes(outcomes: list[Outcome], tmp_path: Path) -> None:
    one, other = (written(tmp_path / name, outcomes).read_bytes() for name in ("one.zip", "other.zip"))
    assert one == other


def test_the_settings_name_all_that_decides(tiny: Any, outcomes: list[Outcome], tmp_path: Path) -> None:
    explainer = PictureExplainer(tiny, layer="stem", targets="bee", fit="letterbox")
    settings = settings_of_batch(tiny, explainer.settings(), [one.item for one in outcomes])
    found = json.loads(
        members(written(tmp_path / "z.zip", outcomes, outputs=["raw"], settings=settings))["settings.json"]
    )
    assert (found["method"], found["layer"], found["targets"], found["outputs"]) == (
        "gradcam",
        ["stem"],
        "bee",
        ["raw"],
    )
    assert found["input"]["fit"] == "letterbox"
    assert len(found["weights"]["sha256"]) == 64
    assert found["versions"]["torch"] == torch.__version__.partition("+")[0]
    assert found["inputs"][0] == "=cmd.png"


def test_what_its_format_cannot_hold_fails_alone(tiny: Any, tmp_path: Path) -> None:
    Image.new("L", (70_000, 2)).save(tmp_path / "long.png")
    wide = PictureExplainer(tiny, limits=Limits(max_aspect=1e6))
    with ResultsArchive(tmp_path / "z.zip") as archive:
        row = archive.add(wide.outcome(Item("long.png", str(tmp_path / "long.png"))))
        assert archive.size == 0
    assert (row["status"], row["files"], row["label"]) == ("failed", [], None)
    assert "70000 x 2 is too large for jpeg" in row["reason"]


def test_where_the_block_raises_nothing_is_left(outcomes: list[Outcome], tmp_path: Path) -> None:
    archive = ResultsArchive(tmp_path / "z.zip")
    seen = []

    def broken_off() -> None:
        with archive:
            archive.add(outcomes[0])
            seen.extend(path.suffix for path in tmp_path.iterdir())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken_off()
    assert seen == [".part"]
    assert list(tmp_path.iterdir()) == []


def test_an_archive_takes_nothing_before_it_is_opened_nor_outputs_that_do_not_exist(
    outcomes: list[Outcome], tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="not open"):
        ResultsArchive(tmp_path / "z.zip").add(outcomes[0])
    with pytest.raises(UsageError, match="video"):
        ResultsArchive(tmp_path / "z.zip", outputs=["video"])  # type: ignore[list-item]


def test_an_explanation_made_smaller_looks_the_same(outcomes: list[Outcome]) -> None:
    explanation = outcomes[0].explanation
    small = explanation.no_larger_than(25)
    assert small.picture.size == (25, 20)
    assert small.overlay().size == (25, 20)
    whole = cv2.resize(explanation.heatmap(), (25, 20), interpolation=cv2.INTER_AREA)
    assert np.abs(small.heatmap() - whole)[:, 4:-4].max() < 0.06  # beside the edges of the crop, inside of a pixel
