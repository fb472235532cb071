"""What sets two classes apart: numbers by hand, and Grad-CAM of the difference of the logits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from camapp.backbones.load import LoadedModel
from camapp.backbones.wrap import wrap_model
from camapp.cam.methods import GradCAM
from camapp.contrast import Contrast
from camapp.errors import UsageError
from camapp.explainer import explain
from camapp.images.render import diverging_colors, opacities


class _TwoMaps(nn.Module):
    """Two channels, the red and the green of the picture, pooled; class 0 likes red, class 1 green, class 2 red too."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Conv2d(3, 2, 1, bias=False)
        self.head = nn.Linear(2, 3, bias=False)
        with torch.no_grad():
            self.features.weight.copy_(torch.tensor([[1.0, 0, 0], [0, 1.0, 0]]).view(2, 3, 1, 1))
            self.head.weight.copy_(torch.tensor([[1.0, 0], [0, 1.0], [1.0, 0]]))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(inputs).mean((2, 3)))


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return wrap_model(_TwoMaps(), size=8, mean=(0, 0, 0), std=(1, 1, 1), labels=["red", "green", "rot"])


@pytest.fixture(scope="module")
def picture() -> np.ndarray:
    """Red on the left, half as much green on the right."""
    rgb = np.zeros((8, 8, 3), np.uint8)
    rgb[:, :4, 0] = 200
    rgb[:, 4:, 1] = 100
    return rgb


def test_what_speaks_for_a_is_positive_and_what_speaks_for_b_negative(model: LoadedModel, picture: np.ndarray) -> None:
    contrast = Contrast(explain(model, picture, targets=["red", "green"], layer="features"))
    expected = np.where(np.arange(8) < 4, 1.0, -0.5)  # 200 red against 100 green, the larger stretched to 1
    np.testing.assert_allclose(contrast.heatmap(), np.tile(expected, (8, 1)), atol=1e-6)
    assert contrast.label == "red − green"


def test_the_order_of_the_classes_is_the_sign(model: LoadedModel, picture: np.ndarray) -> None:
    explanation = explain(model, picture, targets=["red", "green"], layer="features")
    np.testing.assert_array_equal(Contrast(explanation, 1, 0).model_map, -Contrast(explanation, 0, 1).model_map)


def test_it_is_grad_cam_of_the_difference_of_the_logits() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 4)
    )
    model = wrap_model(network, size=16, mean=(0, 0, 0), std=(1, 1, 1), labels=list("abcd"))
    rgb = np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    contrast = Contrast(explain(model, rgb, targets=["a", "c"], layer="1"))
    inputs, _, _ = model.prepare(contrast.explanation.picture)
    by_gradient = GradCAM(network, "1")(inputs, lambda logits: logits[0] - logits[2], sign="both", normalize="max")
    np.testing.assert_allclose(contrast.model_map, by_gradient.maps[0].numpy(), atol=1e-5)


def test_classes_of_one_map_have_nothing_between_them_and_are_not_painted(
    model: LoadedModel, picture: np.ndarray
) -> None:
    contrast = Contrast(explain(model, picture, targets=["red", "rot"], layer="features"))
    assert contrast.reason is not None
    assert "same map" in contrast.reason
    np.testing.assert_array_equal(np.asarray(contrast.overlay()), picture)


def test_the_overlay_mixes_by_the_magnitude_in_orange_and_blue(model: LoadedModel, picture: np.ndarray) -> None:
    contrast = Contrast(explain(model, picture, targets=["red", "green"], layer="features"))
    painted = np.asarray(contrast.overlay(alpha=0.6, frame=False)).astype(float)
    orange, levels = diverging_colors()[255], 64
    np.testing.assert_allclose(painted[0, 0], picture[0, 0] * 0.4 + orange * 0.6, atol=0.51)
    weight = opacities(0.6, signed=True)[levels]
    np.testing.assert_allclose(
        painted[0, 7], picture[0, 7] * (1 - weight) + diverging_colors()[levels] * weight, atol=0.51
    )
    assert orange[0] > orange[2]
    assert diverging_colors()[0][2] > diverging_colors()[0][0]


def test_values_of_a_magnitude_below_the_threshold_are_left_as_they_are(
    model: LoadedModel, picture: np.ndarray
) -> None:
    contrast = Contrast(explain(model, picture, targets=["red", "green"], layer="features"))
    painted = np.asarray(contrast.overlay(hide_below=0.6, frame=False))
    np.testing.assert_array_equal(painted[:, 4:], picture[:, 4:])  # -0.5
    assert (painted[:, :4] != picture[:, :4]).any()


def test_signed_opacity_is_the_same_for_both_signs_and_none_at_zero() -> None:
    weights = opacities(0.7, signed=True)
    np.testing.assert_allclose(weights, weights[::-1])
    assert weights[0] == weights[255] == 0.7
    assert weights[127] == pytest.approx(0.7**5, rel=0.02)


@pytest.mark.parametrize(("a", "b"), [(0, 0), (0, 2), (-1, 0)])
def test_two_different_classes_are_needed(model: LoadedModel, picture: np.ndarray, a: int, b: int) -> None:
    with pytest.raises(UsageError, match="Explain two classes"):
        Contrast(explain(model, picture, targets=["red", "green"], layer="features"), a, b)


def test_its_files_hold_the_signed_map(model: LoadedModel, picture: np.ndarray, tmp_path: Path) -> None:
    contrast = Contrast(explain(model, picture, targets=["red", "green"], layer="features"))
    saved = contrast.save(tmp_path / "new", stem="both")
    assert [path.name for path in (saved.overlay, saved.heatmap, saved.values)] == [
        "both-difference.overlay.png",
        "both-difference.heatmap.png",
        "both-difference.npy",
    ]
    np.testing.assert_array_equal(np.load(saved.values), contrast.heatmap())
    with Image.open(saved.heatmap) as levels:
        assert np.asarray(levels)[0, [0, 7]].tolist() == [65535, round(0.25 * 65535)]
    with Image.open(saved.overlay) as painted:
        np.testing.assert_array_equal(np.asarray(painted), np.asarray(contrast.overlay()))
    with pytest.raises(UsageError, match="without folders"):
        contrast.save(tmp_path, stem="../out")
