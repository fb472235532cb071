"""Guided backpropagation and Guided Grad-CAM: against captum, hand-computed numbers and themselves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torchvision
from captum.attr import GuidedBackprop as CaptumGuidedBackprop
from captum.attr import GuidedGradCam as CaptumGuidedGradCam
from torch import nn
from torch.nn import functional as F

from camapp.cam.methods.gradcam import GradCAM
from camapp.cam.methods.guided import GuidedBackprop, GuidedGradCAM
from camapp.errors import LayerError, UsageError
from tests.hooks.test_as_found import assert_same, state
from tests.hooks.test_capture import hooks_on
from tests.networks import InPlaceAfter, Plain

pytestmark = pytest.mark.filterwarnings("ignore:Setting backward hooks on ReLU")


class OneConv(nn.Module):
    """The network of captum's own tests, whose numbers can be followed by hand; its ReLUs in one of three forms."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 2, 3)
        self.relu1 = nn.ReLU(inplace=form == "in place")
        self.fc1 = nn.Linear(8, 4)
        self.relu2 = nn.ReLU(inplace=form == "in place")
        self.functional = form == "functional"
        with torch.no_grad():
            self.conv1.weight.fill_(1.0)
            self.conv1.bias.copy_(torch.tensor([-50.0, -75.0]))
            self.fc1.weight.copy_(torch.tensor([1.0] * 5 + [-1.0] * 3).expand(4, 8))
            self.fc1.bias.zero_()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.functional:
            return F.relu(self.fc1(F.relu(self.conv1(x)).flatten(1)))
        return self.relu2(self.fc1(self.relu1(self.conv1(x)).flatten(1)))


class Residual(nn.Module):
    """One ReLU module for all places, in place or not, around a sum."""

    def __init__(self, in_place: bool) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, padding=1)
        self.one = nn.Conv2d(6, 6, 3, padding=1)
        self.two = nn.Conv2d(6, 6, 3, padding=1)
        self.relu = nn.ReLU(inplace=in_place)
        self.head = nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.relu(self.stem(x))
        y = self.two(self.relu(self.one(x)))
        y += x
        return self.head(self.relu(y).mean((2, 3)))


RAMP = torch.arange(16.0).view(1, 1, 4, 4)
# Three windows of the first channel are positive (all but the top left one), each passes 1 to its nine pixels; what the
# second channel gets from above is negative where it is positive itself. So: how many of the three hold each pixel.
BY_HAND = torch.tensor([[0.0, 1.0, 1.0, 1.0], [1.0, 3.0, 3.0, 2.0], [1.0, 3.0, 3.0, 2.0], [1.0, 2.0, 2.0, 1.0]])


@pytest.mark.parametrize("form", ["module", "in place", "functional"])
def test_the_guided_gradient_of_a_network_followed_by_hand(form: str) -> None:
    result = GuidedBackprop(OneConv(form).eval())(RAMP, 0)
    assert result.raw[0].tolist() == BY_HAND.tolist()
    assert result.notes == ()
    assert result.layer == ""


@pytest.mark.parametrize("form", ["module", "in place"])
def test_captums_figures_are_reached_with_its_nearest_interpolation(form: str) -> None:
    """The figures of captum's test: the guided gradient times [[0, 4], [28, 32.5]] at twice the size."""
    figures = torch.tensor([[0, 0, 4, 4], [0, 0, 12, 8], [28, 84, 97.5, 65], [28, 56, 65, 32.5]])
    model = OneConv(form).eval()
    cam = GradCAM(model, "relu1")(RAMP, 0).raw.clamp(min=0)
    guided = GuidedBackprop(model).gradients(RAMP, 0)[:, 0]
    assert (guided * F.interpolate(cam[:, None], size=(4, 4))[:, 0])[0].tolist() == figures.tolist()
    theirs = CaptumGuidedGradCam(model, model.relu1).attribute(RAMP, 0)
    assert theirs[0, 0].tolist() == figures.tolist()


