"""Which layer is explained by default, and which finer ones lie before it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import timm
import torch
import torchvision
from torch import nn
from torch.nn import functional as F

from benchmarks.families import blobs, build, sweep, wake
from camapp.backbones.layers import list_layers
from camapp.backbones.layouts import find_layout
from camapp.backbones.recommend import Stages, recommended_layer, stages
from camapp.cam import GradCAM
from camapp.errors import LayerError
from camapp.hooks.as_found import as_found
from camapp.hooks.capture import Capture
from tests.networks import Plain, Reused


def small(name: str, **options: object) -> nn.Module:
    """A timm network of few blocks, none of its weights zero."""
    model = timm.create_model(name, num_classes=5, **options)
    wake(model)
    return model.eval()


SMALL: dict[str, tuple[Callable[[], nn.Module], str, tuple[int, ...]]] = {
    "class token": (lambda: small("vit_tiny_patch16_224", img_size=64, depth=3), "blocks.2.norm1", (64, 64)),
    "registers": (
        lambda: small("vit_tiny_patch16_224", img_size=(32, 80), depth=3, reg_tokens=4), "blocks.2.norm1", (32, 80)
    ),
    "pooled tokens": (
        lambda: small("vit_tiny_patch16_224", img_size=64, depth=3, global_pool="avg", fc_norm=False), "norm", (64, 64)
    ),
    "class attention": (
        lambda: small("cait_xxs24_224", img_size=64, depth=2), "blocks_token_only.1.norm1", (64, 64)
    ),
    "class token beside the map": (lambda: small("pit_ti_224", img_size=96), "transformers.2.blocks.3.norm1", (96, 96)),
    "channels last": (
        lambda: small("swin_tiny_patch4_window7_224", img_size=(64, 128), embed_dim=24, depths=(2, 2),
                      num_heads=(2, 2), window_size=4),
        "norm",
        (64, 128),
    ),
    "mixer": (lambda: small("mixer_s32_224", img_size=96), "norm", (96, 96)),
    "convolutions": (lambda: small("convnext_atto", depths=(1, 1, 1, 1), dims=(8, 16, 24, 32)), "stages", (64, 96)),
}  # fmt: skip


@pytest.mark.parametrize(("make", "layer", "size"), SMALL.values(), ids=list(SMALL))
def test_the_recommended_layer_of_each_kind_carries_gradient_on_its_places(
    make: Callable[[], nn.Module], layer: str, size: tuple[int, int]
) -> None:
    model, inputs = make(), blobs(size)
    assert recommended_layer(model, inputs) == layer
    with as_found(model), Capture(model, [layer]) as capture:
        scores = model(inputs)
    capture.backward(scores[:, 0])
    tap = capture[layer]
    gradient = find_layout(model, layer, tap.activation.shape, inputs.shape).to_maps(tap.gradient)
    assert gradient.isfinite().all()
    assert gradient.abs().amax() > 0
    assert GradCAM(model)(inputs, 0).layer == layer


def test_a_transformer_inside_a_class_of_ones_own_is_recommended_the_same_layer() -> None:
    class Mine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = small("vit_tiny_patch16_224", img_size=(32, 80), depth=2)
            self.head = nn.Linear(5, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.backbone(x))

    assert recommended_layer(Mine().eval(), torch.randn(1, 3, 32, 80)) == "backbone.blocks.1.norm1"


def test_a_head_of_zeros_leaves_the_choice_to_the_structure() -> None:
    model = timm.create_model("vit_tiny_patch16_224", img_size=64, depth=2, num_classes=5).eval()
    nn.init.zeros_(model.head.weight)
    assert recommended_layer(model, torch.randn(1, 3, 64, 64)) == "blocks.1.norm1"


def test_a_module_that_runs_several_times_is_named_by_its_call() -> None:
    assert recommended_layer(Reused(), torch.randn(1, 3, 8, 8)) == "relu@2"
    marked = [one.name for one in list_layers(Reused(), torch.randn(1, 3, 8, 8)) if one.recommended]
    assert marked == ["relu"]


class Signal(nn.Module):
    """Convolutions over one axis, or over a volume whose first axis is strided on its own."""

    def __init__(self, axes: int) -> None:
        super().__init__()
        conv = {1: nn.Conv1d, 3: nn.Conv3d}[axes]
        stride = 2 if axes == 1 else (1, 2, 2)
        self.first = nn.Sequential(conv(2, 4, 3, padding=1, stride=stride), nn.ReLU())
        self.second = nn.Sequential(conv(4, 4, 3, padding=1), nn.ReLU(), conv(4, 6, 3, padding=1, stride=2), nn.ReLU())
        self.third = nn.Sequential(conv(6, 6, 3, padding=1), nn.ReLU())
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.third(self.second(self.first(x))).flatten(2).mean(2))


@pytest.mark.parametrize(("axes", "size", "grid"), [(1, (40,), (10,)), (3, (6, 16, 24), (3, 4, 6))])
def test_signals_and_volumes_have_layers_and_stages_too(
    axes: int, size: tuple[int, ...], grid: tuple[int, ...]
) -> None:
    model, inputs = Signal(axes).eval(), torch.randn(1, 2, *size)
    assert recommended_layer(model, inputs) == "third"
    assert {one.name: one.grid for one in list_layers(model, inputs)}["third"] == grid
    assert stages(model, inputs) == Stages("third", coarse="second", fine="second.1")


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        # The expansion of the last block, and that of the first block at stride 32, which still lies at stride 16.
        (lambda: timm.create_model("tf_efficientnet_lite0"), Stages("bn2", "blocks.6.0.bn1", "blocks.5.0.bn1")),
        (lambda: torchvision.models.resnet18(), Stages("layer4", "layer4.1.relu@0", "layer3")),
        (lambda: torchvision.models.resnet50(), Stages("layer4", "layer4.2.relu@1", "layer4.0.relu@0")),
        (lambda: timm.create_model("resnet10t"), Stages("layer4", "layer4.0.act1", "layer3")),
        (
            lambda: torchvision.models.mobilenet_v3_small(),
            Stages("features", "features.11.block.0", "features.9.block.0"),
        ),
        # VGG pools its last map once more, so both lie one step before.
        (lambda: torchvision.models.vgg11(), Stages("features", "features.19", "features.14")),
        (
            lambda: small("vit_tiny_patch16_224", img_size=96, depth=12, embed_dim=48),
            Stages("blocks.11.norm1", "blocks.9.norm1", "blocks.6.norm1"),
        ),
        (lambda: small("mixer_s32_224", img_size=96), Stages("norm", "blocks.5", "blocks.3")),
    ],
    ids=["lite0", "resnet18", "resnet50", "resnet10t", "mobilenet_v3", "vgg11", "vit", "mixer"],
)
def test_stages_of_known_families(make: Callable[[], nn.Module], expected: Stages) -> None:
    assert stages(make().eval(), torch.randn(1, 3, 96, 96)) == expected


@pytest.mark.parametrize("name", ["tf_efficientnet_lite0", "resnet10t", "mobilenetv3_small_050"])
def test_coarse_and_fine_are_activated_maps_at_the_resolutions_they_are_named_for(name: str) -> None:
    model, inputs = small(name), torch.randn(1, 3, 96, 96)
    found = stages(model, inputs)
    with as_found(model), Capture(model, [found.last, found.coarse, found.fine]) as capture:
        model(inputs)
    last, coarse, fine = (capture[one].activation for one in (found.last, found.coarse, found.fine))
    assert last.shape[2:] == coarse.shape[2:] == (3, 3)
    assert fine.shape[2:] == (6, 6)
    for activated in (coarse, fine):
        # ReLUs and Hardswish give nothing below -3/8, and a map before its activation reaches far below.
        assert activated.min() >= -0.375
        assert activated.max() > 0
    assert last.shape != coarse.shape or not torch.equal(last, coarse)


class Shallow(nn.Module):
    """One map only."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, stride=2)
        self.head = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(F.relu(self.conv(x)).mean((2, 3)))


