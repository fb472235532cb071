"""Signals (B, C, L) and volumes (B, C, D, H, W): the same methods, from the network to the map."""

from __future__ import annotations

import pytest
import torch

from camapp.cam import GradCAM
from camapp.cam.engine import Method
from camapp.cam.layer_method import ActivationMethod
from camapp.cam.methods.cam import CAM
from camapp.cam.methods.plusplus import GradCAMPlusPlus, SmoothGradCAMPlusPlus
from camapp.cam.methods.randomcam import RandomCAM
from camapp.cam.methods.shapleycam import ShapleyCAM
from tests.autograd_oracle import full_autograd
from tests.cam.methods.layer_methods import EVERY, PLAIN, Rectified

SIZES = {1: (40,), 3: (8, 16, 24)}


def explained(method: type[Method], rank: int, **options: object) -> tuple[Rectified, torch.Tensor, torch.Tensor]:
    """The network, its inputs, and the method's raw maps of the classes 3 and 1."""
    torch.manual_seed(rank)
    model, inputs = Rectified(rank).eval(), torch.randn(2, 3, *SIZES[rank])
    result = method(model, "late", **options)(inputs, [3, 1])
    assert result.maps.shape == (2, *SIZES[rank])
    assert result.raw.shape == (2, *(side // 4 for side in SIZES[rank]))
    assert result.raw.any()
    return model, inputs, result.raw


@pytest.mark.parametrize("rank", SIZES)
@pytest.mark.parametrize("method", PLAIN, ids=lambda method: method.name)
def test_maps_are_made_of_what_plain_autograd_finds(method: type[Method], rank: int) -> None:
    model, inputs, raw = explained(method, rank)
    activation, gradient = full_autograd(model, "late", inputs, [3, 1])
    engine = method(model)
    given = (activation,) if isinstance(engine, ActivationMethod) else (activation, gradient)
    torch.testing.assert_close(raw, engine.combine(*given), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("rank", SIZES)
def test_methods_with_passes_of_their_own_become_those_that_they_extend(rank: int) -> None:
    places = torch.tensor(SIZES[rank]).prod() / 4**rank
    grad_cam, plus_plus = explained(GradCAM, rank)[2], explained(GradCAMPlusPlus, rank)[2]
    torch.testing.assert_close(explained(CAM, rank)[2] / places, grad_cam, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(explained(ShapleyCAM, rank)[2], grad_cam, rtol=1e-4, atol=1e-6)
    smooth = explained(SmoothGradCAMPlusPlus, rank, noise=0.0, samples=2)[2]
    torch.testing.assert_close(smooth, plus_plus, rtol=1e-4, atol=1e-6)
    assert explained(RandomCAM, rank)[2].abs().max() > 0


def test_every_method_is_tested_here() -> None:
    assert {*PLAIN, CAM, ShapleyCAM, SmoothGradCAMPlusPlus, RandomCAM} == {*EVERY}


def test_second_derivatives_pass_through_fused_attention() -> None:
    """torch's fused attentions have no second derivative; ViTs are explained through the plain one."""
    import timm

    torch.manual_seed(0)
    model = timm.create_model(
        "vit_tiny_patch16_224", img_size=32, patch_size=8, depth=2, embed_dim=16, num_heads=2, num_classes=3
    ).eval()
    inputs = torch.randn(1, 3, 32, 32, requires_grad=True)
    assert ShapleyCAM(model, "blocks.0")(inputs, 1).reasons == [None]
    maps = GradCAM(model, "blocks.0")(inputs, 1, normalize=None, sign="both", create_graph=True).maps
    (through,) = torch.autograd.grad(maps.square().sum(), inputs)
    assert through.isfinite().all()
    assert through.abs().max() > 0
