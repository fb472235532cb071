"""Attentions: what is recorded is the matrix that the model used, and the model's numbers stay what they are."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from camapp.errors import LayerError
from camapp.hooks.as_found import as_found
from camapp.hooks.attention import Attentions, trace_attention

QUERY, KEY, VALUE = (torch.randn(2, 4, 6, 5, generator=torch.Generator().manual_seed(i)) for i in range(3))
MASK = torch.rand(6, 6, generator=torch.Generator().manual_seed(3)) > 0.3
MASK.fill_diagonal_(True)
OPTIONS: list[dict[str, Any]] = [
    {},
    {"scale": 0.7},
    {"is_causal": True},
    {"attn_mask": MASK},
    {"attn_mask": torch.randn(2, 1, 6, 6, generator=torch.Generator().manual_seed(4))},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_the_matrix_of_fused_attention_makes_its_output_and_the_gradients_are_its_own(options: dict[str, Any]) -> None:
    inputs = [one.clone().requires_grad_() for one in (QUERY, KEY, VALUE)]
    wanted = F.scaled_dot_product_attention(*inputs, **options)
    gradients = torch.autograd.grad(wanted.sin().sum(), inputs)
    with Attentions(2, graph=True) as attentions:
        output = F.scaled_dot_product_attention(*inputs, **options)
    (matrix,) = attentions.matrices
    assert torch.equal(output, wanted)
    torch.testing.assert_close(matrix @ VALUE, wanted, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(matrix.sum(-1), torch.ones(2, 4, 6))
    for one, other in zip(torch.autograd.grad(output.sin().sum(), inputs, retain_graph=True), gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    (found,) = torch.autograd.grad(output.sin().sum(), matrix)
    torch.testing.assert_close(found, wanted.cos() @ VALUE.transpose(-1, -2), rtol=1e-5, atol=1e-5)


def test_heads_that_share_keys_and_values_are_told_apart() -> None:
    key, value = KEY[:, :2], VALUE[:, :2]
    with Attentions(2, graph=True) as attentions:
        output = F.scaled_dot_product_attention(QUERY, key, value, enable_gqa=True)
    torch.testing.assert_close(attentions.matrices[0] @ value.repeat_interleave(2, 1), output, rtol=1e-5, atol=1e-6)


MULTI_HEAD: list[dict[str, Any]] = [
    {"batch_first": True},
    {"batch_first": False},
    {"batch_first": True, "bias": False},
    {"batch_first": True, "kdim": 6, "vdim": 10},
]


@pytest.mark.parametrize("options", MULTI_HEAD)
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("masked", [True, False])
def test_multi_head_attention_is_recorded_with_its_output_and_gradients_unchanged(
    options: dict[str, Any], need_weights: bool, masked: bool
) -> None:
    module = nn.MultiheadAttention(8, 2, **options).eval()
    query = torch.randn(3, 5, 8) if options["batch_first"] else torch.randn(5, 3, 8)
    key, value = query, query
    if "kdim" in options:
        key, value = torch.randn(3, 5, 6), torch.randn(3, 5, 10)
    value = value.clone().requires_grad_()
    how = {"need_weights": need_weights, "attn_mask": torch.randn(5, 5) if masked else None}
    wanted, weights = module(query, key, value, **how)
    (gradient,) = torch.autograd.grad(wanted.sin().sum(), value)
    with Attentions(3, graph=True) as attentions:
        output, same = module(query, key, value, **how)
    (matrix,) = attentions.matrices
    assert torch.equal(output, wanted)
    assert (same is None) == (weights is None)
    if same is not None:
        assert torch.equal(same, weights)
        torch.testing.assert_close(matrix.mean(1), weights)
    torch.testing.assert_close(
        torch.autograd.grad(output.sin().sum(), value, retain_graph=True)[0], gradient, rtol=1e-4, atol=1e-6
    )
    # The matrix is on the way to the output: entry (i, j) of head h counts by what token j gives to the sum through h.
    (found,) = torch.autograd.grad(output.sum(), matrix)
    weight = module.v_proj_weight if "kdim" in options else module.in_proj_weight[16:]
    bias = None if module.in_proj_bias is None else module.in_proj_bias[16:]
    given = F.linear(value if options["batch_first"] else value.transpose(0, 1), weight, bias)  # (3, 5, 8)
    gives = (given * module.out_proj.weight.sum(0)).unflatten(2, (2, 4)).sum(-1)  # (3, 5, 2)
    torch.testing.assert_close(found, gives.permute(0, 2, 1)[:, :, None].expand(3, 2, 5, 5), rtol=1e-4, atol=1e-5)


def test_attention_written_out_is_recorded_on_the_way_to_the_output_also_with_joined_heads() -> None:
    for shape in ((2, 4, 6, 6), (8, 6, 6)):
        scores = torch.randn(shape, requires_grad=True)
        for softmax in (
            lambda s: s.softmax(dim=-1),
            lambda s: torch.softmax(s, 2 if s.dim() == 3 else 3),
            lambda s: F.softmax(s, dim=-1),
            nn.Softmax(dim=-1),
        ):
            with Attentions(2, graph=True) as attentions:
                output = softmax(scores)
                output.mul_(2.0)  # as a dropout in place would
            (matrix,) = attentions.matrices
            assert matrix.shape == (2, 4, 6, 6)
            assert torch.equal(2 * matrix.view(shape), output)
            (gradient,) = torch.autograd.grad(output.sum(), matrix)
            assert gradient.unique().tolist() == [2.0]


def test_other_softmaxes_are_no_attention_and_queries_of_another_number_are_counted() -> None:
    with Attentions(2) as attentions:
        torch.randn(2, 5).softmax(1)
        torch.randn(2, 5, 8, 8).softmax(1)
        torch.randn(2, 4, 6, 7).softmax(-1)
        F.scaled_dot_product_attention(QUERY[:, :, :1], KEY, VALUE)
        nn.MultiheadAttention(8, 2).eval()(torch.randn(1, 2, 8), torch.randn(5, 2, 8), torch.randn(5, 2, 8))
    assert attentions.matrices == []
    assert attentions.skipped == 2


@pytest.mark.parametrize("options", [{"add_bias_kv": True}, {"add_zero_attn": True}])
def test_attention_to_more_than_the_tokens_is_refused(options: dict[str, Any]) -> None:
    module, tokens = nn.MultiheadAttention(8, 2, batch_first=True, **options).eval(), torch.randn(2, 5, 8)
    with pytest.raises(LayerError, match="more than its tokens"), Attentions(2):
        module(tokens, tokens, tokens)


def test_dropout_in_eval_mode_is_refused() -> None:
    with pytest.raises(LayerError, match="at random"), Attentions(2):
        F.scaled_dot_product_attention(QUERY, KEY, VALUE, dropout_p=0.1)


def test_other_threads_and_nested_explanations_are_left_alone() -> None:
    with Attentions(2) as attentions:
        thread = threading.Thread(target=lambda: F.scaled_dot_product_attention(QUERY, KEY, VALUE))
        thread.start()
        thread.join()
        with as_found(nn.Identity()):
            F.scaled_dot_product_attention(QUERY, KEY, VALUE)
    assert attentions.matrices == []


def test_a_trace_names_the_modules_around_each_attention() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.ModuleDict({"encoder": nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)})
    model.forward = lambda x: model["encoder"](x)  # type: ignore[method-assign]
    trace = trace_attention(model, torch.randn(1, 5, 8))
    assert [call.modules for call in trace.calls] == [
        ("encoder", "encoder.layers.0", "encoder.layers.0.self_attn"),
        ("encoder", "encoder.layers.1", "encoder.layers.1.self_attn"),
    ]
    assert [call.shape for call in trace.calls] == [(1, 2, 5, 5)] * 2
    assert trace.outputs["encoder.layers.0"] == (1, 5, 8)
