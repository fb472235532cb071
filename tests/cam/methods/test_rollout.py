"""Attention rollout: the paper's product by hand, and against attention caught where a model writes it out."""

from __future__ import annotations

import gc
import weakref
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import nn

from camapp.cam.methods.legrad import LeGrad
from camapp.cam.methods.rollout import AttentionRollout
from camapp.errors import LayerError, UsageError
from tests.cam.methods.transformers import OwnEncoder, drawn, hub, timm_vit, torchvision_vit
from tests.hooks.test_as_found import assert_same, state
from tests.hooks.test_capture import hooks_on
from tests.networks import Plain

# Two blocks of two heads over two tokens; rows sum to one.
FIRST = torch.tensor([[[[1.0, 0.0], [0.5, 0.5]], [[0.5, 0.5], [0.0, 1.0]]]])
SECOND = torch.tensor([[[[0.2, 0.8], [0.6, 0.4]], [[0.6, 0.4], [1.0, 0.0]]]])


def test_the_product_of_two_blocks_computed_by_hand() -> None:
    # means [[.75, .25], [.25, .75]] and [[.4, .6], [.8, .2]]; with half the identity [[.875, .125], [.125, .875]] and
    # [[.7, .3], [.4, .6]]; the second block times the first
    wanted = torch.tensor([[[0.65, 0.35], [0.425, 0.575]]])
    torch.testing.assert_close(AttentionRollout(torchvision_vit()).roll([FIRST, SECOND]), wanted)


def test_other_ways_to_join_heads_and_to_discard_computed_by_hand() -> None:
    model = torchvision_vit()
    # maxima [[1, .5], [.5, 1]], rows to one [[2/3, 1/3], [1/3, 2/3]], with half the identity
    wanted = torch.tensor([[[5 / 6, 1 / 6], [1 / 6, 5 / 6]]])
    torch.testing.assert_close(AttentionRollout(model, heads="max").roll([FIRST]), wanted)
    # minima [[.5, 0], [0, .5]]: the identity
    torch.testing.assert_close(AttentionRollout(model, heads="min").roll([FIRST]), torch.eye(2)[None])
    # of the means of the second block [[.4, .6], [.8, .2]] the half that is smaller goes: [[0, 1], [1, 0]]
    wanted = torch.tensor([[[0.5, 0.5], [0.5, 0.5]]])
    torch.testing.assert_close(AttentionRollout(model, discard=0.5).roll([SECOND]), wanted)


