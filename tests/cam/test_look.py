"""What a call asks of its maps: their sign, their scale, and that they can be differentiated."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from camapp.cam import GradCAM
from camapp.cam.layer_method import GradientMethod
from camapp.cam.methods.products import LayerCAM
from camapp.cam.result import normalised_maps
from camapp.errors import UsageError
from tests.networks import Plain


def pictures(rows: int = 3) -> torch.Tensor:
    return torch.randn(rows, 3, 20, 12)


def test_negative_maps_are_the_positive_ones_of_the_negated_score() -> None:
    model, inputs = Plain().eval(), pictures()
    engine = GradCAM(model, "last")
    negative = engine(inputs, 2, sign="negative")
    negated = engine(inputs, lambda row: -row[2])
    torch.testing.assert_close(negative.raw, -negated.raw)
    torch.testing.assert_close(negative.maps, negated.maps)
    assert negative.maps.flatten(1).any(1).all()


def test_signed_maps_have_the_raw_maps_signs_and_a_largest_magnitude_of_one() -> None:
    model, inputs = Plain().eval(), pictures()
    result = GradCAM(model, "last")(inputs, 2, sign="both")
    wide = F.interpolate(result.raw[:, None], size=(20, 12), mode="bilinear", align_corners=False)[:, 0]
    wanted = wide / wide.abs().amax((1, 2), keepdim=True)
    torch.testing.assert_close(result.maps, wanted, rtol=0, atol=1e-6)
    assert result.maps.min() < 0 < result.maps.max()


@pytest.mark.parametrize("sign", ["positive", "negative", "both"])
def test_shared_maps_keep_the_ratios_between_pictures_and_reach_one_once(sign: str) -> None:
    model, inputs = Plain().eval(), pictures(4)
    inputs[0] *= 5  # one picture with far more evidence
    engine = GradCAM(model, "norm")
    shared = engine(inputs, 1, sign=sign, normalize="shared").maps  # type: ignore[arg-type]
    own = engine(inputs, 1, sign=sign, normalize=None).maps  # type: ignore[arg-type]
    torch.testing.assert_close(shared.abs().max(), torch.tensor(1.0))
    torch.testing.assert_close(shared, own / own.abs().max())
    assert len(shared.abs().amax((1, 2)).unique()) == 4


def test_shared_maps_share_over_all_targets_too() -> None:
    model, inputs = Plain().eval(), pictures(2)
    engine = GradCAM(model, "last")
    shared = engine(inputs, [[0, 1, 2], [2, 3, 4]], normalize="shared").maps
    own = engine(inputs, [[0, 1, 2], [2, 3, 4]], normalize=None).maps
    torch.testing.assert_close(shared, own / own.max())


def test_max_keeps_the_zero_that_minmax_moves() -> None:
    raw = torch.tensor([[[1.0, 2.0], [3.0, 4.0]], [[-1.0, 2.0], [0.5, 1.0]]])
    by_max = torch.tensor([[[0.25, 0.5], [0.75, 1.0]], [[0.0, 1.0], [0.25, 0.5]]])
    by_range = torch.tensor([[[0.0, 1 / 3], [2 / 3, 1.0]], [[0.0, 1.0], [0.25, 0.5]]])
    torch.testing.assert_close(normalised_maps(raw, (2, 2), "positive", "max")[0], by_max)
    torch.testing.assert_close(normalised_maps(raw, (2, 2), "positive", "minmax")[0], by_range)
    model, inputs = Plain().eval(), pictures()
    own = GradCAM(model, "norm")(inputs, 1, normalize=None).maps
    torch.testing.assert_close(
        GradCAM(model, "norm")(inputs, 1, normalize="max").maps, own / own.amax((1, 2), keepdim=True)
    )


@pytest.mark.parametrize("sign", ["positive", "negative"])
def test_without_normalisation_maps_are_the_raw_maps_part_of_that_sign_resized(sign: str) -> None:
    model, inputs = Plain().eval(), pictures()
    result = GradCAM(model, "last")(inputs, 1, sign=sign, normalize=None)  # type: ignore[arg-type]
    part = (result.raw if sign == "positive" else -result.raw).double().clamp(min=0)
    wide = F.interpolate(part[:, None], size=(20, 12), mode="bilinear", align_corners=False)[:, 0]
    torch.testing.assert_close(result.maps.double(), wide, rtol=1e-5, atol=1e-7)


def test_a_blank_map_stays_blank_and_spoils_no_shared_scale() -> None:
    model, inputs = Plain().eval(), pictures(2)
    engine = GradCAM(model, "last")
    weights = torch.tensor([1.0, 0.0])
    targets = [lambda row, weight=weight: weight * row[1] for weight in weights]  # type: ignore[misc]
    for normalize in ("minmax", "max", "shared", None):
        maps = engine(inputs, targets, sign="both", normalize=normalize).maps  # type: ignore[arg-type]
        assert not maps[1].any()
        assert maps[0].any()


def test_a_sign_or_a_normalisation_that_there_is_not_is_refused() -> None:
    engine = GradCAM(Plain(), "last")
    with pytest.raises(UsageError, match="sign='plus'"):
        engine(pictures(), 1, sign="plus")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="normalize='sum'"):
        engine(pictures(), 1, normalize="sum")  # type: ignore[arg-type]


class Smooth(nn.Module):
    """A network without kinks, so that finite differences converge."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, 3, 3, padding=1)
        self.last = nn.Conv2d(3, 4, 3, padding=1)
        self.head = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.last(torch.tanh(self.stem(x)))).square().mean((2, 3)))

    def raw_by_hand(self, x: torch.Tensor, method: type[GradientMethod]) -> torch.Tensor:
        """Grad-CAM or LayerCAM of class 1 at ``last``, by full autograd alone."""
        layer = self.last(torch.tanh(self.stem(x)))
        score = self.head(torch.tanh(layer).square().mean((2, 3)))[:, 1].sum()
        (gradient,) = torch.autograd.grad(score, layer, create_graph=True)
        weights = gradient.mean((2, 3), keepdim=True) if method is GradCAM else gradient.relu()
        return (weights * layer).sum(1)