@pytest.mark.parametrize("in_place", [False, True])
def test_a_residual_network_that_reuses_one_relu_equals_captum(in_place: bool) -> None:
    model, inputs = Residual(in_place).double().eval(), torch.randn(3, 3, 10, 14, dtype=torch.float64)
    classes = [4, 0, 2]
    theirs = CaptumGuidedBackprop(model).attribute(inputs.clone(), classes)
    ours = GuidedBackprop(model).gradients(inputs, classes)
    assert theirs.abs().max() > 0
    torch.testing.assert_close(ours.double(), theirs, rtol=1e-6, atol=1e-9)
    theirs = CaptumGuidedGradCam(model, model.two).attribute(inputs.clone(), classes, interpolate_mode="bilinear")
    torch.testing.assert_close(
        GuidedGradCAM(model, "two").gradients(inputs, classes).double(), theirs, rtol=1e-6, atol=1e-9
    )


def test_a_resnet_equals_captum() -> None:
    model, inputs = torchvision.models.resnet18(weights=None).eval(), torch.randn(1, 3, 64, 64)
    theirs = CaptumGuidedBackprop(model).attribute(inputs.clone(), 7)
    ours = GuidedBackprop(model)(inputs, 7).raw
    scale = theirs.abs().max()
    assert scale > 0
    assert (ours - theirs.sum(1)).abs().max() <= 1e-5 * scale


def test_functional_relus_are_guided_as_modules_are() -> None:
    """Captum sees modules only, so that its guided gradient of such a network is the plain one."""

    class Functional(Residual):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = F.relu(self.stem(x))
            y = self.two(torch.relu(self.one(x)))
            y += x
            return self.head(y.relu_().mean((2, 3)))

    model, inputs = Functional(False).eval(), torch.randn(2, 3, 10, 10)
    twin = Residual(False).eval()
    twin.load_state_dict(model.state_dict())
    ours = GuidedBackprop(model).gradients(inputs, 1)
    assert torch.equal(ours, GuidedBackprop(twin).gradients(inputs, 1))
    assert not torch.allclose(ours, CaptumGuidedBackprop(model).attribute(inputs.clone(), 1), atol=1e-4)


def test_guided_gradcam_is_the_product_with_the_positive_map_at_the_pictures_size() -> None:
    model, inputs = InPlaceAfter().eval(), torch.randn(2, 3, 20, 12)
    cam = GradCAM(model, "last")(inputs, 3, normalize=None).maps  # the positive part, resized
    guided = GuidedBackprop(model).gradients(inputs, 3)
    engine = GuidedGradCAM(model, "last")
    torch.testing.assert_close(engine.gradients(inputs, 3), guided * cam[:, None], rtol=1e-5, atol=1e-9)
    result = engine(inputs, 3)
    torch.testing.assert_close(result.raw, (guided * cam[:, None]).sum(1), rtol=1e-5, atol=1e-9)
    assert result.layer == "last"
    assert result.raw.abs().max() > 0


def test_guided_gradcam_without_a_layer_takes_the_recommended_one() -> None:
    assert GuidedGradCAM(Plain())(torch.randn(1, 3, 16, 16), 0).layer == "last"


@pytest.mark.parametrize("kind", [GuidedBackprop, lambda model: GuidedGradCAM(model, ["stem", "last"])])
def test_several_classes_and_a_batch_equal_one_by_one(kind: Any) -> None:
    model, inputs = InPlaceAfter().eval(), torch.randn(3, 3, 16, 12)
    classes = [[0, 2], [2, 2], [4, 1]]
    engine = kind(model)
    together, colours = engine(inputs, classes), engine.gradients(inputs, classes)
    assert colours.shape == (3, 2, 3, 16, 12)
    for row in range(3):
        for k in range(2):
            alone = engine(inputs[row : row + 1], classes[row][k])
            torch.testing.assert_close(together.raw[row, k], alone.raw[0], rtol=1e-5, atol=1e-7)
            torch.testing.assert_close(together.scores[row, k], alone.scores[0])
            one = engine.gradients(inputs[row : row + 1], classes[row][k])[0]
            torch.testing.assert_close(colours[row, k], one, rtol=1e-5, atol=1e-7)


