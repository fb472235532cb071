"""The methods' formulas against numbers worked out on paper."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from camapp.cam import GradCAM
from camapp.cam.methods.eigen import EigenCAM, EigenGradCAM
from camapp.cam.methods.fem import FEM
from camapp.cam.methods.plusplus import GradCAMPlusPlus, averaged_map
from camapp.cam.methods.products import ElementWise, HiResCAM, LayerCAM
from camapp.cam.methods.shapleycam import ShapleyCAM
from camapp.cam.methods.xgradcam import XGradCAM
from camapp.cam.targets import ResidualScore
from tests.cam.methods.layer_methods import OneConv, Seen

CONV = torch.tensor([[[-5.0, 4.0], [31.0, 40.0]], [[-30.0, -21.0], [6.0, 15.0]]])
RELU = CONV.clamp(min=0)


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize(
    ("method", "layer", "wanted"),
    [
        # mean gradients .75 and -.5; behind the ReLU 1 and -.5: the figures in captum's own tests
        (GradCAM, "conv1", torch.tensor([[11.25, 13.5], [20.25, 22.5]])),
        (GradCAM, "relu1", torch.tensor([[0.0, 4.0], [28.0, 32.5]])),
        (ShapleyCAM, "conv1", torch.tensor([[11.25, 13.5], [20.25, 22.5]])),  # no curvature behind conv1
        (HiResCAM, "conv1", torch.tensor([[0.0, 4.0], [25.0, 25.0]])),
        (ElementWise, "conv1", torch.tensor([[0.0, 4.0], [31.0, 40.0]])),
        (LayerCAM, "conv1", torch.tensor([[0.0, 4.0], [31.0, 40.0]])),
        (LayerCAM, "relu1", torch.tensor([[0.0, 4.0], [31.0, 40.0]])),  # and 0 * 1 of the other channel
        (XGradCAM, "conv1", 75 / 70 * CONV[0] + 21 / 30 * CONV[1]),
        (XGradCAM, "relu1", RELU[0] - RELU[1]),
        # three gradients of 1 in the first channel, each with the share 1 / (2 + 70); none in the second
        (GradCAMPlusPlus, "conv1", 3 / 72 * CONV[0]),
        # four with the share 1 / (2 + 75), and one with 1 / (2 + 21)
        (GradCAMPlusPlus, "relu1", 4 / 77 * RELU[0] + 1 / 23 * RELU[1]),
    ],
)
def test_maps_of_a_network_worked_out_on_paper(
    method: type, layer: str, wanted: torch.Tensor, inplace: bool, frozen: bool
) -> None:
    model = OneConv(inplace).eval().requires_grad_(not frozen)
    result = method(model, layer)(torch.arange(16.0).view(1, 1, 4, 4), 0)
    torch.testing.assert_close(result.raw[0], wanted, rtol=1e-5, atol=1e-5)


def test_channels_contribute_what_captum_finds() -> None:
    gradient = torch.tensor([[[0.0, 1.0], [1.0, 1.0]], [[0.0, 0.0], [-1.0, -1.0]]])
    found = GradCAM(nn.Conv2d(1, 1, 1)).weigh(CONV[None], gradient[None])[0]
    wanted = torch.tensor([[[-3.75, 3.0], [23.25, 30.0]], [[15.0, 10.5], [-3.0, -7.5]]])
    torch.testing.assert_close(found, wanted)


# xplique's four channels: full, half, zero, and one small value.
ACTIVATION = torch.tensor(
    [[[1.0, 1.0], [1.0, 1.0]], [[1.0, 1.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]], [[0.5, 0.0], [0.0, 0.0]]]
)[None]


def test_weights_of_xpliques_channels() -> None:
    ones = torch.ones_like(ACTIVATION)
    grad_cam = GradCAM(nn.Conv2d(1, 1, 1)).weigh(ones, ACTIVATION)[0, :, 0, 0]
    torch.testing.assert_close(grad_cam, torch.tensor([1.0, 0.5, 0.0, 0.125]))
    # 4 of 1 / (2 + 4); 2 of 1 / (2 + 2); none; .25 / (.5 + .5 * .125) of .5. xplique has means for the paper's sums.
    plus_plus = GradCAMPlusPlus(nn.Conv2d(1, 1, 1)).weights(ACTIVATION, ACTIVATION)[0]
    torch.testing.assert_close(plus_plus, torch.tensor([2 / 3, 1 / 2, 0.0, 2 / 9]))


def test_grad_cam_plus_plus_of_one_channel_step_by_step() -> None:
    activation = torch.tensor([[[[1.0, 2.0], [0.0, 1.0]]]], dtype=torch.float64)  # sums to 4
    gradient = torch.tensor([[[[1.0, -1.0], [0.5, 0.0]]]], dtype=torch.float64)
    first = 1.0**2 / (2 * 1.0**2 + 4 * 1.0**3)  # 1/6
    third = 0.5**2 / (2 * 0.5**2 + 4 * 0.5**3)  # 1/4; the negative gradient is cut off, and zero has no share
    weight = first * 1.0 + third * 0.5
    assert weight == pytest.approx(7 / 24, abs=1e-15)
    found = GradCAMPlusPlus(nn.Conv2d(1, 1, 1)).combine(activation, gradient)
    torch.testing.assert_close(found, weight * activation[:, 0], rtol=1e-14, atol=0)


def test_grad_cam_plus_plus_has_no_share_where_its_denominator_is_zero() -> None:
    activation = torch.tensor([[[[-1.0, -3.0]]]], dtype=torch.float64)
    gradient = torch.tensor([[[[0.5, 0.25]]]], dtype=torch.float64)  # 2 * .25 - 4 * .125 = 0, and .25 / (2 - 1)
    found = GradCAMPlusPlus(nn.Conv2d(1, 1, 1)).weights(activation, gradient)
    torch.testing.assert_close(found, torch.tensor([[0.25]], dtype=torch.float64), rtol=1e-14, atol=0)


def test_grad_cam_plus_plus_sees_the_smallest_gradients() -> None:
    """Their third power is 0 in float32, and less than grad-cam's 1e-6 long before."""
    activation = torch.tensor([[[[1.0, 2.0], [0.0, 1.0]]]])
    gradient = torch.full((1, 1, 2, 2), 1e-18)
    found = GradCAMPlusPlus(nn.Conv2d(1, 1, 1)).weights(activation, gradient)
    torch.testing.assert_close(found, torch.tensor([[4 * 1e-18 / 2]]), rtol=1e-6, atol=0)


