"""Hooks that never fired are named, with the reason."""

from __future__ import annotations

import re
import sys

import pytest
import torch
from torch import nn

from camapp.hooks.manager import HookManager
from tests.networks import Reused

X = torch.randn(2, 4)


class Odd(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused, self.direct = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.attention = nn.MultiheadAttention(4, 1, batch_first=True)
        self.functional = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.direct.forward(self.used(x))
        x = self.attention(x[None], x[None], x[None])[0][0]
        return nn.functional.linear(x, self.functional.weight, self.functional.bias)


REASONS = {
    "unused": "unused for these inputs",
    "direct": r"its .forward was called directly by forward \(test_silence.py:\d+\)",
    "attention.out_proj": r"never called: torch\.nn\.functional\.multi_head_attention_forward uses its parameters",
    "functional": r"never called: torch\.nn\.functional\.linear uses its parameters",
}


@pytest.mark.parametrize("layer", REASONS)
def test_the_reason_is_seen_by_running_the_model_once_more(layer: str) -> None:
    model = Odd()
    with HookManager(model) as hooks:
        hooks.record([layer, "used"])
        state, profiler = torch.get_rng_state(), sys.getprofile()
        model(X)
        (silent,) = hooks.silent(X)
        assert silent.layer == layer
        assert re.search(REASONS[layer], silent.why), silent.why
        assert torch.equal(torch.get_rng_state(), state)
        assert sys.getprofile() is profiler


def test_without_inputs_it_says_what_can_be_told():
    model = Odd()
    with HookManager(model) as hooks:
        hooks.record(["used", "unused", "direct", "attention.out_proj"], name="r")
        assert {one.why for one in hooks.silent()} == {"the model has not run since it was registered"}
        model(X).sum().backward()
        why = {one.layer: one.why for one in hooks.silent()}
        assert list(why) == ["unused", "direct", "attention.out_proj"]
        assert "it is unused, or its .forward" in why["unused"]
        assert "its parameters have gradients" in why["direct"]
        assert "nn.MultiheadAttention" in why["attention.out_proj"]
        assert "never fired: r unused: it was never called" in hooks.report()


def test_a_layer_that_ran_without_a_backward_or_at_another_call_is_no_unused_layer():
    model = Reused()
    with HookManager(model) as hooks:
        hooks.record("one", of="gradient")
        hooks.record("relu@7")
        hooks.full_backward("head", lambda *_: None)
        hooks.forward("unused", lambda *_: None, name="mine")
        model(torch.randn(1, 3, 8, 8))
        why = {one.name: one.why for one in hooks.silent()}
    assert "no gradient came back" in why["record one"]
    assert "never with the call" in why["record relu@7"]
    assert "unused" in why["mine"]
    assert "full_backward head" in why


def test_hooks_that_came_too_late_are_told_so():
    model = Reused()
    inputs = torch.randn(1, 3, 8, 8)
    model(inputs)
    with HookManager(model) as hooks:
        hooks.record("one")
        assert "none ran since it was registered" in hooks.silent(inputs)[0].why
        assert "one" not in hooks.activations
