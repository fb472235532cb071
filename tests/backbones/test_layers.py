"""The list of a model's layers, and the layer recommended for known families."""

from __future__ import annotations

import pytest
import timm
import torch
import torchvision
from torch import nn

from camapp.backbones.layers import list_layers
from camapp.backbones.recommend import recommended_layer
from camapp.errors import LayerError
from tests.networks import Plain, Reused


@pytest.mark.parametrize(
    ("name", "layer", "grid"),
    [
        ("resnet18", "layer4", (7, 7)),
        ("vgg11", "features", (7, 7)),
        ("densenet121", "features", (7, 7)),
        ("mobilenet_v3_small", "features", (7, 7)),
        ("convnext_tiny", "features", (7, 7)),
        ("swin_t", "permute", (7, 7)),
        ("vit_b_16", "encoder.layers.encoder_layer_11.ln_1", (14, 14)),
        ("timm/tf_efficientnet_lite0", "bn2", (7, 7)),
        ("timm/vit_tiny_patch16_224", "blocks.11.norm1", (14, 14)),
        ("timm/deit_tiny_distilled_patch16_224", "blocks.11.norm1", (14, 14)),
        ("timm/swin_tiny_patch4_window7_224", "norm", (7, 7)),
    ],
)
def test_recommended_layers_of_known_families(name: str, layer: str, grid: tuple[int, int]) -> None:
    if name.startswith("timm/"):
        model = timm.create_model(name[5:], pretrained=False)
    else:
        model = torchvision.models.get_model(name, weights=None)
    inputs = torch.zeros(1, 3, 224, 224)
    assert recommended_layer(model, inputs) == layer
    marked = [one for one in list_layers(model, inputs) if one.recommended]
    assert [(one.name, one.grid) for one in marked] == [(layer, grid)]


def test_a_model_without_any_map_is_told_to_name_a_layer() -> None:
    with pytest.raises(LayerError, match="No layer of this Sequential gives a map"):
        recommended_layer(nn.Sequential(nn.Flatten(), nn.Linear(192, 3)), torch.zeros(1, 3, 8, 8))


def test_the_list_says_shape_calls_and_parameters_of_each_layer() -> None:
    layers = {one.name: one for one in list_layers(Reused(), torch.zeros(1, 3, 8, 8))}
    assert layers["one"].shape == (4, 8, 8)
    assert layers["one"].parameters == 4 * 3 * 9 + 4
    assert layers["relu"].calls == 3
    assert layers["unused"].calls == 0
    assert layers["unused"].shape is None
    assert layers["head"].grid is None


def test_listing_leaves_no_hook_and_moves_no_flag() -> None:
    model = Plain().train()
    list_layers(model, torch.zeros(1, 3, 8, 8))
    assert model.training
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("mobilevit_xxs", "final_conv"),  # its attention works on (pixels of a patch, patches): no row is a picture
        ("convit_tiny", "blocks.11.norm1"),
        ("mixer_s32_224", "norm"),  # no class token: all tokens reach the output
        ("vit_tiny_r_s16_p8_224", "blocks.11.norm1"),
    ],
)
def test_recommended_layers_of_unusual_families(name: str, layer: str) -> None:
    model = timm.create_model(name, pretrained=False, num_classes=4)
    side = model.default_cfg["input_size"][-1]
    assert recommended_layer(model, torch.zeros(1, 3, side, side)) == layer


def test_a_loaded_model_lists_its_layers_without_inputs() -> None:
    from camapp.errors import UsageError
    from camapp.loading import load_model

    listed = list_layers(load_model("efficientnet_lite0", random_weights=True, device="cpu"))
    assert [one.name for one in listed if one.recommended] == ["bn2"]
    with pytest.raises(UsageError, match="give inputs"):
        list_layers(Plain())
