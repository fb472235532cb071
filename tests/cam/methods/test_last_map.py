"""The last map before pooling and a linear head: where CAM lives, and where other methods become it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from camapp.backbones.load import LoadedModel
from camapp.cam import GradCAM
from camapp.cam.engine import Method
from camapp.cam.methods.cam import CAM
from camapp.cam.methods.products import HiResCAM
from camapp.cam.methods.xgradcam import XGradCAM
from camapp.cam.targets import ClassDifference, ClassProbability
from camapp.errors import CamappError, LayerError, OutputError, TargetError
from camapp.loading import load_model
from tests.cam.methods.layer_methods import Rectified, Tokens


@pytest.fixture(scope="module")
def lite() -> LoadedModel:
    return load_model("efficientnet_lite0")


def assert_alike(cam: torch.Tensor, other: torch.Tensor) -> None:
    """Equal up to the number of places, over which the others average."""
    places = cam[0, 0].numel()
    assert (cam / places - other).abs().max() <= 1e-6 * (cam / places).abs().max()


@pytest.mark.parametrize("method", [GradCAM, XGradCAM, HiResCAM])
def test_gradient_methods_become_cam_there(method: type[Method]) -> None:
    model, inputs, classes = Rectified().eval(), torch.randn(2, 3, 20, 12), [[0, 4], [3, 1]]
    assert_alike(CAM(model, "late")(inputs, classes).raw, method(model, "late")(inputs, classes).raw)


@pytest.mark.parametrize("method", [GradCAM, XGradCAM, HiResCAM])
def test_gradient_methods_become_cam_on_the_embedded_model(lite: LoadedModel, method: type[Method]) -> None:
    inputs, classes = torch.randn(2, 3, 224, 224), [[281, 285], [1, 999]]
    assert_alike(CAM(lite)(inputs, classes).raw, method(lite, "bn2")(inputs, classes).raw)


def test_the_mean_of_cam_plus_the_bias_is_the_logit(lite: LoadedModel) -> None:
    inputs, classes = torch.randn(2, 3, 224, 224), [[281, 285], [1, 999]]
    result = CAM(lite)(inputs, classes)
    logits = lite.module(inputs).detach().double().gather(1, torch.tensor(classes))
    found = result.raw.double().mean((2, 3)) + lite.module.classifier.bias.detach().double()[torch.tensor(classes)]
    assert (found - logits).abs().max() <= 2e-6 * logits.abs().max()


class Convolved(nn.Module):
    """Classifies by a 1x1 convolution of the pooled map."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv2d(3, 6, 3)
        self.head = nn.Conv2d(6, 4, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x).mean((2, 3), keepdim=True)).flatten(1)


def test_a_pointwise_convolution_is_a_head_too() -> None:
    model, inputs = Convolved().eval(), torch.randn(2, 3, 9, 9)
    result = CAM(model, "body")(inputs, 2)
    wanted = torch.einsum("c,nchw->nhw", model.head.weight[2, :, 0, 0], model.body(inputs))
    torch.testing.assert_close(result.raw, wanted.detach())


def test_the_head_is_found_among_layers_of_the_same_shape() -> None:
    """An auxiliary head of the same shape, registered last, is not taken for the head."""
    model = Rectified().eval()
    model.auxiliary = nn.Linear(8, 5)
    inputs = torch.randn(1, 3, 16, 16)
    assert_alike(CAM(model, "late")(inputs, [[1]]).raw, GradCAM(model, "late")(inputs, [[1]]).raw)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_models_of_another_precision_have_a_cam(dtype: torch.dtype) -> None:
    model, inputs = Rectified().eval(), torch.randn(2, 3, 20, 12)
    wanted = CAM(model, "late")(inputs, 3).raw
    found = CAM(model.to(dtype), "late")(inputs, 3).raw
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, wanted, rtol=0, atol=0.05 * float(wanted.abs().max()))


