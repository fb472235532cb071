"""Several layers in one call: how their maps become one, and that the order and the number of passes do not matter."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from camapp.cam import GradCAM, TopClasses
from camapp.cam.methods.products import LayerCAM
from camapp.cam.result import fused
from camapp.errors import LayerError, UsageError
from tests.networks import Plain, Reused, SkipAround, Staged

FUSES = ("mean", "max", "product", "geometric")


def stretched(raw: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    wide = F.interpolate(raw.double().clamp(min=0)[:, None], size=size, mode="bilinear", align_corners=False)[:, 0]
    low, high = wide.amin((1, 2), keepdim=True), wide.amax((1, 2), keepdim=True)
    return (wide - low) / torch.where(high > low, high - low, 1.0)


@pytest.mark.parametrize(
    ("fuse", "wanted"),
    [
        ("mean", [0.6, 0.2, 0.5]),
        ("max", [0.9, 0.4, 1.0]),
        ("product", [0.9 * 0.8 * 0.1, 0.0, 0.4 * 0.1 * 1.0]),
        ("geometric", [(0.9 * 0.8 * 0.1) ** (1 / 3), 0.0, 0.04 ** (1 / 3)]),
    ],
)
def test_three_maps_of_three_places_fused_by_hand(fuse: str, wanted: list[float]) -> None:
    maps = [torch.tensor([row]) for row in ([0.9, 0.0, 0.4], [0.8, 0.4, 0.1], [0.1, 0.2, 1.0])]
    torch.testing.assert_close(fused(maps, fuse), torch.tensor([wanted]))


@pytest.mark.parametrize("fuse", FUSES)
def test_the_map_of_several_layers_is_made_of_each_layers_own(fuse: str) -> None:
    model, inputs = Staged().eval(), torch.randn(2, 3, 20, 12)
    layers = ["middle", "last", "stem"]
    alone = torch.stack([stretched(LayerCAM(model, layer)(inputs, [1, 3]).raw, (20, 12)) for layer in layers])
    wanted = {
        "mean": alone.mean(0),
        "max": alone.amax(0),
        "product": alone.prod(0),
        "geometric": alone.prod(0) ** (1 / 3),
    }[fuse]
    result = LayerCAM(model, layers, fuse=fuse)(inputs, [1, 3])
    power = 3 if fuse == "geometric" else 1  # a root makes much of the last digits of values near 0
    torch.testing.assert_close(result.raw.double() ** power, wanted**power, rtol=0, atol=1e-5)
    assert result.raw.shape == (2, 20, 12)
    assert result.layer == "middle + last + stem"


@settings(max_examples=12, deadline=None)
@given(
    order=st.sampled_from(list(itertools.permutations(["stem", "middle", "late", "last"], 3))),
    fuse=st.sampled_from(FUSES),
)
def test_the_order_of_the_layers_does_not_change_the_map(order: tuple[str, ...], fuse: str) -> None:
    torch.manual_seed(0)
    model, inputs = Staged().eval(), torch.randn(1, 3, 12, 16)
    given_order = LayerCAM(model, list(order), fuse=fuse)(inputs, [[0, 2]])
    in_order = LayerCAM(model, sorted(order), fuse=fuse)(inputs, [[0, 2]])
    torch.testing.assert_close(given_order.maps, in_order.maps, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("network", "layers"), [(Staged, ["last", "middle"]), (SkipAround, ["last", "norm"])])
@pytest.mark.parametrize("fuse", ["mean", "product"])
def test_several_classes_at_once_equal_one_by_one(network: type[nn.Module], layers: list[str], fuse: str) -> None:
    model, inputs = network().eval(), torch.randn(2, 3, 16, 12)
    engine = LayerCAM(model, layers, fuse=fuse)
    together = engine(inputs, TopClasses(3))
    for k in range(3):
        alone = engine(inputs, together.targets[:, k].tolist())
        torch.testing.assert_close(together.raw[:, k], alone.raw, rtol=0, atol=1e-5)
        torch.testing.assert_close(together.scores[:, k], alone.scores)


def test_all_layers_and_classes_share_one_forward() -> None:
    model, inputs = Staged().eval(), torch.randn(2, 3, 16, 16)
    forwards: list[int] = []
    model.stem.register_forward_hook(lambda *_: forwards.append(1))
    LayerCAM(model, ["stem", "middle", "last"])(inputs, [[0, 1, 2], [3, 4, 0]])
    assert len(forwards) == 1


@pytest.mark.parametrize("method", [GradCAM, LayerCAM])
def test_what_goes_into_a_layer_is_what_came_out_of_the_one_before(method: type[GradCAM]) -> None:
    model, inputs = Staged().eval(), torch.randn(2, 3, 16, 12)
    into, out = method(model, "late:input")(inputs, [1, 4]), method(model, "middle")(inputs, [1, 4])
    assert into.raw.any()
    torch.testing.assert_close(into.raw, out.raw)
    together = method(model, ["last", "late:input"], fuse="mean")(inputs, [1, 4])
    torch.testing.assert_close(together.maps, method(model, ["middle", "last"], fuse="mean")(inputs, [1, 4]).maps)


def test_calls_of_one_layer_are_layers_of_their_own() -> None:
    model, inputs = Reused().eval(), torch.randn(1, 3, 8, 8)
    both = GradCAM(model, ["relu@0", "relu@2"])(inputs, 1)
    first, third = (GradCAM(model, f"relu@{call}")(inputs, 1).maps for call in (0, 2))
    torch.testing.assert_close(both.raw, (first + third) / 2)


def test_a_layer_named_twice_counts_once() -> None:
    model, inputs = Plain().eval(), torch.randn(1, 3, 16, 16)
    twice = GradCAM(model, ["last", model.last])
    assert twice.layer == "last"
    assert torch.equal(twice(inputs, 1).raw, GradCAM(model, "last")(inputs, 1).raw)


@pytest.mark.parametrize("fuse", FUSES)
def test_what_speaks_against_a_class_is_fused_as_what_speaks_for_it(fuse: str) -> None:
    model, inputs = Plain().eval(), torch.randn(2, 3, 16, 16)
    engine = GradCAM(model, ["norm", "last"], fuse=fuse)
    negative, negated = engine(inputs, 1, sign="negative"), engine(inputs, lambda row: -row[1])
    torch.testing.assert_close(negative.maps, negated.maps)
    torch.testing.assert_close(negative.raw, -negated.raw)


@pytest.mark.parametrize("fuse", ["max", "product", "geometric"])
def test_signed_maps_are_what_speaks_for_less_what_speaks_against(fuse: str) -> None:
    model, inputs = Plain().eval(), torch.randn(2, 3, 16, 16)
    engine = GradCAM(model, ["norm", "last"], fuse=fuse)
    both, positive = engine(inputs, 1, sign="both"), engine(inputs, 1)
    negative = engine(inputs, 1, sign="negative")
    torch.testing.assert_close(both.raw, positive.raw + negative.raw)
    assert both.raw.min() < 0 < both.raw.max()


def test_a_map_that_is_not_finite_is_not_hidden_by_the_others() -> None:
    model = Plain().eval()
    with torch.no_grad():
        model.norm.running_mean.fill_(float("nan"))
    result = GradCAM(model, ["stem", "last"])(torch.randn(1, 3, 16, 16), 1)
    assert not result.maps.any()
    assert result.reasons[0] is not None
    assert str(result.reasons[0]).startswith("not finite")


def test_layers_that_light_different_places_say_so() -> None:
    class Apart(nn.Module):
        """One layer lights the left half, the other the right."""

        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = nn.Identity(), nn.Identity()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            mask = torch.arange(8) < 4
            return self.left(x * mask).mean((2, 3)) + self.right(x * ~mask).mean((2, 3))

    inputs = torch.rand(1, 3, 8, 8) + 0.5
    for fuse in ("product", "geometric"):
        result = LayerCAM(Apart(), ["left", "right"], fuse=fuse)(inputs, 1)
        assert not result.maps.any()
        assert str(result.reasons[0]).startswith('nothing in common: no place is lit at all of "left + right"')
    assert LayerCAM(Apart(), ["left", "right"], fuse="mean")(inputs, 1).reasons == [None]
    nothing = LayerCAM(Apart(), ["left", "right"], fuse="mean")(inputs, lambda row: -row[1])
    assert str(nothing.reasons[0]).startswith("no evidence")


def test_layers_of_which_no_gradient_reaches_any_say_so() -> None:
    model, inputs = Staged().eval(), torch.randn(1, 3, 16, 16)
    with torch.no_grad():
        model.head.weight[1] = 0
    found = LayerCAM(model, ["middle", "last"])(inputs, [[1, 2]])
    assert str(found.reasons[0][0]).startswith('no gradient: the score does not depend on this map of "middle + last"')
    assert found.reasons[0][1] is None


def test_no_layers_and_an_unknown_way_to_fuse_are_refused() -> None:
    with pytest.raises(LayerError, match=r"layer=\[\] names no layer"):
        GradCAM(Plain(), [])
    with pytest.raises(UsageError, match="fuse='sum'"):
        GradCAM(Plain(), ["norm", "last"], fuse="sum")
