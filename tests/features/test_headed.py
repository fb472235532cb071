"""HeadedNetwork: a classifier on features as one network, explained like any other."""

from __future__ import annotations

import copy

import pytest
import timm
import torch
import torchvision
from torch import nn

from camapp.cam import METHODS, GradCAM, find_method
from camapp.features.headed import HeadedNetwork
from tests.hooks.test_capture import hooks_on

INPUTS = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))


def resnet(layers: tuple[str, ...] = ("penultimate",), pool: str = "auto", size: int = 512) -> HeadedNetwork:
    torch.manual_seed(0)
    return HeadedNetwork(torchvision.models.resnet18(), layers, pool, nn.Linear(size, 3)).eval()


def test_its_scores_are_the_heads_of_the_backbones_features() -> None:
    network = resnet()
    backbone = copy.deepcopy(network.backbone)
    backbone.fc = nn.Identity()
    with torch.no_grad():
        torch.testing.assert_close(network(INPUTS), network.head(backbone(INPUTS)))


def test_features_of_several_layers_are_joined_and_what_lies_behind_does_not_run() -> None:
    network = resnet(("layer1", "layer2"), "avg", 64 + 128)
    ran: list[str] = []
    network.backbone.layer3.register_forward_hook(lambda *_: ran.append("layer3"))
    network(INPUTS)  # the dry run that finds the places goes through the whole network
    ran.clear()
    scores = network(INPUTS)
    assert ran == []
    with torch.no_grad():
        stem = network.backbone.maxpool(network.backbone.relu(network.backbone.bn1(network.backbone.conv1(INPUTS))))
        one = network.backbone.layer1(stem)
        two = network.backbone.layer2(one)
        expected = network.head(torch.cat([one.mean((2, 3)), two.mean((2, 3))], 1))
    torch.testing.assert_close(scores.detach(), expected)


def test_grad_cam_of_its_classes_is_the_sum_of_the_maps_by_the_heads_weights() -> None:
    network = resnet()
    result = GradCAM(network, "backbone.layer4")(INPUTS, [[0, 1, 2]] * 2, sign="both", normalize=None)
    with torch.no_grad():
        trunk = nn.Sequential(*list(network.backbone.children())[:-2])
        maps = trunk(INPUTS)
        expected = torch.einsum("kc,bchw->bkhw", network.head.weight / maps[0, 0].numel(), maps)
    torch.testing.assert_close(result.raw, expected, rtol=1e-4, atol=1e-6)
    assert not hooks_on(network)


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(name, marks=pytest.mark.slow if name in ("sess", "sscam", "iscam") else ())
        for name in METHODS
        if name not in ("rollout", "legrad")
    ],
)
def test_every_method_explains_it_or_says_why_not(method: str) -> None:
    network = resnet()
    chosen = find_method(method)
    layer = ["backbone.layer3", "backbone.layer4"] if method == "refinecam" else "backbone.layer4"
    options = {"top_channels": 8} if method in ("scorecam", "sscam", "iscam") else {}
    engine = chosen(network, layer, **options) if chosen.takes_layer else chosen(network)
    result = engine(INPUTS[:1], 1)
    assert torch.isfinite(result.maps).all()
    assert result.maps.shape == (1, 64, 64)
    assert (result.maps > 0).any() or result.reasons[0]


def test_several_classes_at_once_are_as_one_by_one() -> None:
    network = resnet()
    engine = GradCAM(network, "backbone.layer3")
    together = engine(INPUTS, [[0, 1, 2]] * 2, normalize=None).raw
    for index in range(3):
        torch.testing.assert_close(together[:, index], engine(INPUTS, index, normalize=None).raw, rtol=1e-4, atol=1e-7)


def test_the_layer_to_explain_is_found_for_a_transformer_too() -> None:
    vit = timm.create_model("vit_tiny_patch16_224", img_size=64)
    network = HeadedNetwork(vit, ("blocks.6",), "cls", nn.Linear(192, 4)).eval()
    result = GradCAM(network)(INPUTS[:1], 2)
    assert result.layer.startswith("backbone.blocks.")
    assert (result.maps > 0).any()


def test_its_backbone_predicts_also_while_the_head_is_trained() -> None:
    network = resnet().train()
    assert network.training
    assert network.head.training
    assert not network.backbone.training
    before = network.backbone.bn1.running_mean.clone()
    network(INPUTS).sum().backward()
    assert torch.equal(network.backbone.bn1.running_mean, before)


def test_a_copy_looks_at_its_own_backbone() -> None:
    network = resnet()
    expected = network(INPUTS).detach()
    copied = copy.deepcopy(network)
    with torch.no_grad():
        network.backbone.conv1.weight.zero_()
    torch.testing.assert_close(copied(INPUTS).detach(), expected)
