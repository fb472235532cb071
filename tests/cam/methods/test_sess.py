"""SESS: windows, their weights, and how their maps are put together."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import pytorch_grad_cam
import torch
from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget

from camapp.cam import GradCAM
from camapp.cam.methods.products import LayerCAM
from camapp.cam.methods.sess import SESS
from camapp.errors import StoppedError, TargetError, UsageError
from tests.networks import Segmenter, Signals, Staged


def of_grad_cam(model: Staged, inputs: torch.Tensor, classes: list[int], **options: object) -> np.ndarray:
    with pytorch_grad_cam.SESS(model=model, target_layers=[model.last], **options) as engine:  # type: ignore[arg-type]
        return engine(inputs, [ClassifierOutputTarget(one) for one in classes])


@pytest.mark.parametrize("options", [{}, {"theta": 0.2}, {"pool": "max"}, {"prefilter": 0.5}, {"blur": False}])
def test_maps_are_those_of_grad_cams_sess(options: dict[str, object]) -> None:
    model, inputs = Staged().eval(), torch.randn(2, 3, 28, 28)
    names = {"prefilter": "pre_filter_ratio", "blur": "smooth"}
    theirs = of_grad_cam(model, inputs, [1, 4], num_scales=4, **{names.get(k, k): v for k, v in options.items()})
    ours = SESS(model, "last", scales=4, **options)(inputs, [1, 4])  # type: ignore[arg-type]
    np.testing.assert_allclose(ours.maps.numpy(), theirs, rtol=0, atol=2e-4)


def test_a_single_window_is_the_bases_map_on_either_side() -> None:
    model, inputs = Staged().eval(), torch.randn(2, 3, 16, 24)
    engine, base = SESS(model, "last", scales=1, blur=False), GradCAM(model, "last")
    for sign in ("positive", "negative"):
        torch.testing.assert_close(engine(inputs, 2, sign=sign).maps, base(inputs, 2, sign=sign).maps)  # type: ignore[arg-type]


def test_windows_cover_every_place_of_every_size_and_end_at_its_border() -> None:
    windows = SESS(Staged(), "last", scales=12)._windows((224, 448))
    assert len({window.large for window in windows}) == 12
    for large in {window.large for window in windows}:
        covered = np.zeros(large, bool)
        for window in windows:
            if window.large == large:
                assert all(
                    0 <= at <= long - side for at, long, side in zip(window.start, large, (224, 448), strict=True)
                )
                covered[window.place] = True
        assert covered.all()
    square = SESS(Staged(), "last")._windows((224, 224))
    assert sorted({window.large[0] for window in square}) == [224 + 64 * number for number in range(12)]  # the paper's
    assert len(square) == 122


def test_the_place_of_an_object_that_one_window_shows_is_the_place_in_the_picture() -> None:
    model = Staged(2).eval()
    for part in (model.stem, model.middle, model.late, model.last):
        torch.nn.init.constant_(part[0].weight, 0.05)
        torch.nn.init.zeros_(part[0].bias)
    torch.nn.init.constant_(model.head.weight, 1.0)
    inputs = torch.zeros(1, 3, 32, 48)
    inputs[:, :, 20:26, 36:42] = 1.0  # the only bright place
    raw = SESS(model, "last", scales=6, blur=False)(inputs, 1).raw[0]
    row, column = divmod(int(raw.argmax()), 48)
    assert abs(row - 22.5) <= 4
    assert abs(column - 38.5) <= 4


def test_chunks_batches_and_several_classes_change_nothing() -> None:
    model, inputs = Staged().eval(), torch.randn(2, 3, 20, 28)
    engine = SESS(model, "last", scales=3, prefilter=0.3)
    together = engine(inputs, [[0, 3], [2, 1]])
    small = SESS(model, "last", scales=3, prefilter=0.3, batch_size=3)(inputs, [[0, 3], [2, 1]])
    torch.testing.assert_close(small.maps, together.maps, rtol=0, atol=1e-5)
    for row, classes in enumerate(([0, 3], [2, 1])):
        for k, one in enumerate(classes):
            alone = engine(inputs[row : row + 1], one)
            torch.testing.assert_close(alone.maps[0], together.maps[row, k], rtol=0, atol=1e-5)


def test_the_class_settled_on_the_picture_is_asked_of_every_window() -> None:
    model, inputs = Staged().eval(), torch.randn(1, 3, 20, 20)
    engine = SESS(model, "last", scales=3)
    top = engine(inputs)
    assert top.targets.tolist() == model(inputs).argmax(1).tolist()
    torch.testing.assert_close(top.scores, model(inputs).max(1).values.detach())
    assert torch.equal(top.maps, engine(inputs, top.targets.tolist()).maps)


def test_a_base_of_several_layers_and_signals() -> None:
    model, inputs = Staged().eval(), torch.randn(1, 3, 20, 20)
    single = SESS(model, ["middle", "last"], base=LayerCAM, scales=1, blur=False)(inputs, 1)
    torch.testing.assert_close(single.maps, LayerCAM(model, ["middle", "last"])(inputs, 1).maps)
    signal = SESS(Signals().eval(), "late", scales=3)(torch.randn(2, 2, 40), 1)
    assert signal.maps.shape == (2, 40)
    assert signal.reasons == [None, None]


@pytest.mark.parametrize("prefilter", [0.0, 0.6])
def test_progress_counts_the_windows_scored_and_explained(prefilter: float) -> None:
    told: list[tuple[int, int]] = []
    engine = SESS(Staged(), "last", scales=3, prefilter=prefilter, batch_size=4)
    engine(torch.randn(2, 3, 16, 16), 1, progress=lambda done, total: told.append((done, total)))
    expected = 2 * 2 * len(engine._windows((16, 16)))
    assert told[-1] == (expected, expected)
    assert {total for _, total in told} == {expected}


def test_it_stops_when_asked() -> None:
    stop = threading.Event()
    with pytest.raises(StoppedError):
        SESS(Staged(), "last", batch_size=2)(
            torch.randn(1, 3, 16, 16), 1, cancel=stop, progress=lambda done, total: stop.set()
        )


def test_outputs_with_places_and_wrong_options_are_refused() -> None:
    with pytest.raises(TargetError, match="vector for each picture"):
        SESS(Segmenter(), "body")(torch.randn(1, 3, 16, 16), 1)
    for options in (
        {"scales": 0},
        {"step": 0.0},
        {"prefilter": 1.0},
        {"theta": 1.0},
        {"pool": "sum"},
        {"batch_size": 0},
    ):
        with pytest.raises(UsageError, match=next(iter(options))):
            SESS(Staged(), "last", **options)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="cannot be differentiated"):
        SESS(Staged(), "last")(torch.randn(1, 3, 16, 16), 1, create_graph=True)