@pytest.mark.parametrize("scale", [1.0, 1e-15])
def test_smooth_grad_cam_plus_plus_averages_the_powers_of_the_gradient(scale: float) -> None:
    activation = torch.tensor([[[[1.0, 3.0]]]], dtype=torch.float64)
    gradients = scale * torch.tensor([[[[[1.0, -1.0]]]], [[[[3.0, 0.5]]]]], dtype=torch.float64)
    # first place: D1 = 2, D2 = 5, D3 = 14; second: D1 = -.25, which is cut off
    weight = 5 * scale**2 / (2 * 5 * scale**2 + 4 * 14 * scale**3) * 2 * scale
    found = averaged_map(activation, gradients)
    torch.testing.assert_close(found, weight * activation[:, 0], rtol=1e-12, atol=0)
    wanted = averaged_map(activation.float(), gradients.float())
    torch.testing.assert_close(wanted.double(), found, rtol=1e-5, atol=0)


def test_xgradcam_leaves_out_a_channel_whose_activations_cancel() -> None:
    activation = torch.tensor([[[[0.1, 0.6, -0.7]], [[1.0, 2.0, 1.0]]]])
    assert activation[0, 0].sum() != 0  # but a rounding error
    gradient = torch.tensor([[[[1.0, 1.0, 0.0]], [[2.0, 0.0, 0.0]]]])
    found = XGradCAM(nn.Conv2d(1, 1, 1)).combine(activation, gradient)
    torch.testing.assert_close(found, 2 / 4 * activation[:, 1])