def test_a_network_without_such_maps_is_told_so() -> None:
    with pytest.raises(LayerError, match=r'Shallow has no two maps after an activation before "conv" of 7x7'):
        stages(Shallow(), torch.randn(1, 3, 16, 16))


def test_finding_layers_leaves_no_hook_and_moves_no_flag() -> None:
    model = small("vit_tiny_patch16_224", img_size=32, depth=3).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    stages(model, torch.randn(1, 3, 32, 32))
    assert model.training
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_another_size_of_input_is_looked_at_anew() -> None:
    model = Plain().eval()
    assert recommended_layer(model, torch.randn(1, 3, 16, 16)) == "last"
    assert recommended_layer(model, torch.randn(1, 3, 4, 4)) == "norm"  # there "last" has one place, which is no map


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["timm/hiera_tiny_224", "timm/coat_tiny", "timm/volo_d1_224", "timm/crossvit_tiny_240", "timm/tnt_s_patch16_224",
     "timm/vit_small_patch14_reg4_dinov2", "torchvision/maxvit_t", "video/r3d_18", "video/mvit_v2_s", "video/swin3d_t"],
)  # fmt: skip
def test_families_show_a_map_whose_corners_are_the_pictures_corners(name: str) -> None:
    row = sweep(name)
    assert row.map.startswith(("shown", "no positive evidence")), row  # the top class of random weights may have none
    assert row.in_place == 4, row


@pytest.mark.slow
@pytest.mark.parametrize("name", ["video/r2plus1d_18", "video/s3d"])
def test_video_networks_stride_time_on_its_own(name: str) -> None:
    model, size = build(name)
    layer = recommended_layer(model, blobs(size))
    grid = next(one.grid for one in list_layers(model, blobs(size)) if one.name == layer)
    assert grid == (2, 7, 7)
