"""What every method that reads one layer keeps to: ranks, batches, several classes, layouts, blank maps, the model."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from camapp.cam.engine import Method
from camapp.cam.layer_method import ActivationMethod, GradientMethod
from camapp.cam.methods.cam import CAM
from camapp.cam.methods.eigen import KPCACAM, EigenCAM, EigenGradCAM
from camapp.cam.methods.fem import FEM
from camapp.cam.methods.plusplus import SmoothGradCAMPlusPlus, averaged_map
from camapp.cam.methods.products import HiResCAM, LayerCAM
from camapp.cam.methods.randomcam import RandomCAM
from camapp.cam.methods.shapleycam import ShapleyCAM
from camapp.cam.methods.xgradcam import XGradCAM
from camapp.cam.targets import ResidualScore
from camapp.errors import CamappError, LayerError, UsageError
from tests.cam.methods.layer_methods import EVERY, PLAIN, Rectified, Seen, Tokens

every_method = pytest.mark.parametrize("method", EVERY, ids=lambda method: method.name)


def combined(method: Method, activation: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    if isinstance(method, ActivationMethod):
        return method.combine(activation)
    assert isinstance(method, GradientMethod)
    return method.combine(activation, gradient)


@pytest.mark.parametrize("method", PLAIN, ids=lambda method: method.name)
def test_maps_do_not_depend_on_how_the_places_are_arranged(method: type[Method]) -> None:
    """A signal of 24 values, a picture of 4 by 6 and a volume of 2 by 3 by 4 hold the same places."""
    engine, activation, gradient = method(Rectified()), torch.randn(3, 5, 24).relu(), torch.randn(3, 5, 24)
    wanted = combined(engine, activation, gradient)
    assert wanted.shape == (3, 24)
    assert wanted.abs().max() > 0
    for grid in ((4, 6), (2, 3, 4)):
        found = combined(engine, activation.unflatten(2, grid), gradient.unflatten(2, grid))
        torch.testing.assert_close(found, wanted.unflatten(1, grid), rtol=1e-5, atol=1e-6)


def test_so_do_not_those_with_more_than_an_activation_and_a_gradient() -> None:
    activation, gradient, curvature = torch.randn(3, 3, 5, 24).unbind()
    wanted = ShapleyCAM(Rectified()).read(activation, gradient, curvature)
    smooth = averaged_map(activation, torch.stack([gradient, curvature]))
    for grid in ((4, 6), (2, 3, 4)):
        given = [each.unflatten(2, grid) for each in (activation, gradient, curvature)]
        torch.testing.assert_close(ShapleyCAM(Rectified()).read(*given), wanted.unflatten(1, grid))
        found = averaged_map(given[0], torch.stack(given[1:]))
        torch.testing.assert_close(found, smooth.unflatten(1, grid))


@every_method
def test_a_batch_equals_its_pictures_alone_and_classes_at_once_those_one_by_one(method: type[Method]) -> None:
    model, inputs, classes = Rectified().eval(), torch.randn(3, 3, 20, 12), [[0, 2], [4, 4], [1, 3]]
    engine = method(model, "late")
    together = engine(inputs, classes)
    assert together.raw.shape == (3, 2, 5, 3)
    assert together.maps.shape == (3, 2, 20, 12)
    for row in range(3):
        for k in range(2):
            alone = engine(inputs[row : row + 1], classes[row][k])
            torch.testing.assert_close(together.raw[row, k], alone.raw[0], rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(together.scores[row, k], alone.scores[0])
            assert together.targets[row, k] == alone.targets[0]


@every_method
@pytest.mark.parametrize("channels_last", [False, True])
def test_tokens_and_channels_last_layers_give_the_same_maps(method: type[Method], channels_last: bool) -> None:
    model, twin, inputs = Tokens(channels_last).eval(), Rectified().eval(), torch.randn(2, 3, 16, 32)
    twin.load_state_dict(model.state_dict())
    found, wanted = (method(net, "late")(inputs, [1, 2]).raw for net in (model, twin))
    assert wanted.shape == (2, 4, 8)
    assert wanted.abs().max() > 0
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)


@every_method
def test_the_model_is_left_as_it_was_found(method: type[Method]) -> None:
    model, inputs = Rectified().train(), torch.randn(2, 3, 16, 16)
    model.stem.requires_grad_(False)
    torch.manual_seed(5)
    wanted, flags = torch.rand(3), [parameter.requires_grad for parameter in model.parameters()]
    torch.manual_seed(5)
    with torch.no_grad():
        method(model, "late")(inputs, [[0, 1]] * 2)
    assert torch.equal(torch.rand(3), wanted)  # nothing was drawn from the global generator
    assert all(module.training for module in model.modules())
    assert [parameter.requires_grad for parameter in model.parameters()] == flags
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


@every_method
def test_half_precision_models_have_float32_maps_near_those_of_full_precision(method: type[Method]) -> None:
    model, inputs = Rectified().eval(), torch.randn(2, 3, 20, 12)
    wanted = method(model, "late")(inputs, 3)
    found = method(model.bfloat16(), "late")(inputs.bfloat16(), 3)
    assert found.raw.dtype == found.maps.dtype == torch.float32
    if method is RandomCAM:
        return  # its weights depend on every digit of the picture
    away = (found.raw - wanted.raw).abs().max() / wanted.raw.abs().max()
    if method in (FEM, KPCACAM):  # a threshold, and close eigenvalues: nothing that rounding could not move
        assert found.raw.isfinite().all()
    else:
        assert away < 0.1


@every_method
def test_a_layer_of_zeros_gives_a_zero_map_and_the_reason(method: type[Method]) -> None:
    bias = 0.0 if method is CAM else 1.0  # so that there is a gradient; with a bias there is no CAM
    result = method(Seen(bias), "seen")(torch.zeros(2, 3, 6, 9), [[0, 1]] * 2)
    assert not result.raw.any()
    assert not result.maps.any()
    assert all(reason is not None and "no activation" in reason for row in result.reasons for reason in row)


@every_method
def test_constant_channels_give_a_finite_blank_map_and_the_reason(method: type[Method]) -> None:
    inputs = torch.tensor([0.1, 0.7, 3.3])[:, None, None].expand(1, 3, 6, 9)
    result = method(Seen(), "seen")(inputs, 1)
    assert result.raw.isfinite().all()
    if method is not SmoothGradCAMPlusPlus:  # whose noise finds other gradients in other places
        assert result.raw.amax() - result.raw.amin() <= 1e-6 * result.raw.abs().amax()
    assert not result.maps.any()
    assert result.reasons[0] is not None


@every_method
def test_a_dead_relu_gives_a_finite_map_and_no_gradient_as_the_reason(method: type[Method]) -> None:
    if method is CAM:
        return  # the ReLU lies between the layer and the mean: refused
    result = method(Seen(bias=-100.0), "seen")(torch.randn(1, 3, 6, 9), 1)
    assert result.raw.isfinite().all()
    if issubclass(method, ActivationMethod | RandomCAM):
        assert result.reasons == [None]  # they see the activation, whatever becomes of it
    else:
        assert not result.raw.any()
        assert result.reasons[0].startswith("no gradient")


@pytest.mark.parametrize("method", [CAM, HiResCAM, XGradCAM, ShapleyCAM], ids=lambda method: method.name)
def test_a_class_that_nothing_supports_has_a_negative_map_and_the_reason(method: type[Method]) -> None:
    model, inputs = Seen(), torch.rand(1, 3, 6, 9)
    with torch.no_grad():
        model.head.weight.fill_(-1.0)
    result = method(model, "seen")(inputs, 0)
    assert result.raw.max() < 0
    assert not result.maps.any()
    assert result.reasons[0].startswith("no positive evidence")
    against = method(model, "seen")(inputs, 0, sign="negative")
    assert against.maps.max() == 1


@every_method
def test_a_broken_input_is_named_and_the_other_pictures_are_explained(method: type[Method]) -> None:
    inputs = torch.randn(2, 3, 16, 16)
    engine = method(Rectified().eval(), "late")
    wanted = engine(inputs[:1], 0)
    inputs[1, 0, 3, 3] = float("nan")
    result = engine(inputs, 0)
    assert result.reasons[1].startswith("not finite")
    torch.testing.assert_close(result.raw[0], wanted.raw[0], rtol=1e-5, atol=1e-6)


def test_the_sign_of_eigencam_outlives_a_change_of_sign_of_all_weights_before_it() -> None:
    model, inputs = Rectified().eval(), torch.randn(2, 3, 20, 12)
    for method in (EigenCAM, KPCACAM):
        for options in ({"centre": True}, {"centre": False}) if method is EigenCAM else ({},):
            wanted = method(model, "last", **options)(inputs, 0).raw
            with torch.no_grad():
                model.last.weight.neg_()
                model.last.bias.neg_()
            torch.testing.assert_close(method(model, "last", **options)(inputs, 0).raw, wanted, rtol=1e-4, atol=1e-5)
            with torch.no_grad():  # one channel alone
                model.last.weight[2].neg_()
                model.last.bias[2].neg_()
            torch.testing.assert_close(method(model, "last", **options)(inputs, 0).raw, wanted, rtol=1e-4, atol=1e-5)


def test_eigencam_is_positive_where_the_layer_is_most_active() -> None:
    """A strong object on a weak background, whichever of the two is larger."""
    for side in (3, 7):
        activation = torch.rand(1, 16, 8, 8) * 0.1
        activation[..., :side, :side] += torch.rand(16, 1, 1) * torch.tensor([1.0, -1.0] * 8)[:, None, None]
        found = EigenCAM(Rectified()).combine(activation)[0]
        assert found[:side, :side].min() > 0
        assert found[side:].max() < 0


def test_eigen_grad_cam_is_positive_where_the_class_is_supported() -> None:
    activation, gradient = torch.rand(1, 6, 5, 5), torch.zeros(1, 6, 5, 5)
    gradient[..., :2, :2] = 1.0
    supports = EigenGradCAM(Rectified()).combine(activation, gradient)[0]
    opposes = EigenGradCAM(Rectified()).combine(activation, -gradient)[0]
    assert supports[:2, :2].min() > 0
    torch.testing.assert_close(opposes, -supports)


@pytest.mark.parametrize(
    "method", [each for each in EVERY if each.differentiable and each is not CAM], ids=lambda method: method.name
)
def test_maps_that_may_be_part_of_a_graph_have_the_derivative_of_finite_differences(method: type[Method]) -> None:
    """Against central differences in float64 of the method's own reading, on activations far from every kink."""
    torch.manual_seed(1)
    engine = method(Rectified())
    activation = torch.rand(1, 4, 3, 2, dtype=torch.float64) + 0.2
    gradient = torch.rand(1, 4, 3, 2, dtype=torch.float64) + 0.2
    if method is RandomCAM:
        return  # linear in the activation
    activation.requires_grad_()
    assert torch.autograd.gradcheck(lambda given: combined(engine, given, gradient), (activation,))


