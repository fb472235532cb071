"""How a layer's output lies in the picture: axes, grids, tokens in front, and the order of the tokens."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import timm
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from benchmarks.families import corners_in_place
from camapp.backbones.layers import list_layers
from camapp.backbones.layouts import find_layout, map_layout
from camapp.errors import LayerError


class Facts(nn.Module):
    """A model that states its patch size."""

    def __init__(self, patch: int | tuple[int, ...]) -> None:
        super().__init__()
        self.patch_size = patch


class Holder(nn.Module):
    """A class that holds a backbone under a name of its own."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.inner = nn.ModuleDict({"net": backbone})
        self.head = nn.Linear(4, 2)


@pytest.mark.parametrize(
    ("model", "shape", "inputs", "kind", "grid", "prefix"),
    [
        (nn.Identity(), (2, 512, 7, 7), (2, 3, 224, 224), "NCHW", (7, 7), 0),
        (nn.Identity(), (2, 7, 7, 512), (2, 3, 224, 224), "NHWC", (7, 7), 0),
        (nn.Identity(), (1, 64, 7, 10), (1, 3, 224, 320), "NCHW", (7, 10), 0),
        (nn.Identity(), (1, 7, 10, 64), (1, 3, 224, 320), "NHWC", (7, 10), 0),
        (nn.Identity(), (1, 3, 16, 16), (1, 3, 16, 16), "NCHW", (16, 16), 0),
        (nn.Identity(), (1, 7, 7, 8), (1, 3, 224, 224), "NHWC", (7, 7), 0),
        (nn.Identity(), (1, 8, 15, 1), (1, 3, 60, 1), "NCHW", (15, 1), 0),
        (nn.Identity(), (1, 15, 1, 8), (1, 3, 60, 1), "NHWC", (15, 1), 0),
        (nn.Identity(), (2, 8, 25), (2, 1, 100), "NCL", (25,), 0),
        (nn.Identity(), (1, 512, 2, 7, 7), (1, 3, 16, 112, 112), "NCDHW", (2, 7, 7), 0),
        (nn.Identity(), (1, 8, 7, 7, 768), (1, 3, 16, 224, 224), "NDHWC", (8, 7, 7), 0),
        (nn.Identity(), (1, 4, 8, 16, 24), (1, 1, 8, 16, 24), "NCDHW", (8, 16, 24), 0),
        (Facts(16), (1, 197, 768), (1, 3, 224, 224), "NLC", (14, 14), 1),
        (Facts((16, 16)), (1, 201, 768), (1, 3, 224, 224), "NLC", (14, 14), 5),
        (Facts(16), (1, 14 * 20 + 1, 768), (1, 3, 224, 320), "NLC", (14, 20), 1),
        (Facts((2, 16, 16)), (1, 4 * 2 * 3 + 1, 32), (1, 3, 8, 32, 48), "NLC", (4, 2, 3), 1),
        (Facts(10), (1, 11, 32), (1, 1, 100), "NLC", (10,), 1),
        (nn.Identity(), (1, 197, 768), (1, 3, 224, 224), "NLC", (14, 14), 1),
        (nn.Identity(), (1, 196, 768), (1, 3, 224, 224), "NLC", (14, 14), 0),
        (nn.Identity(), (1, 198, 768), (1, 3, 224, 224), "NLC", (14, 14), 2),
    ],
)
def test_layouts(
    model: nn.Module, shape: tuple[int, ...], inputs: tuple[int, ...], kind: str, grid: tuple[int, ...], prefix: int
) -> None:
    layout = find_layout(model, "x", shape, inputs)
    assert (layout.kind, layout.grid, layout.prefix) == (kind, grid, prefix)


