"""The page's parts by themselves, without a server."""

from __future__ import annotations

import os
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from camapp.backbones.load import LoadedModel
from camapp.errors import ModelError, UsageError, WeightsError
from camapp.explainer import explain
from camapp.explanation import Explanation
from camapp.features import FeatureExtractor
from camapp.features.probe import fit_probe
from camapp.features.saved import ProbeSettings, save_probe
from camapp.images.geometry import Geometry
from camapp.loading import load_model
from camapp.ui.environment import KEPT_SECONDS, new_result_folder, private_folder, refuse_vibe_mode, sweep
from camapp.ui.explain.choices import Choices, Explained, explain_choices
from camapp.ui.explain.downloads import keep_explanation
from camapp.ui.explain.viewer import LONGEST_SIDE, view_of
from camapp.ui.frame import kept as kept_room
from camapp.ui.frame import models as pool_room
from camapp.ui.frame import results as results_room
from camapp.ui.frame.messages import UNEXPECTED, worded
from camapp.ui.frame.models import ModelPool
from camapp.ui.frame.results import Results
from camapp.ui.frame.samples import SAMPLES, sample_path
from camapp.ui.frame.scheduler import Task
from camapp.ui.frame.uploads import uploaded
from camapp.ui.frame.words import percent
from camapp.ui.guard import content_security_policy
from tests.ui.served import ASSETS


@pytest.fixture(scope="module")
def explanation(pool: ModelPool) -> Explanation:
    return explain(pool.load("efficientnet_lite0"), ASSETS / "chelsea.jpg")


def explain_now(pool: ModelPool, *values: Any, **options: Any) -> Explained:
    """Explain choices at once, without a queue."""
    return explain_choices(pool, Choices(*values, **options), Task(lambda task: None, "test"))


def test_the_private_folder_is_this_users_alone_and_is_the_one_gradio_uses() -> None:
    assert stat.S_IMODE(private_folder().stat().st_mode) == 0o700
    assert os.environ["GRADIO_TEMP_DIR"] == str(private_folder())


def test_what_is_past_its_time_is_swept_away_and_samples_stay() -> None:
    old, young, upload = new_result_folder(), new_result_folder(), private_folder() / "a1b2" / "cat.png"
    sample = Path(sample_path("chelsea.jpg"))
    upload.parent.mkdir()
    for path in (old / "heatmap.png", young / "heatmap.png", upload):
        path.touch()
    past = time.time() - KEPT_SECONDS - 1
    for path in (old / "heatmap.png", old, upload, upload.parent, sample, sample.parent):
        os.utime(path, (past, past))
    sweep()
    sweep()  # a folder is younger once its files are deleted
    assert not (old / "heatmap.png").exists()
    assert not upload.exists()
    assert (young / "heatmap.png").exists()
    assert sample.exists()


def test_vibe_mode_is_refused_before_anything_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADIO_VIBE_MODE", "1")
    with pytest.raises(UsageError, match="GRADIO_VIBE_MODE is set"):
        refuse_vibe_mode()


def test_only_files_below_the_private_folder_pass_for_uploads(tmp_path: Path) -> None:
    upload = private_folder() / "abc" / "cat.png"
    upload.parent.mkdir(exist_ok=True)
    upload.touch()
    assert uploaded(str(upload)) == upload
    outside = tmp_path / "cat.png"
    outside.touch()
    link = upload.with_name("link.png")
    link.unlink(missing_ok=True)
    link.symlink_to(outside)
    for path in (outside, link, upload.parent / ".." / ".." / outside.name, f"{private_folder()}x/cat.png"):
        with pytest.raises(gr.Error, match="not uploaded"):
            uploaded(str(path))
    with pytest.raises(gr.Error, match="no longer on the server"):
        uploaded(str(upload.with_name("gone.png")))


def test_samples_are_known_by_name_only() -> None:
    for sample in SAMPLES:
        assert Path(sample_path(sample.file)).read_bytes() == (ASSETS / sample.file).read_bytes()
    for name in ("../../etc/passwd", "nothing.jpg", 3):
        with pytest.raises(UsageError, match="no sample picture"):
            sample_path(name)  # type: ignore[arg-type]


def test_a_sample_that_many_ask_for_at_once_is_whole_for_each() -> None:
    whole = (ASSETS / "chelsea.jpg").read_bytes()
    for _ in range(20):
        Path(sample_path("chelsea.jpg")).unlink()
        start = threading.Barrier(8)

        def read(start: threading.Barrier = start) -> bytes:
            start.wait()
            return Path(sample_path("chelsea.jpg")).read_bytes()

        with ThreadPoolExecutor(8) as pool:
            contents = [answer.result() for answer in [pool.submit(read) for _ in range(8)]]
        assert contents == [whole] * 8
    assert [path.name for path in (private_folder() / "samples").iterdir() if path.name.startswith(".")] == []


def test_the_pool_offers_models_with_weights_and_knows_the_others(pool: ModelPool) -> None:
    assert [card.name for card in pool.cards][:3] == [f"efficientnet_lite{number}" for number in range(3)]
    assert not {card.name for card in pool.cards} & {card.name for card in pool.missing}
    with pytest.raises(ModelError, match=r"Did you mean efficientnet_lite\d"):
        pool.load("efficientnet_lite9")


def test_the_pool_loads_a_model_once_and_forgets_the_one_used_longest_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_room, "MOST_LOADED", 2)
    pool = ModelPool(device="cpu")
    first = pool.load("efficientnet_lite0")
    pool.load("efficientnet_lite1")
    assert pool.load("efficientnet_lite0") is first
    pool.load("efficientnet_lite2")
    assert pool.is_loaded("efficientnet_lite0")
    assert not pool.is_loaded("efficientnet_lite1")


