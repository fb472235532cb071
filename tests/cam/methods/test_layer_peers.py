"""Maps equal to those of grad-cam and torch-cam, where these follow the same formula."""

from __future__ import annotations

import numpy as np
import pytest
import pytorch_grad_cam
import torch
from pytorch_grad_cam.utils.model_targets import ClassifierOutputReST, ClassifierOutputTarget
from torch import nn

from camapp.cam import GradCAM
from camapp.cam.engine import Method
from camapp.cam.methods.eigen import KPCACAM, EigenCAM, EigenGradCAM
from camapp.cam.methods.plusplus import GradCAMPlusPlus
from camapp.cam.methods.products import ElementWise, HiResCAM, LayerCAM
from camapp.cam.methods.shapleycam import ShapleyCAM
from camapp.cam.methods.xgradcam import XGradCAM
from camapp.cam.targets import ResidualScore
from tests.cam.methods.layer_methods import Rectified

SIGNED = [
    (GradCAM, pytorch_grad_cam.GradCAM),
    (HiResCAM, pytorch_grad_cam.HiResCAM),
    (ElementWise, pytorch_grad_cam.GradCAMElementWise),
    (LayerCAM, pytorch_grad_cam.LayerCAM),
    (XGradCAM, pytorch_grad_cam.XGradCAM),
]
UP_TO_SIGN = [(EigenCAM, pytorch_grad_cam.EigenCAM), (EigenGradCAM, pytorch_grad_cam.EigenGradCAM)]


def steep() -> Rectified:
    """A network of large gradients, so that the small numbers which peers add to denominators do not show."""
    model = Rectified().eval()
    nn.init.normal_(model.head.weight, std=30.0)
    return model


def theirs(
    peer: type, model: nn.Module, layer: str, inputs: torch.Tensor, targets: list[object], **options: object
) -> tuple[np.ndarray, np.ndarray]:
    """grad-cam's raw map of the layer, and the map it gives in the end."""
    target = model.get_submodule(layer)
    with peer(model, [target], **options) as cam:
        shown = cam(inputs, targets)
        activation = cam.activations_and_grads.activations[0].detach().numpy()
        gradients = cam.activations_and_grads.gradients
        gradient = gradients[0].detach().numpy() if gradients else None
        return cam.get_cam_image(inputs, target, targets, activation, gradient, False), shown


@pytest.mark.parametrize("layer", ["early", "late"])
@pytest.mark.parametrize(("method", "peer"), SIGNED)
def test_maps_equal_those_of_grad_cam(method: type[Method], peer: type, layer: str) -> None:
    model, inputs = steep(), torch.randn(3, 3, 20, 12)
    raw, shown = theirs(peer, model, layer, inputs, [ClassifierOutputTarget(k) for k in (4, 0, 2)])
    result = method(model, layer)(inputs, [4, 0, 2])
    assert np.abs(raw).max() > 1e-3
    np.testing.assert_allclose(result.raw.numpy(), raw, rtol=0, atol=1e-5 * np.abs(raw).max())
    np.testing.assert_allclose(result.maps.numpy(), shown, rtol=0, atol=1e-5)


@pytest.mark.parametrize("layer", ["early", "late"])
@pytest.mark.parametrize(("method", "peer"), UP_TO_SIGN)
def test_principal_components_equal_those_of_grad_cam_up_to_sign(method: type[Method], peer: type, layer: str) -> None:
    model, inputs = steep(), torch.randn(3, 3, 20, 12)
    raw, _ = theirs(peer, model, layer, inputs, [ClassifierOutputTarget(k) for k in (4, 0, 2)])
    result = method(model, layer)(inputs, [4, 0, 2]).raw.numpy()
    sign = np.sign((raw * result).sum((1, 2), keepdims=True))
    np.testing.assert_allclose(result, sign * raw, rtol=0, atol=1e-5 * np.abs(raw).max())


@pytest.mark.parametrize("kernel", ["rbf", "sigmoid"])
@pytest.mark.parametrize("gamma", [None, 0.5])
def test_kernel_components_equal_those_of_grad_cam_up_to_sign(kernel: str, gamma: float | None) -> None:
    model, inputs = Rectified().eval(), torch.randn(3, 3, 20, 12)
    targets = [ClassifierOutputTarget(0)] * 3
    raw, _ = theirs(pytorch_grad_cam.KPCA_CAM, model, "early", inputs, targets, kernel=kernel, gamma=gamma)
    result = KPCACAM(model, "early", kernel=kernel, gamma=gamma)(inputs, 0).raw.numpy()
    sign = np.sign((raw * result).sum((1, 2), keepdims=True))
    np.testing.assert_allclose(result, sign * raw, rtol=0, atol=1e-5 * np.abs(raw).max())


def test_grad_cam_plus_plus_equals_grad_cams_where_its_added_constant_does_not_show() -> None:
    model, inputs = steep(), torch.randn(3, 3, 20, 12)
    raw, _ = theirs(pytorch_grad_cam.GradCAMPlusPlus, model, "late", inputs, [ClassifierOutputTarget(1)] * 3)
    result = GradCAMPlusPlus(model, "late")(inputs, 1)
    np.testing.assert_allclose(result.raw.numpy(), raw, rtol=0, atol=1e-5 * np.abs(raw).max())


def test_shapleycam_equals_grad_cams_with_the_papers_utility() -> None:
    model, inputs = Rectified().eval(), torch.randn(3, 3, 20, 12)
    targets = [ClassifierOutputReST(k) for k in (4, 0, 2)]
    with pytorch_grad_cam.ShapleyCAM(model, [model.late]) as cam:
        shown = cam(inputs, targets)
        cam.activations_and_grads.gradients = []  # grad-cam 1.5.7 fails at detaching them where they are views
    result = ShapleyCAM(model, "late")(inputs, [ResidualScore(k) for k in (4, 0, 2)])
    np.testing.assert_allclose(result.maps.numpy(), shown, rtol=0, atol=1e-5)


@pytest.mark.parametrize("method", [GradCAM, LayerCAM, XGradCAM])
def test_maps_equal_those_of_torch_cam(method: type[Method]) -> None:
    torchcam = pytest.importorskip("torchcam.methods", reason="torchcam wants Python 3.11 or newer")
    model, inputs = steep(), torch.randn(3, 3, 20, 12)
    with getattr(torchcam, method.__name__)(model, "late") as extractor:
        (wanted,) = extractor([4, 0, 2], model(inputs), normalized=False)
    found = method(model, "late")(inputs, [4, 0, 2]).raw.relu()
    assert wanted.max() > 1e-3
    torch.testing.assert_close(found, wanted.detach(), rtol=0, atol=1e-5 * float(wanted.max()))