class SquaredMean(Rectified):
    """Something lies between the mean and the head."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.late(self.last(self.early(self.stem(x)))).flatten(2).mean(2) ** 2)


class MaxPooled(Rectified):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.late(self.last(self.early(self.stem(x)))).flatten(2).amax(2))


class Softmaxed(Rectified):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).softmax(1)


class Headless(Rectified):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.late(self.last(self.early(self.stem(x)))).flatten(2).mean(2)


class Segmenting(Rectified):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.late(self.last(self.early(self.stem(x))))


@pytest.mark.parametrize(
    ("make", "layer", "target", "error", "message"),
    [
        (Rectified, "early", 0, LayerError, r'"early" has 6 channels, and the linear head takes 8 \("head"\)'),
        (Rectified, "last", 0, LayerError, 'mean of "last" over its places, times the weights of "head", is not'),
        (SquaredMean, "late", 0, LayerError, "something lies between them"),
        (MaxPooled, "late", 0, LayerError, "another pooling"),
        (Softmaxed, "late", 0, LayerError, "a nonlinearity"),
        (Headless, "late", 0, LayerError, "no linear head: no nn.Linear or 1x1 convolution with 8 outputs"),
        (Segmenting, "late", 0, OutputError, "class scores"),
        (Rectified, "late", ClassProbability(1), TargetError, "asked for is probability of class 1"),
        (Rectified, "late", ClassDifference(1), TargetError, "asked for is class 1 against"),
        (Rectified, "late", lambda row: row.sum(), TargetError, "score of a class alone"),
    ],
)
def test_cam_is_refused_with_the_reason_where_there_is_none(
    make: Callable[[], nn.Module], layer: str, target: object, error: type[CamappError], message: str
) -> None:
    with pytest.raises(error, match=message):
        CAM(make().eval(), layer)(torch.randn(2, 3, 16, 16), target)


def test_broken_weights_are_named_and_not_taken_for_another_network() -> None:
    model = Rectified().eval()
    with torch.no_grad():
        model.stem.weight[0, 0, 0, 0] = float("nan")
    result = CAM(model, "late")(torch.randn(1, 3, 16, 16), 0)
    assert result.reasons[0].startswith("not finite")
    assert '"stem.weight" holds NaN' in result.reasons[0]


@given(first=st.floats(-3, 3), second=st.floats(-3, 3), seed=st.integers(0, 100))
@settings(max_examples=15, deadline=None)
@pytest.mark.parametrize(
    ("method", "layer"), [(CAM, "late"), (GradCAM, "early"), (XGradCAM, "early"), (HiResCAM, "early")]
)
def test_raw_maps_are_linear_in_the_weights_of_the_head(
    method: type[Method], layer: str, first: float, second: float, seed: int
) -> None:
    torch.manual_seed(seed)
    model, inputs = Rectified().eval(), torch.randn(2, 3, 12, 16)
    weights = torch.randn(3, 5, 8)
    weights[2] = first * weights[0] + second * weights[1]
    maps = []
    for weight in weights:
        with torch.no_grad():
            model.head.weight.copy_(weight)
        maps.append(method(model, layer)(inputs, 1).raw)
    torch.testing.assert_close(maps[2], first * maps[0] + second * maps[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("channels_last", [False, True])
def test_cam_of_tokens_and_of_channels_last_maps_equals_that_of_the_same_map(channels_last: bool) -> None:
    model, twin, inputs = Tokens(channels_last).eval(), Rectified().eval(), torch.randn(2, 3, 16, 32)
    twin.load_state_dict(model.state_dict())
    torch.testing.assert_close(CAM(model, "late")(inputs, [1, 2]).raw, CAM(twin, "late")(inputs, [1, 2]).raw)


def test_cam_may_be_part_of_a_graph() -> None:
    model, inputs = Rectified().eval(), torch.randn(2, 3, 16, 16)
    raw = CAM(model, "late")(inputs, 1, create_graph=True, normalize=None, sign="both").raw
    found = torch.autograd.grad(raw.square().sum(), [model.head.weight, model.stem.weight])
    activation = model.late(model.last(model.early(model.stem(inputs))))
    wanted = torch.einsum("c,nchw->nhw", model.head.weight[1], activation)
    expected = torch.autograd.grad(wanted.square().sum(), [model.head.weight, model.stem.weight])
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