@pytest.mark.parametrize("method", [GradCAM, LayerCAM])
def test_differentiable_maps_have_the_gradients_of_full_autograd(method: type[GradientMethod]) -> None:
    model, inputs = Smooth().double().eval(), torch.randn(2, 2, 6, 5, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(2, 6, 5, dtype=torch.float64)
    places = [inputs, model.stem.weight, model.last.bias, model.head.weight]
    raw = method(model, "last")(inputs, 1, create_graph=True).raw
    by_hand = model.raw_by_hand(inputs, method)
    torch.testing.assert_close(raw.double(), by_hand, rtol=1e-5, atol=1e-7)
    found = torch.autograd.grad((raw * weights).sum(), places)
    wanted = torch.autograd.grad((by_hand * weights).sum(), places)
    for one, other in zip(found, wanted, strict=True):
        assert one.abs().max() > 1e-4
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_differentiable_maps_have_the_slopes_of_finite_differences() -> None:
    model, inputs = Smooth().double().eval(), torch.randn(1, 2, 6, 5, dtype=torch.float64)
    engine = GradCAM(model, "last")

    def total(parameter: torch.Tensor, shift: torch.Tensor) -> float:
        with torch.no_grad():
            parameter += shift
        value = engine(inputs, 1, normalize=None).raw.double().square().sum().item()
        with torch.no_grad():
            parameter -= shift
        return value

    for parameter in (model.stem.weight, model.head.weight, inputs.requires_grad_()):
        loss = engine(inputs, 1, normalize=None, create_graph=True).raw.double().square().sum()
        (gradient,) = torch.autograd.grad(loss, parameter)
        along = gradient / gradient.norm()
        step = 1e-2 * along
        slope = (total(parameter, step) - total(parameter, -step)) / 2e-2
        assert slope == pytest.approx(gradient.norm().item(), rel=5e-3)


def test_a_differentiable_call_writes_no_gradients_and_changes_no_value() -> None:
    model, inputs = Plain().eval(), pictures()
    engine = GradCAM(model, "last")
    torch.testing.assert_close(engine(inputs, 1, create_graph=True).maps.detach(), engine(inputs, 1).maps)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not engine(inputs, 1).maps.requires_grad