def slow_rollout(model: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    """The paper's product in float64, of matrices caught as the inputs of the dropout behind a softmax written out."""
    kept: list[torch.Tensor] = []
    handles = [
        block.attn.attn_drop.register_forward_pre_hook(lambda module, args: kept.append(args[0].detach().double()))
        for block in model.blocks  # type: ignore
    ]
    model(inputs)
    for handle in handles:
        handle.remove()
    rolled = torch.eye(kept[0].shape[-1], dtype=torch.float64)
    for matrix in kept:
        rolled = (0.5 * matrix.mean(1) + 0.5 * torch.eye(matrix.shape[-1], dtype=torch.float64)) @ rolled
    return rolled


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(("options", "prefix"), [({}, 1), ({"reg_tokens": 2}, 3)])
def test_maps_are_the_class_tokens_row_without_the_prefix(fused: bool, options: dict[str, Any], prefix: int) -> None:
    model, inputs = timm_vit(fused=False, img_size=(32, 48), **options), torch.randn(2, 3, 32, 48)
    wanted = slow_rollout(model, inputs)[:, 0, prefix:].view(2, 4, 6)
    for block in model.blocks:  # type: ignore
        block.attn.fused_attn = fused
    result = AttentionRollout(model)(inputs, 3)
    assert wanted.std() > 1e-3
    torch.testing.assert_close(result.raw.double(), wanted, rtol=1e-5, atol=1e-7)
    assert "the attention of the class token" in result.notes


@pytest.mark.parametrize(
    ("options", "prefix"),
    [({"global_pool": "avg"}, 1), ({"global_pool": "avg", "class_token": False}, 0),
     ({"global_pool": "avg", "class_token": False, "reg_tokens": 2}, 2)],
)  # fmt: skip
def test_maps_are_the_mean_of_the_patches_rows_where_those_are_read_out(options: dict[str, Any], prefix: int) -> None:
    model, inputs = timm_vit(fused=False, **options), torch.randn(2, 3, 32, 32)
    wanted = slow_rollout(model, inputs)[:, prefix:, prefix:].mean(1).view(2, 4, 4)
    result = AttentionRollout(model)(inputs, 3)
    torch.testing.assert_close(result.raw.double(), wanted, rtol=1e-5, atol=1e-7)
    assert "the mean attention of all patches" in result.notes


def test_it_is_the_same_for_every_class_and_says_so() -> None:
    for model, size in ((torchvision_vit(), (32, 32)), (hub(), (32, 24)), (drawn(OwnEncoder()), (32, 24))):
        inputs = torch.randn(2, 3, *size)
        result = AttentionRollout(model)(inputs, [[0, 3], [2, 1]])
        assert torch.equal(result.raw[:, 0], result.raw[:, 1])
        assert "the same for every class" in result.notes[0]
        alone = AttentionRollout(model)(inputs[1:], 1)
        torch.testing.assert_close(result.raw[1, 0], alone.raw[0], rtol=1e-5, atol=1e-7)
        torch.testing.assert_close(result.scores[1, 1], alone.scores[0], rtol=1e-5, atol=1e-5)
        assert result.reasons == [[None, None], [None, None]]


def test_the_start_leaves_out_the_blocks_before() -> None:
    model, inputs = torchvision_vit(), torch.randn(1, 3, 32, 32)
    last = AttentionRollout(model, start=-1)(inputs).raw
    assert torch.equal(last, AttentionRollout(model, start=2)(inputs).raw)
    assert not torch.allclose(last, AttentionRollout(model)(inputs).raw, atol=1e-4)
    with pytest.raises(UsageError, match=r"start=-4: Attention rollout sees 3 attention block\(s\)"):
        AttentionRollout(model, start=-4)(inputs)


def test_a_model_is_traced_once_for_each_size_and_again_when_it_is_altered() -> None:
    model = OwnEncoder().eval()
    rows: list[int] = []
    model.patches.register_forward_hook(lambda _, args, __: rows.append(len(args[0])))
    inputs = torch.randn(2, 3, 24, 32)
    first = AttentionRollout(model)(inputs)
    assert rows == [1, 2]
    torch.testing.assert_close(AttentionRollout(model)(inputs).raw, first.raw)
    assert rows == [1, 2, 2]
    AttentionRollout(model)(inputs.transpose(2, 3))
    assert rows == [1, 2, 2, 1, 2]
    model.encoder.layers.append(deepcopy(model.encoder.layers[0]))
    longer = AttentionRollout(model)(inputs)
    assert rows == [1, 2, 2, 1, 2, 1, 2]
    assert not torch.allclose(longer.raw, first.raw)
    torch.testing.assert_close(longer.raw, AttentionRollout(deepcopy(model))(inputs).raw)


def test_what_is_remembered_of_a_model_does_not_keep_it() -> None:
    model = OwnEncoder().eval()
    AttentionRollout(model)(torch.randn(1, 3, 24, 32))
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_options_and_networks_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UsageError, match="heads='sum'; use one of mean, max, min"):
        AttentionRollout(torchvision_vit(), heads="sum")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"discard=1\.0"):
        AttentionRollout(torchvision_vit(), discard=1.0)
    with pytest.raises(LayerError, match="No attention is seen in this Plain: Attention rollout is for vision"):
        AttentionRollout(Plain())(torch.randn(1, 3, 32, 32))


def test_bfloat16_gives_float32_maps_near_the_full_ones() -> None:
    model, inputs = torchvision_vit(), torch.randn(2, 3, 32, 32)
    wanted = AttentionRollout(model)(inputs).raw
    result = AttentionRollout(model.bfloat16())(inputs)
    assert result.raw.dtype == torch.float32
    assert (result.raw - wanted).abs().mean() <= 0.05 * wanted.mean()


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_the_model_is_left_as_found_also_on_errors(mode: Any) -> None:
    model, inputs = torchvision_vit().train(), torch.randn(2, 3, 32, 32)
    with mode():
        before = state(model)
        AttentionRollout(model)(inputs, 1)
        with pytest.raises(ValueError, match="out of range"):
            AttentionRollout(model)(inputs, 99)
        assert_same(before, state(model))
    assert hooks_on(model) == 0


def test_a_batch_is_its_pictures_one_by_one() -> None:
    import timm

    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224", img_size=64, depth=2, num_classes=4).eval()
    inputs = torch.randn(3, 3, 64, 64)
    for method in (AttentionRollout, LeGrad):
        together = method(model)(inputs, [0, 1, 2]).raw
        for row in range(3):
            alone = method(model)(inputs[row : row + 1], row).raw[0]
            torch.testing.assert_close(together[row], alone, rtol=1e-4, atol=1e-6 * float(alone.abs().max()))