def test_fem_sums_the_means_of_channels_where_they_are_rare() -> None:
    first = torch.zeros(10)
    first[3] = 10.0  # mean 1, deviation 3: above 1 + 2 * 3
    second = torch.tensor([0.0, 4.0] * 5)  # mean 2, deviation 2: never above 6
    constant = torch.full((10,), 0.3)
    activation = torch.stack([first, second, constant])[None, :, None]
    found = FEM(nn.Conv2d(1, 1, 1)).combine(activation)[0, 0]
    torch.testing.assert_close(found, first / 10)
    barely = FEM(nn.Conv2d(1, 1, 1), k=2.9).combine(activation)[0, 0]  # 9.7; not of a sample, which deviates by 3.16
    torch.testing.assert_close(barely, first / 10)
    lower = FEM(nn.Conv2d(1, 1, 1), k=0.5).combine(activation)[0, 0]  # the second channel above 3
    torch.testing.assert_close(lower, first / 10 + second / 2)


def test_eigencam_of_a_layer_of_rank_one_is_its_pattern() -> None:
    pattern = torch.tensor([[0.0, 1.0], [2.0, 5.0]])
    activation = (torch.tensor([3.0, -4.0])[:, None, None] * pattern)[None]  # the channels' vector has length 5
    model = nn.Conv2d(1, 1, 1)
    torch.testing.assert_close(EigenCAM(model, centre=False).combine(activation)[0], 5 * pattern)
    torch.testing.assert_close(EigenCAM(model).combine(activation)[0], 5 * (pattern - 2))
    # Of the class it is positive where the sum is, here 3 - 4 = -1 times the pattern.
    against = EigenGradCAM(model, centre=False).combine(activation, torch.ones_like(activation))[0]
    torch.testing.assert_close(against, -5 * pattern)


class Quadratic(Seen):
    """y = b A + A Q A / 2 of what it is given, one number a channel."""

    def __init__(self) -> None:
        super().__init__()
        spread = torch.randn(4, 3, 3)
        self.matrix = nn.Parameter(spread + spread.mT)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.seen(x).flatten(2).sum(2)
        return self.head(x) + torch.einsum("nc,kcd,nd->nk", x, self.matrix, x) / 2


def test_shapleycam_shares_out_what_a_quadratic_network_gains_over_nothing() -> None:
    model, inputs = Quadratic(), torch.randn(2, 3, 2, 4)
    result = ShapleyCAM(model, "seen")(inputs, [[0, 3], [1, 2]])
    gain = (model(inputs) - model(torch.zeros_like(inputs))).gather(1, result.targets).detach()
    torch.testing.assert_close(result.raw.sum((2, 3)), gain, rtol=1e-4, atol=1e-4)


def test_shapleycam_follows_its_formula_with_the_hessian_written_out() -> None:
    model, inputs = Seen(bias=3.0).double(), torch.rand(1, 3, 3, 2, dtype=torch.float64)

    def score(x: torch.Tensor) -> torch.Tensor:
        logits = model(x.view(1, 3, 3, 2))[0]
        return logits[1] + logits.log_softmax(0)[1]

    flat = inputs.flatten()
    gradient = torch.autograd.functional.jacobian(score, flat)
    hessian = torch.autograd.functional.hessian(score, flat)
    weights = (gradient - hessian @ flat / 2).view(3, 6).mean(1)
    assert (hessian @ flat).abs().max() > 1e-3
    result = ShapleyCAM(model, "seen")(inputs, ResidualScore(1))
    wanted = (weights[:, None, None] * inputs[0]).sum(0)
    torch.testing.assert_close(result.raw[0].double(), wanted, rtol=1e-5, atol=1e-7)


def test_a_place_where_grad_cam_plus_plus_divides_by_a_rounding_error_counts_nothing() -> None:
    """The channel sums to -20, and the first place's gradient makes 2 - 20 g a few units in the last place."""
    activation = torch.tensor([10.0, -15.0, 5.0, -20.0]).view(1, 1, 2, 2)
    swamps = 0.1 * (1 + 2**-22)
    gradient = torch.tensor([swamps, 0.2, 0.0, -0.3]).view(1, 1, 2, 2)
    assert 0 < abs(2 - 20 * float(gradient[0, 0, 0, 0])) < 1e-6
    weight = 0.2 / (2 - 20 * 0.2)
    engine = GradCAMPlusPlus(OneConv(), "conv1")
    torch.testing.assert_close(engine.weights(activation, gradient), torch.tensor([[weight]]))
    torch.testing.assert_close(averaged_map(activation, gradient[None]), weight * activation[:, 0])
