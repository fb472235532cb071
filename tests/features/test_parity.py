"""Features beside torchvision's feature extraction and timm's own intermediates."""

from __future__ import annotations

import warnings

import pytest
import timm
import torch
import torchvision
from torch import nn
from torchvision.models.feature_extraction import create_feature_extractor

from camapp.features import FeatureExtractor

# Three depths each, and what torchvision's tracer calls the same places.
TORCHVISION = {
    "resnet18": ("layer1", "layer2.1", "layer4"),
    "vgg11_bn": ("features.6", "features.18", "classifier.3"),
    "densenet121": ("features.transition1", "features.denseblock3", "features.norm5"),
    "mobilenet_v3_small": ("features.1", "features.6", "features.12"),
    "shufflenet_v2_x0_5": ("stage2", "stage3", "conv5"),
    "squeezenet1_1": ("features.3", "features.8", "features.12"),
    "convnext_tiny": ("features.1", "features.3", "features.7"),
    "swin_t": ("features.1", "features.3", "norm"),
    "vit_b_32": ("encoder.layers.encoder_layer_2", "encoder.layers.encoder_layer_8", "encoder.ln"),
    "regnet_y_400mf": ("trunk_output.block1", "trunk_output.block3", "trunk_output.block4"),
}

TIMM = {
    "vit_tiny_patch16_224": ("blocks.2", "blocks.5", "blocks.11"),
    "deit_tiny_distilled_patch16_224": ("blocks.0", "blocks.6", "blocks.11"),
    "resnet10t": ("layer1", "layer3", "layer4"),
    "convnext_atto": ("stages.0", "stages.2", "stages.3"),
    "efficientnet_lite0": ("blocks.0", "blocks.2", "blocks.6"),
}


@pytest.mark.parametrize("name", TORCHVISION)
def test_three_depths_are_those_of_torchvisions_feature_extraction(name: str) -> None:
    torch.manual_seed(0)
    model = torchvision.models.get_model(name, weights=None).eval()
    inputs = torch.randn(1, 3, 224, 224) if name == "vit_b_32" else torch.randn(1, 3, 64, 96)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the graphs of train and eval mode differ
        theirs = create_feature_extractor(model, list(TORCHVISION[name]))(inputs)
    ours = FeatureExtractor(model, TORCHVISION[name], "none")(inputs)
    assert list(ours) == list(TORCHVISION[name])
    for layer, expected in theirs.items():
        torch.testing.assert_close(ours[layer], expected.detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", TIMM)
def test_three_depths_are_those_of_timms_forward_intermediates(name: str) -> None:
    torch.manual_seed(0)
    model = timm.create_model(name, pretrained=False).eval()
    inputs = torch.randn(1, 3, 224, 224)
    with torch.no_grad():
        theirs = model.forward_intermediates(inputs, intermediates_only=True)
    ours = FeatureExtractor(model, TIMM[name], "none")(inputs)
    maps = [ours[layer] for layer in TIMM[name]]
    if ours.info[TIMM[name][0]].layout == "NLC":  # timm gives patch tokens as maps
        info = ours.info[TIMM[name][0]]
        maps = [one[:, info.prefix :].transpose(1, 2).unflatten(2, info.grid) for one in maps]
    for one in maps:
        assert any(one.shape == each.shape and torch.allclose(one, each, rtol=1e-5, atol=1e-5) for each in theirs)


@pytest.mark.parametrize(
    ("name", "layer", "later"), [("resnet18", "layer1.0.bn1", "layer1"), ("vgg11_bn", "features.1", "features.3")]
)
def test_before_an_in_place_operation_torchvision_gives_the_overwritten_tensor_and_we_do_not(
    name: str, layer: str, later: str
) -> None:
    torch.manual_seed(0)
    model = torchvision.models.get_model(name, weights=None).eval()
    inputs = torch.randn(2, 3, 64, 64)
    kept: list[torch.Tensor] = []
    hook = model.get_submodule(layer).register_forward_hook(lambda _, __, output: kept.append(output.clone()))
    with torch.no_grad():
        model(inputs)
    hook.remove()
    ours = FeatureExtractor(model, [layer, later], "none")(inputs)[layer]
    theirs = create_feature_extractor(model, [layer, later])(inputs)[layer]
    assert torch.equal(ours, kept[0])
    assert (ours < 0).any()
    assert not (theirs < 0).any()  # the peer's defect; where it is mended, this comparison has done its work


def test_a_pooled_convolutional_feature_is_the_mean_of_the_peers_map() -> None:
    model: nn.Module = torchvision.models.resnet18().eval()
    inputs = torch.randn(2, 3, 64, 64)
    theirs = create_feature_extractor(model, ["layer3"])(inputs)["layer3"].mean((2, 3))
    torch.testing.assert_close(FeatureExtractor(model, "layer3")(inputs)["layer3"], theirs.detach())