def test_smooth_activations_are_told_of_and_a_network_without_any_too() -> None:
    smooth = nn.Sequential(nn.Conv2d(3, 4, 3), nn.SiLU(), nn.Conv2d(4, 4, 3), nn.GELU(), nn.Flatten(), nn.LazyLinear(3))
    inputs = torch.randn(1, 3, 8, 8)
    smooth(inputs)
    assert "at gelu, silu the negative part" in GuidedBackprop(smooth.eval())(inputs, 0).notes[0]
    linear = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 3)).eval()
    result = GuidedBackprop(linear)(inputs, 1)
    assert "plain gradient" in result.notes[0]
    leaf = inputs.clone().requires_grad_()
    (plain,) = torch.autograd.grad(linear(leaf)[0, 1], leaf)
    torch.testing.assert_close(result.raw, plain.sum(1))


def test_signals_and_volumes_are_explained() -> None:
    for kind, size in ((nn.Conv1d, (12,)), (nn.Conv3d, (4, 6, 8))):
        model = nn.Sequential(kind(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(3)).eval()
        inputs = torch.randn(2, 2, *size)
        model(inputs)
        theirs = CaptumGuidedBackprop(model).attribute(inputs.clone(), 1).sum(1)
        torch.testing.assert_close(GuidedBackprop(model)(inputs, 1).raw, theirs)


def test_bfloat16_gives_float32_maps_near_the_full_ones() -> None:
    model, inputs = Plain().eval(), torch.randn(2, 3, 32, 32)
    wanted = GuidedBackprop(model)(inputs, 1).raw
    result = GuidedBackprop(model.bfloat16())(inputs, 1)
    assert result.raw.dtype == torch.float32
    # A ReLU whose input is within rounding of zero may open or close, which moves its few pixels altogether.
    near = (result.raw - wanted).abs() <= 0.02 * wanted.abs().max()
    assert near.float().mean() >= 0.98


def test_a_score_that_does_not_depend_on_the_picture_is_told_of() -> None:
    model, inputs = Plain().eval(), torch.randn(1, 3, 16, 16)
    nn.init.zeros_(model.head.weight)
    for result in (GuidedBackprop(model)(inputs, 0), GuidedGradCAM(model, "last")(inputs, 0)):
        assert not result.maps.any()
        assert str(result.reasons[0]).startswith("no gradient")
    assert "choose another class" in str(GuidedBackprop(model)(inputs, 0).reasons[0])


class Frozen(Plain):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            x = self.last(self.stem(x))
        return self.head(F.relu(x).mean((2, 3)))


def test_a_model_that_cuts_the_way_back_and_a_layer_are_refused() -> None:
    with pytest.raises(LayerError, match="detaches or runs under its own no_grad"):
        GuidedBackprop(Frozen().eval())(torch.randn(1, 3, 16, 16), 0)
    with pytest.raises(UsageError, match="takes no layer"):
        GuidedBackprop(Plain(), "last")


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("target", [1, 99])
def test_the_model_is_left_as_found_also_on_errors(mode: Any, target: int) -> None:
    model = InPlaceAfter().train()
    model(torch.randn(2, 3, 16, 16)).sum().backward()
    grads = [parameter.grad.clone() for parameter in model.parameters()]  # type: ignore[union-attr]
    inputs = torch.randn(2, 3, 16, 16, requires_grad=True)
    with mode():
        before = state(model)
        for engine in (GuidedBackprop(model), GuidedGradCAM(model, "last")):
            if target == 1:
                engine(inputs, target)
                engine.gradients(inputs, target)
            else:
                with pytest.raises(ValueError, match="out of range"):
                    engine(inputs, target)
        assert_same(before, state(model))
    assert hooks_on(model) == 0
    assert inputs.grad is None
    for parameter, kept in zip(model.parameters(), grads, strict=True):
        assert torch.equal(parameter.grad, kept)  # type: ignore[arg-type]