def test_a_first_model_without_weights_is_refused_with_the_way_to_get_them() -> None:
    with pytest.raises(WeightsError, match="weights of vgg16 are not on this machine"):
        ModelPool(default="vgg16")
    with pytest.raises(ModelError, match='No model "vgg61"'):
        ModelPool(default="vgg61")


def test_a_trained_classifier_is_on_offer_beside_the_cards(tmp_path: Path) -> None:
    backbone = load_model(device="cpu")
    inputs = torch.randn(4, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    features = FeatureExtractor(backbone)(inputs)["penultimate"].numpy()
    probe = fit_probe(features, ["hat", "shoe"] * 2, C=1.0)
    path = save_probe(tmp_path / "mine.camapp", probe, backbone, ProbeSettings(), {})
    pool = ModelPool(default=str(path), device="cpu")
    assert pool.default == "mine"
    assert pool.labels("mine") == ("hat", "shoe")
    assert [card.name for card in pool.cards][:2] == ["mine", "efficientnet_lite0"]
    assert next(layer.name for layer in pool.layers("mine") if layer.recommended) == "backbone.bn2"
    assert pool.labels("efficientnet_lite0")[0] == "tench"
    assert predictions(pool.load("mine"), inputs) == set(pool.labels("mine"))


def predictions(model: LoadedModel, inputs: torch.Tensor) -> set[str]:
    with torch.no_grad():
        return {model.labels[index] for index in model.module(inputs).argmax(1).tolist()}


def test_layers_have_maps_come_deepest_first_and_one_is_recommended(pool: ModelPool) -> None:
    layers = pool.layers("efficientnet_lite0")
    assert all(layer.grid for layer in layers)
    assert [layer.name for layer in layers if layer.recommended] == ["bn2"]
    names = [layer.name for layer in layers]
    assert names.index("bn2") < names.index("blocks.4.2.conv_pwl") < names.index("conv_stem")


@pytest.mark.parametrize("target", [-1, "-1", "", None])
def test_no_class_means_the_top_prediction(pool: ModelPool, target: Any) -> None:
    found = explain_now(pool, str(ASSETS / "chelsea.jpg"), "efficientnet_lite0", target=target)
    assert found.explanation.classes[0].label == "tiger cat"


@given(width=st.integers(1, 4000), height=st.integers(1, 4000), factor=st.floats(0.05, 1), left=st.floats(-50, 500))
def test_a_preview_shows_the_same_part_of_the_picture_as_seen(
    width: int, height: int, factor: float, left: float
) -> None:
    geometry = Geometry(
        (width, height), (224, 224), min(left, width / 2), height / 10, width / 300, height / 300, "crop"
    )
    size = max(1, round(width * factor)), max(1, round(height * factor))
    small = geometry.scaled_to(size)
    shares = np.array(geometry.seen) / [width, height, width, height]
    np.testing.assert_allclose(np.array(small.seen) / [*size, *size], shares, atol=1e-9)


def test_the_preview_of_a_picture_that_fits_is_at_its_own_size(explanation: Explanation) -> None:
    view = view_of(explanation, "token")
    assert max(view["size"]) <= LONGEST_SIDE
    assert view["size"] == view["original"] == (451, 300)
    assert tuple(view["maps"][0]["peak"]) == explanation.peak()
    rows, columns = explanation.geometry.seen_pixels
    assert view["seen"] == [columns.start, rows.start, columns.stop, rows.stop]


def test_results_are_found_by_token_until_there_are_too_many(
    explanation: Explanation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results_room, "MOST_KEPT", 2)
    results = Results()
    tokens = [keep_explanation(results, explanation) for _ in range(3)]
    assert [results.holds(token) for token in tokens] == [False, True, True]
    assert len(set(tokens)) == 3


def test_results_are_given_up_when_their_pictures_take_too_much_memory(
    explanation: Explanation, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = explanation.picture.rgb.nbytes + 4 * explanation.picture.rgb[..., 0].size  # a map of its size too
    monkeypatch.setattr(results_room, "MOST_BYTES", 2 * held)
    results = Results()
    tokens = [keep_explanation(results, explanation) for _ in range(4)]
    assert [results.holds(token) for token in tokens] == [False, False, True, True]


def test_results_go_when_their_time_is_over_even_if_nobody_asks_any_more(
    explanation: Explanation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_room, "KEPT_SECONDS", 0.6)
    results = Results()
    token = keep_explanation(results, explanation)
    assert results.holds(token)
    deadline = time.monotonic() + 10
    while results._kept and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not results._kept


@pytest.mark.parametrize(
    ("probability", "text"),
    [(0.0, "0.0%"), (0.0004, "< 0.1%"), (0.386, "38.6%"), (0.99999, "> 99.9%"), (1.0, "100.0%")],
)
def test_percentages_do_not_pretend_to_be_certain(probability: float, text: str) -> None:
    assert percent(probability) == text


def test_only_a_space_may_be_framed_and_only_by_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPACE_ID", raising=False)
    assert "frame-ancestors 'none'" in content_security_policy()
    monkeypatch.setenv("SPACE_ID", "someone/camapp")
    assert "frame-ancestors https://huggingface.co" in content_security_policy()


def test_what_nobody_expected_is_told_in_words_and_goes_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    message, shown = worded(RuntimeError("/secret/path"))
    assert message == UNEXPECTED == shown.message
    assert "/secret/path" in caplog.text
    message, shown = worded(UsageError("no <b>bold</b> words"))
    assert message == "no <b>bold</b> words"
    assert shown.message == "no &lt;b&gt;bold&lt;/b&gt; words"