@pytest.mark.parametrize(("extent", "grid"), [((48, 64), (3, 4)), ((8, 48, 64), (4, 3, 4))])
def test_every_layout_brings_the_same_map(extent: tuple[int, ...], grid: tuple[int, ...]) -> None:
    maps = torch.randn(2, 50, *grid)
    as_tokens = torch.cat([torch.zeros(2, 1, 50), maps.flatten(2).transpose(1, 2)], dim=1)
    model = Facts(tuple(whole // cells for whole, cells in zip(extent, grid, strict=True)))
    for output in (maps, maps.movedim(1, -1), as_tokens):
        layout = find_layout(model, "x", output.shape, (2, 3, *extent))
        assert torch.equal(layout.to_maps(output), maps)


@given(st.integers(1, 9), st.integers(1, 9), st.sampled_from([4, 7, 8, 14, 16, 32]), st.sampled_from([0, 1, 2, 5]))
def test_stated_patches_of_any_picture_are_found_behind_any_prefix(
    rows: int, columns: int, patch: int, prefix: int
) -> None:
    layout = find_layout(Facts(patch), "x", (1, rows * columns + prefix, 3), (1, 3, rows * patch, columns * patch))
    assert (layout.grid, layout.prefix) == ((rows, columns), prefix)


@pytest.mark.parametrize("shape", [(2, 1000), (2, 8, 768), (2, 200, 768), (2, 3, 4, 5, 6)])
def test_an_output_without_a_place_in_the_picture_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(LayerError, match=r'"fc" gives an output of shape .* does not map onto a picture of 224x224'):
        find_layout(nn.Identity(), "fc", shape, (2, 3, 224, 224))


@pytest.mark.parametrize("side", [196, 197, 198])
def test_an_attention_matrix_is_no_map(side: int) -> None:
    with pytest.raises(LayerError, match="does not map onto a picture"):
        find_layout(Facts(16), "attn_drop", (1, 4, side, side), (1, 3, 224, 224))


@pytest.mark.parametrize("shape", [(1, 196, 64, 3), (1, 3, 197, 64), (1, 50, 19, 8), (1, 4, 256, 64)])
def test_a_grid_without_the_pictures_aspect_is_no_map(shape: tuple[int, ...]) -> None:
    with pytest.raises(LayerError, match="does not map onto a picture"):
        find_layout(nn.Identity(), "x", shape, (1, 3, 224, 224))


def test_heads_whose_places_and_channels_make_a_square_are_no_map() -> None:
    model = timm.create_model("vit_tiny_patch16_224", img_size=128, depth=1, class_token=False, global_pool="avg")
    # 64 patches of 64 channels a head: (B, heads, 64, 64), which has the picture's aspect
    with pytest.raises(LayerError, match="holds 3 attention heads, not channels"):
        find_layout(model, "blocks.0.attn.q_norm", (1, 3, 64, 64), (1, 3, 128, 128))


def test_windows_folded_into_the_batch_are_refused() -> None:
    with pytest.raises(LayerError, match=r"first axis is not the batch of 2 \(windows"):
        find_layout(nn.Identity(), "attn", (8, 49, 96), (2, 3, 224, 224))


def test_places_folded_into_channels_by_mobilevit_are_refused() -> None:
    model = timm.create_model("mobilevitv2_050", num_classes=3)
    with pytest.raises(LayerError, match="unfolded"):
        # At 128 pixels the last stage has 4 patches of 4 places, which looks like a map of 4 x 4.
        find_layout(model, "stages.4.1.transformer.0", (1, 256, 4, 4), (1, 3, 128, 128))


def test_a_map_as_wide_as_its_channels_is_read_as_its_layers_work() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.conv = nn.LayerNorm(16), nn.Conv2d(3, 16, 1)

    for layer, kind in (("norm", "NHWC"), ("conv", "NCHW")):
        assert find_layout(Net(), layer, (1, 16, 16, 16), (1, 3, 64, 64)).kind == kind


@pytest.mark.parametrize("wrap", [lambda net: nn.Sequential(net, nn.Linear(4, 2)), Holder])
def test_a_transformer_inside_another_network_keeps_its_facts(wrap: type[nn.Module]) -> None:
    model = wrap(timm.create_model("vit_tiny_patch16_224", img_size=(32, 80), depth=1, reg_tokens=4))
    layer = next(name for name, _ in model.named_modules() if name.endswith("blocks.0.norm1"))
    layout = find_layout(model, layer, (1, 15, 192), (1, 3, 32, 80))
    assert (layout.grid, layout.prefix) == ((2, 5), 5)
    with pytest.raises(LayerError):  # 12 tokens would be a prefix of 2, and the network states 5
        find_layout(model, layer, (1, 12, 192), (1, 3, 32, 80))


def test_the_facts_of_a_hugging_face_configuration_are_read_wherever_it_hangs() -> None:
    class Classifier(nn.Module):
        """Named as there: the backbone under ``vit``, its configuration with the patch size."""

        def __init__(self) -> None:
            super().__init__()
            self.vit = nn.Module()
            self.vit.config = SimpleNamespace(patch_size=14, image_size=56, num_register_tokens=4)

    layout = find_layout(Classifier(), "vit.encoder", (1, 3 * 5 + 5, 8), (1, 3, 42, 70))
    assert (layout.grid, layout.prefix) == ((3, 5), 5)


class Clip(nn.Module):
    """A transformer for clips that states no patches: a strided convolution, then tokens, then a pooling of them."""

    def __init__(self, pooling: tuple[int, int, int]) -> None:
        super().__init__()
        self.stem = nn.Conv3d(3, 4, 3, stride=(2, 4, 4), padding=1)
        self.pool = nn.MaxPool3d(pooling, stride=pooling)


def test_a_clips_tokens_keep_their_time_where_no_layer_strides_it_again() -> None:
    layout = find_layout(Clip((1, 2, 2)), "pool", (1, 8 * 7 * 7 + 1, 4), (1, 3, 16, 224, 224))
    assert (layout.grid, layout.prefix) == ((8, 7, 7), 1)


def test_a_clips_tokens_that_fit_two_grids_are_refused() -> None:
    # 8 x 7 x 7 and 2 x 14 x 14 are as many, and this network strides time as well.
    assert map_layout(Clip((2, 2, 2)), "pool", (1, 8 * 7 * 7 + 1, 4), (1, 3, 16, 224, 224)) is None


def test_tokens_that_a_masked_encoder_left_out_are_not_taken_for_a_smaller_grid() -> None:
    assert map_layout(timm.create_model("vit_tiny_patch16_224", depth=1), "x", (1, 50, 192), (1, 3, 224, 224)) is None


@pytest.mark.parametrize(("height", "width", "grid"), [(100, 100, (7, 7)), (40, 56, (3, 4)), (72, 72, (5, 5))])
def test_pictures_padded_to_whole_patches_have_the_padded_grid(height: int, width: int, grid: tuple[int, int]) -> None:
    model = timm.create_model(
        "vit_tiny_patch16_224", num_classes=4, depth=2, dynamic_img_size=True, dynamic_img_pad=True
    ).eval()
    layers = {one.name: one for one in list_layers(model, torch.zeros(1, 3, height, width))}
    assert layers["blocks.1"].grid == grid


def hiera() -> nn.Module:
    return timm.create_model(
        "hiera_tiny_224", img_size=(64, 128), embed_dim=16, num_heads=1, stages=(1, 1, 1, 1), mask_unit_size=(4, 4),
        q_pool=2, num_classes=3,
    )  # fmt: skip


@pytest.mark.parametrize(("block", "grid"), [(0, (16, 32)), (1, (8, 16)), (2, (4, 8)), (3, (4, 8))])
def test_hieras_tokens_are_put_back_as_its_own_reroll_puts_them(block: int, grid: tuple[int, int]) -> None:
    model = hiera()
    tokens = torch.randn(2, grid[0] * grid[1], 5)
    layout = find_layout(model, f"blocks.{block}", tokens.shape, (2, 3, 64, 128))
    assert layout.grid == grid
    assert torch.equal(layout.to_maps(tokens), model.reroll(tokens, block).permute(0, 3, 1, 2))


@pytest.mark.parametrize(
    ("build", "layer", "size"),
    [
        (hiera, "blocks.0", (64, 128)),
        (lambda: timm.create_model("vit_tiny_patch16_224", img_size=(64, 160), depth=2), "blocks.1.norm1", (64, 160)),
        (lambda: timm.create_model("pit_ti_224", img_size=128, num_classes=3), "transformers.2", (128, 128)),
        (
            lambda: timm.create_model("swin_tiny_patch4_window7_224", img_size=(64, 128), embed_dim=24, depths=(2, 2),
                                      num_heads=(2, 2), window_size=4),
            "layers.0.blocks.1",
            (64, 128),
        ),
        (
            lambda: timm.create_model("pvt_v2_b0", num_classes=3),
            "stages.1.blocks.0.mlp.fc1",
            (64, 160),
        ),
        (lambda: timm.create_model("twins_svt_small", depths=(1, 1, 1, 1)), "blocks.1.0", (64, 160)),
        (lambda: timm.create_model("coat_lite_tiny", img_size=(64, 160)), "serial_blocks2.0", (64, 160)),
        (lambda: timm.create_model("mixer_s32_224", img_size=(64, 160)), "blocks.1", (64, 160)),
        (lambda: timm.create_model("xcit_nano_12_p8_224", depth=2), "blocks.1", (64, 160)),
    ],
    ids=["hiera", "vit", "pit", "swin", "pvt", "twins", "coat", "mixer", "xcit"],
)  # fmt: skip
def test_a_marked_corner_of_the_picture_shows_in_that_corner_of_the_map(
    build: type[nn.Module], layer: str, size: tuple[int, int]
) -> None:
    """Tokens in the wrong order, swapped axes or a wrong number of prefix tokens put a corner elsewhere."""
    assert corners_in_place(build().eval(), layer, size) == 4


@pytest.mark.parametrize("block", [0, 2])
def test_maps_of_shuffled_tokens_are_written_back_where_they_came_from(block: int) -> None:
    model = hiera()
    grid = {0: (16, 32), 2: (4, 8)}[block]
    tokens = torch.randn(2, grid[0] * grid[1], 5)
    layout = find_layout(model, f"blocks.{block}", tokens.shape, (2, 3, 64, 128))
    maps = layout.to_maps(tokens)
    maps[:, 3] = 7.0
    maps[:, 1, 2, 5] = -1.0
    layout.put_back(maps, tokens)
    assert torch.equal(layout.to_maps(tokens), maps)
    assert (tokens[..., 3] == 7.0).all()
    assert (tokens[..., 1] == -1.0).sum() == 2  # one place of each picture


def test_the_input_of_a_layer_is_read_by_the_facts_of_the_layer() -> None:
    model = hiera()
    tokens = (1, 16 * 32, 16)
    assert find_layout(model, "blocks.0:input", tokens, (1, 3, 64, 128)) == find_layout(
        model, "blocks.0", tokens, (1, 3, 64, 128)
    )
