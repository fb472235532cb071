"""How a layer's output lies in the picture, and which layer is recommended."""

from __future__ import annotations

import pytest
import timm
import torch
import torchvision
from torch import nn

from camapp.backbones.layers import find_layout, list_layers, recommended_layer
from camapp.errors import LayerError
from tests.networks import Plain, Reused


class Facts(nn.Module):
    """A model that states its patch size."""

    def __init__(self, patch: int | tuple[int, int]) -> None:
        super().__init__()
        self.patch_size = patch


@pytest.mark.parametrize(
    ("model", "shape", "inputs", "kind", "grid", "prefix"),
    [
        (nn.Identity(), (2, 512, 7, 7), (2, 3, 224, 224), "NCHW", (7, 7), 0),
        (nn.Identity(), (2, 7, 7, 512), (2, 3, 224, 224), "NHWC", (7, 7), 0),
        (nn.Identity(), (1, 64, 7, 10), (1, 3, 224, 320), "NCHW", (7, 10), 0),
        (nn.Identity(), (1, 7, 10, 64), (1, 3, 224, 320), "NHWC", (7, 10), 0),
        (nn.Identity(), (1, 3, 16, 16), (1, 3, 16, 16), "NCHW", (16, 16), 0),
        (Facts(16), (1, 197, 768), (1, 3, 224, 224), "NLC", (14, 14), 1),
        (Facts((16, 16)), (1, 201, 768), (1, 3, 224, 224), "NLC", (14, 14), 5),
        (Facts(16), (1, 14 * 20 + 1, 768), (1, 3, 224, 320), "NLC", (14, 20), 1),
        (nn.Identity(), (1, 197, 768), (1, 3, 224, 224), "NLC", (14, 14), 1),
        (nn.Identity(), (1, 196, 768), (1, 3, 224, 224), "NLC", (14, 14), 0),
        (nn.Identity(), (1, 198, 768), (1, 3, 224, 224), "NLC", (14, 14), 2),
    ],
)
def test_layouts(
    model: nn.Module, shape: tuple[int, ...], inputs: tuple[int, ...], kind: str, grid: tuple[int, int], prefix: int
) -> None:
    layout = find_layout(model, "x", shape, inputs)
    assert (layout.kind, layout.grid, layout.prefix) == (kind, grid, prefix)


def test_every_layout_brings_the_same_map() -> None:
    maps = torch.randn(2, 50, 3, 4)
    as_tokens = torch.cat([torch.zeros(2, 1, 50), maps.flatten(2).transpose(1, 2)], dim=1)
    size = (2, 3, 48, 64)
    for output in (maps, maps.permute(0, 2, 3, 1), as_tokens):
        layout = find_layout(nn.Identity(), "x", output.shape, size)
        assert torch.equal(layout.to_maps(output), maps)


@pytest.mark.parametrize("shape", [(2, 1000), (2, 8, 768), (2, 200, 768), (2, 3, 4, 5, 6)])
def test_an_output_without_a_place_in_the_picture_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(LayerError, match=r'"fc" gives an output of shape .* does not map onto a picture of 224x224'):
        find_layout(nn.Identity(), "fc", shape, (2, 3, 224, 224))


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


class Attentive(nn.Module):
    """Patch tokens, and an attention matrix that looks like a map of a square picture."""

    def __init__(self, patch: int = 16) -> None:
        super().__init__()
        self.patch_size = patch


@pytest.mark.parametrize("side", [196, 197, 198])
def test_an_attention_matrix_is_no_map(side: int) -> None:
    with pytest.raises(LayerError, match="does not map onto a picture"):
        find_layout(Attentive(), "attn_drop", (1, 4, side, side), (1, 3, 224, 224))


@pytest.mark.parametrize("shape", [(1, 196, 64, 3), (1, 3, 197, 64), (1, 50, 19, 8), (1, 4, 256, 64)])
def test_a_grid_without_the_pictures_aspect_is_no_map(shape: tuple[int, ...]) -> None:
    with pytest.raises(LayerError, match="does not map onto a picture"):
        find_layout(nn.Identity(), "x", shape, (1, 3, 224, 224))


@pytest.mark.parametrize(("height", "width", "grid"), [(100, 100, (7, 7)), (40, 56, (3, 4)), (72, 72, (5, 5))])
def test_pictures_padded_to_whole_patches_have_the_padded_grid(height: int, width: int, grid: tuple[int, int]) -> None:
    model = timm.create_model(
        "vit_tiny_patch16_224", num_classes=4, depth=2, dynamic_img_size=True, dynamic_img_pad=True
    ).eval()
    layers = {one.name: one for one in list_layers(model, torch.zeros(1, 3, height, width))}
    assert layers["blocks.1"].grid == grid


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
    from camapp.backbones.load import load_model
    from camapp.errors import UsageError

    listed = list_layers(load_model("efficientnet_lite0", random_weights=True, device="cpu"))
    assert [one.name for one in listed if one.recommended] == ["bn2"]
    with pytest.raises(UsageError, match="give inputs"):
        list_layers(Plain())
