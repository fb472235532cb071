"""On real architectures: activations, gradients and maps against plain full autograd and against captum."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torchvision
from captum.attr import LayerGradCam
from torch import nn

from camapp.cam import GradCAM
from camapp.hooks.as_found import as_found
from camapp.hooks.capture import Capture
from tests.autograd_oracle import full_autograd

# (model, layer), among them layers whose output is overwritten in place: densenet's features, resnet's bn2.
CASES = [
    ("vgg11", "features"),
    ("vgg11", "features.18"),
    ("densenet121", "features"),
    ("densenet121", "features.norm5"),
    ("resnet18", "layer4.1.bn2"),
    ("resnet18", "layer4"),
    ("resnet18", "layer2"),
    ("mobilenet_v3_small", "features"),
    ("squeezenet1_1", "features"),
    ("convnext_tiny", "features"),
    ("swin_t", "features"),
    ("swin_t", "permute"),
    pytest.param("vit_b_16", "encoder.layers.encoder_layer_11.ln_1", marks=pytest.mark.slow),
]
CLASSES = [1, 285]


@pytest.fixture(scope="module")
def models() -> Iterator[dict[str, nn.Module]]:
    """Built once, with random weights; heads that start at zero are drawn anew, or every gradient would be zero."""
    built: dict[str, nn.Module] = {}

    class Built(dict[str, nn.Module]):
        def __missing__(self, name: str) -> nn.Module:
            torch.manual_seed(0)
            model = torchvision.models.get_model(name, weights=None).eval()
            for module in model.modules():
                if isinstance(module, nn.Linear) and not module.weight.any():
                    nn.init.normal_(module.weight, std=0.02)
            self[name] = model
            return model

    built = Built()
    yield built
    built.clear()


@pytest.fixture(scope="module")
def inputs() -> torch.Tensor:
    return torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("name", "layer"), CASES)
def test_activation_and_gradient_equal_full_autograd(
    models: dict[str, nn.Module], inputs: torch.Tensor, name: str, layer: str
) -> None:
    model = models[name]
    activation, gradient = full_autograd(model, layer, inputs, CLASSES)
    with as_found(model):
        with Capture(model, [layer]) as capture:
            logits = model(inputs)
        capture.backward(logits[torch.arange(2), CLASSES])
    tap = capture[layer]
    assert gradient.abs().max() > 0
    assert tap.gradient is not None
    assert (tap.activation - activation).abs().max() <= 1e-6
    assert (tap.gradient - gradient).abs().max() <= 1e-6


@pytest.mark.parametrize(("name", "layer"), CASES)
def test_raw_maps_equal_captums(models: dict[str, nn.Module], inputs: torch.Tensor, name: str, layer: str) -> None:
    model = models[name]
    ours = GradCAM(model, layer)(inputs, CLASSES).raw
    if name == "vit_b_16" or (layer == "features" and name == "swin_t"):
        # captum averages over every axis but the second, which is wrong for tokens and channels-last maps: here the
        # same formula with the channels in the second place, on what plain autograd gives.
        activation, gradient = full_autograd(model, layer, inputs, CLASSES)
        if activation.dim() == 3:
            activation, gradient = (t[:, 1:].reshape(2, 14, 14, -1) for t in (activation, gradient))
        activation, gradient = (t.permute(0, 3, 1, 2) for t in (activation, gradient))
        theirs = (gradient.mean((2, 3), keepdim=True) * activation).sum(1)
    else:
        theirs = LayerGradCam(model, model.get_submodule(layer)).attribute(inputs, CLASSES)[:, 0].detach()
    assert theirs.abs().max() > 0
    assert (ours - theirs).abs().max() <= 1e-5


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("resnet18", "layer4"),
        ("swin_t", None),
        pytest.param("densenet121", "features", marks=pytest.mark.slow),
        pytest.param("vit_b_16", None, marks=pytest.mark.slow),
    ],
)
def test_a_batch_of_eight_equals_eight_singles(models: dict[str, nn.Module], name: str, layer: str | None) -> None:
    model, batch = models[name], torch.randn(8, 3, 224, 224)
    classes = list(range(0, 800, 100))
    engine = GradCAM(model, layer)
    together = engine(batch, classes)
    for row, target in enumerate(classes):
        alone = engine(batch[row : row + 1], target)
        assert (together.raw[row] - alone.raw[0]).abs().max() <= 1e-5
        assert (together.maps[row] - alone.maps[0]).abs().max() <= 1e-5 * max(1.0, 1.0 / float(alone.raw.relu().max()))


def test_the_last_map_before_pooling_and_a_linear_head_gives_the_classic_cam(models: dict[str, nn.Module]) -> None:
    """There Grad-CAM is the head's weights times the map over the number of places: its sum plus bias is the logit."""
    model, batch = models["resnet18"], torch.randn(1, 3, 224, 224)
    raw = GradCAM(model, "layer4")(batch, 7).raw[0].double()
    logit = model(batch)[0, 7].double()
    assert abs(raw.sum() + model.fc.bias[7].double() - logit) <= 2e-6 * max(1, abs(logit))
