"""Pictures explained one by one: what each gives alone, and a reason for each that gives nothing."""

from __future__ import annotations

import itertools
import threading
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import camapp
from camapp.batch.live import PictureExplainer, explain_each, pictures_given
from camapp.batch.live.explaining import NO_CLASS, STOPPED
from camapp.errors import LayerError, TargetError, UsageError
from tests.networks import Plain

ASSETS = Path(__file__).resolve().parents[3] / "assets"


@pytest.fixture(scope="module")
def model() -> Any:
    return camapp.load_model("efficientnet_lite0", device="cpu")


@pytest.fixture
def tiny() -> Any:
    torch.manual_seed(0)
    return camapp.wrap_model(Plain().eval(), size=32, labels=["ant", "bee", "cat", "dog", "eel"], layer="last")


@pytest.fixture
def pictures(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"{name}.png" for name in "abc"]
    for number, path in enumerate(paths):
        noise = np.random.default_rng(number).integers(0, 255, (40, 50, 3), np.uint8)
        Image.fromarray(noise).save(path)
    return paths


def test_each_picture_comes_out_as_it_does_alone(model: Any) -> None:
    paths = [ASSETS / "chelsea.jpg", ASSETS / "coffee.jpg"]
    for outcome, path in zip(explain_each(model, paths), paths, strict=True):
        alone = camapp.explain(model, path)
        assert (outcome.status, outcome.reason, outcome.item.name) == ("done", "", path.name)
        assert outcome.explanation.classes == alone.classes
        np.testing.assert_array_equal(outcome.explanation.raw, alone.raw)
        assert 0 < outcome.explanation.seconds <= outcome.seconds


def test_a_bad_file_fails_with_its_reason_and_the_others_are_done(tiny: Any, pictures: list[Path]) -> None:
    pictures[1].write_bytes(b"no picture at all, only words")
    outcomes = list(explain_each(tiny, [*pictures, pictures[0].with_name("gone.png")]))
    assert [one.status for one in outcomes] == ["done", "failed", "done", "failed"]
    assert "is text, not a picture" in outcomes[1].reason
    assert "No such file" in outcomes[3].reason
    assert outcomes[1].explanation is None


def test_a_picture_that_claims_300_megapixels_is_refused_from_its_header(tiny: Any, tmp_path: Path) -> None:
    Image.new("1", (8, 8)).save(tmp_path / "a.png")
    data = bytearray((tmp_path / "a.png").read_bytes())
    data[16:24] = (20_000).to_bytes(4, "big") + (15_000).to_bytes(4, "big")
    (tmp_path / "a.png").write_bytes(data)
    [outcome] = explain_each(tiny, tmp_path / "a.png")
    assert outcome.status == "failed"
    assert outcome.reason


def test_one_class_may_be_asked_for_all_or_for_each(tiny: Any, pictures: list[Path]) -> None:
    assert [one.explanation.classes[0].label for one in explain_each(tiny, pictures, targets="bee")] == ["bee"] * 3
    own = list(explain_each(tiny, pictures, targets={"a.png": "dog", "b.png": "2", "x.png": "ant"}))
    assert [one.explanation.classes[0].label for one in own[:2]] == ["dog", "cat"]
    assert (own[2].status, own[2].reason) == ("failed", NO_CLASS)


def test_an_unknown_class_fails_one_picture_where_it_is_its_own_and_the_batch_where_it_is_all(
    tiny: Any, pictures: list[Path]
) -> None:
    outcomes = list(explain_each(tiny, pictures, targets={"a.png": "unicorn", "b.png": "dog", "c.png": "999"}))
    assert [one.status for one in outcomes] == ["failed", "done", "failed"]
    assert 'no class "unicorn"' in outcomes[0].reason
    with pytest.raises(TargetError, match="unicorn"):
        explain_each(tiny, pictures, targets="unicorn")


def test_what_no_picture_can_be_explained_with_is_refused_before_the_first(tiny: Any, pictures: list[Path]) -> None:
    with pytest.raises(LayerError, match="nowhere"):
        explain_each(tiny, pictures, layer="nowhere")
    with pytest.raises(UsageError, match="No method"):
        explain_each(tiny, pictures, method="tarot")
    with pytest.raises(UsageError, match="deadline"):
        explain_each(tiny, pictures, deadline=0)
    with pytest.raises(UsageError, match="fit"):
        explain_each(tiny, pictures, fit="squeeze")  # type: ignore[arg-type]


def test_once_it_is_cancelled_the_rest_is_left(tiny: Any, pictures: list[Path]) -> None:
    stop = threading.Event()
    statuses = []
    for outcome in explain_each(tiny, pictures, cancel=stop):
        statuses.append((outcome.status, outcome.reason))
        stop.set()
    assert statuses == [("done", ""), ("left", STOPPED), ("left", STOPPED)]


def test_a_method_of_many_runs_stops_in_the_middle_of_a_picture(tiny: Any, pictures: list[Path]) -> None:
    asked = itertools.count()
    explainer = PictureExplainer(tiny, method="scorecam")
    outcome = explainer.outcome(pictures_given(pictures).items[0], cancel=lambda: next(asked) > 0)
    assert (outcome.status, outcome.reason) == ("left", STOPPED)
    assert outcome.seconds > 0  # it had begun


def test_what_comes_after_the_deadline_is_left_and_says_so(tiny: Any, pictures: list[Path]) -> None:
    explainer = PictureExplainer(tiny, deadline=1e-9)
    outcome = explainer.outcome(pictures_given(pictures).items[0])
    assert (outcome.status, outcome.explanation) == ("left", None)
    assert outcome.reason == "The 1e-09 s for the whole batch were over before it was done."


def test_pictures_of_an_archive_are_explained_from_where_they_lie(tiny: Any, pictures: list[Path]) -> None:
    archive = pictures[0].with_name("z.zip")
    with zipfile.ZipFile(archive, "w") as packed:
        for path in pictures:
            packed.write(path, f"set/{path.name}")
    outcomes = list(explain_each(tiny, pictures_given([archive]).items))
    alone = camapp.explain(tiny, pictures[1])
    assert [one.item.name for one in outcomes] == ["set/a.png", "set/b.png", "set/c.png"]
    np.testing.assert_array_equal(outcomes[1].explanation.raw, alone.raw)
