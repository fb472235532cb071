"""Pools, against numbers worked out by hand and torch's and timm's own."""

from __future__ import annotations

import pytest
import timm
import torch
from torch import nn
from torch.nn import functional as F

from camapp.backbones.layouts import Layout
from camapp.backbones.pooling import read_pool, settled_pool
from camapp.backbones.tokens import has_class_token
from camapp.errors import LayerError, UsageError

MAPS = torch.tensor([[[[1.0, 2.0], [3.0, 6.0]], [[0.0, 0.0], [0.0, -4.0]]]])
NCHW = Layout("NCHW", (2, 2))


def pooled(name: str, output: torch.Tensor, layout: Layout | None) -> torch.Tensor:
    pool = read_pool(name)
    assert pool is not None
    return pool(output, layout, "layer")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("avg", [3.0, -1.0]),
        ("patches", [3.0, -1.0]),
        ("max", [6.0, 0.0]),
        ("avgmax", [4.5, -0.5]),
        ("catavgmax", [3.0, -1.0, 6.0, 0.0]),
        ("gem", [(252 / 4) ** (1 / 3), 1e-6]),  # (1 + 8 + 27 + 216) / 4; nothing above the clamp
        ("gem(2)", [12.5**0.5, 1e-6]),
        ("gem(1)", [3.0, 1e-6]),
        ("spp(1)", [6.0, 0.0]),
        ("spp(1,2)", [6.0, 0.0, 1.0, 2.0, 3.0, 6.0, 0.0, 0.0, 0.0, -4.0]),
        ("flatten", [1.0, 2.0, 3.0, 6.0, 0.0, 0.0, 0.0, -4.0]),
    ],
)
def test_a_map_worked_out_by_hand(name: str, expected: list[float]) -> None:
    torch.testing.assert_close(pooled(name, MAPS, NCHW), torch.tensor([expected]), rtol=1e-6, atol=1e-9)


def test_channels_last_pools_as_channels_first() -> None:
    last = MAPS.permute(0, 2, 3, 1)
    for name in ("avg", "max", "avgmax", "catavgmax", "gem(2.5)", "spp(1,2)"):
        torch.testing.assert_close(pooled(name, last, Layout("NHWC", (2, 2))), pooled(name, MAPS, NCHW))


def test_tokens_leave_out_those_in_front_of_the_patches() -> None:
    tokens = torch.randn(2, 3 + 6, 5)  # a class token, two registers, 2 x 3 patches
    layout = Layout("NLC", (2, 3), prefix=3)
    patches = tokens[:, 3:].mean(1)
    torch.testing.assert_close(pooled("cls", tokens, layout), tokens[:, 0])
    torch.testing.assert_close(pooled("patches", tokens, layout), patches)
    torch.testing.assert_close(pooled("cls+patches", tokens, layout), torch.cat([tokens[:, 0], patches], 1))


def test_a_generalised_mean_of_large_half_precision_values_is_finite() -> None:
    maps = torch.full((1, 1, 4, 4), 6e4, dtype=torch.float16)
    assert float(pooled("gem(8)", maps, Layout("NCHW", (4, 4)))) == pytest.approx(6e4, rel=1e-3)


def test_a_mean_of_half_precision_is_taken_in_float32() -> None:
    maps = torch.full((1, 1, 64, 64), 40.0, dtype=torch.float16)  # their sum, 163840, is more than float16 holds
    assert float(pooled("avg", maps, Layout("NCHW", (64, 64)))) == 40.0


def test_gem_and_spatial_pyramid_agree_with_their_formulas_on_random_maps() -> None:
    maps = torch.rand(2, 3, 7, 5, dtype=torch.float64).float()
    p = 3.7
    gem = maps.double().clamp_min(1e-6).pow(p).mean((2, 3)).pow(1 / p).float()
    torch.testing.assert_close(pooled("gem(3.7)", maps, Layout("NCHW", (7, 5))), gem)
    spp = torch.cat([F.adaptive_max_pool2d(maps, side).flatten(1) for side in (1, 2, 4)], 1)
    torch.testing.assert_close(pooled("spp", maps, Layout("NCHW", (7, 5))), spp)


def test_signals_and_volumes_are_pooled_too() -> None:
    signal, volume = torch.randn(2, 3, 9), torch.randn(2, 3, 2, 4, 4)
    torch.testing.assert_close(pooled("avg", signal, Layout("NCL", (9,))), signal.mean(2))
    torch.testing.assert_close(pooled("spp(1,2)", volume, Layout("NCDHW", (2, 4, 4))).shape, torch.Size([2, 3 * 9]))
    torch.testing.assert_close(pooled("max", volume, Layout("NCDHW", (2, 4, 4))), volume.amax((2, 3, 4)))


@pytest.mark.parametrize("name", ["avg", "cls", "gem", "cls+patches", "auto"])
def test_a_vector_stays_as_it_is(name: str) -> None:
    vector = torch.randn(2, 8)
    pool = settled_pool(name, nn.Identity(), "layer", None, vector)
    assert torch.equal(pool(vector, None, "layer"), vector)
    assert pool.name == "none"  # what was done, and not what was asked for


def test_auto_takes_the_class_token_where_there_is_one_and_the_mean_of_the_patches_where_there_are_only_registers() -> (
    None
):
    tokens, layout = torch.randn(1, 4 + 4, 3), Layout("NLC", (2, 2), prefix=4)
    vit = timm.create_model("vit_tiny_patch16_224", img_size=32)
    only_registers = timm.create_model("vit_medium_patch16_reg4_gap_256", img_size=32)
    assert has_class_token(vit, "blocks.0")
    assert not has_class_token(only_registers, "blocks.0")
    assert settled_pool("auto", vit, "blocks.0", layout, tokens).name == "cls"
    assert settled_pool("auto", only_registers, "blocks.0", layout, tokens).name == "avg"
    assert settled_pool("auto", vit, "patch_embed", Layout("NLC", (2, 4)), tokens).name == "avg"
    assert settled_pool("auto", vit, "blocks.0.attn.q_norm", None, torch.randn(1, 3, 5, 5)).name == "none"
    for name in ("cls", "cls+patches"):
        with pytest.raises(LayerError, match="registers"):
            settled_pool(name, only_registers, "blocks.0", layout, tokens)
        assert settled_pool(name, vit, "blocks.0", layout, tokens).name == name


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("median", "pool='median' is none"),
        ("gem(0)", "no positive number"),
        ("gem(nan)", "no positive number"),
        ("gem(x)", "cannot be meant"),
        ("gem(1,2)", "cannot be meant"),
        ("spp(0)", "divisions"),
        ("spp(999)", "divisions"),
        ("avg(2)", "is none"),
        ("", "is none"),
    ],
)
def test_a_pool_that_there_is_not_is_refused_by_name(name: str, says: str) -> None:
    with pytest.raises(UsageError, match=says.replace("(", r"\(").replace(")", r"\)")):
        read_pool(name)


def test_a_class_token_is_not_taken_from_a_map() -> None:
    with pytest.raises(LayerError, match="without a class token"):
        pooled("cls", MAPS, NCHW)


def test_what_has_no_places_is_refused_with_what_works_instead() -> None:
    with pytest.raises(LayerError, match="flatten"):
        pooled("avg", torch.randn(1, 3, 5, 5), None)