def test_shapleycam_cannot_be_part_of_a_graph_and_says_so() -> None:
    with pytest.raises(UsageError, match="ShapleyCAM cannot be differentiated"):
        ShapleyCAM(Rectified(), "late")(torch.randn(1, 3, 16, 16), ResidualScore(0), create_graph=True)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda net: FEM(net, "late", k=float("nan")), UsageError, "k = nan"),
        (lambda net: KPCACAM(net, "late", kernel="linear"), UsageError, "kernel='linear'; use one of rbf, sigmoid"),
        (lambda net: KPCACAM(net, "late", gamma=0.0), UsageError, "gamma = 0.0 is no positive number"),
        (lambda net: RandomCAM(net, "late", seed="a"), UsageError, "seed = 'a' is no whole number"),
        (lambda net: SmoothGradCAMPlusPlus(net, "late", samples=0), UsageError, "samples = 0"),
        (lambda net: SmoothGradCAMPlusPlus(net, "late", noise=-0.1), UsageError, "noise = -0.1"),
    ],
)
def test_options_that_there_cannot_be_are_refused(
    make: Callable[[nn.Module], Method], error: type[CamappError], message: str
) -> None:
    with pytest.raises(error, match=message):
        make(Rectified())


def test_a_kernel_of_too_many_places_is_refused_before_it_is_made() -> None:
    with pytest.raises(LayerError, match="this one has 16384 places; it takes 4096 at most"):
        KPCACAM(Rectified()).combine(torch.zeros(1, 2, 128, 128))


def test_several_layers_of_layercam_are_fused_by_their_maximum() -> None:
    model, inputs = Rectified().eval(), torch.randn(1, 3, 16, 16)
    early, late = (LayerCAM(model, layer)(inputs, 1).maps for layer in ("early", "late"))
    both = torch.maximum(early, late)
    wanted = (both - both.min()) / (both.max() - both.min())
    torch.testing.assert_close(LayerCAM(model, ["early", "late"])(inputs, 1).maps, wanted, rtol=1e-5, atol=1e-5)
