"""Hooks are owned: those registered go again, all others stay, and copies of the model carry none along."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from torch import nn

from camapp.hooks.handles import Handles


def hooks_of(model: nn.Module) -> int:
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    marks = ("_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks_with_kwargs")
    return sum(len(getattr(module, kind)) for module in model.modules() for kind in (*kinds, *marks))


def hooked() -> tuple[nn.Module, Handles, list[str]]:
    model, seen = nn.Sequential(nn.Linear(2, 2), nn.ReLU()), []  # type: ignore[var-annotated]
    hooks = Handles()
    hooks.forward(model[0], lambda *_: seen.append("forward"), always=True, with_kwargs=True)
    hooks.forward_pre(model[0], lambda *_: seen.append("pre"))
    hooks.full_backward(model[0], lambda *_: seen.append("backward"))
    hooks.full_backward_pre(model[0], lambda *_: seen.append("backward pre"))
    hooks.tensor(model[0].weight, lambda *_: seen.append("tensor"))
    hooks.post_accumulate(model[0].weight, lambda *_: seen.append("accumulated"))
    return model, hooks, seen


def run(model: nn.Module) -> None:
    model(torch.randn(3, 2)).sum().backward()


def test_every_kind_of_hook_is_called_counted_and_removed():
    model, hooks, seen = hooked()
    foreign: list[Any] = []
    model[0].register_forward_hook(lambda *_: foreign.append(1))
    assert hooks.remaining() == 6
    run(model)
    assert sorted(seen) == sorted(["pre", "forward", "backward pre", "backward", "tensor", "accumulated"])
    hooks.remove()
    hooks.remove()
    assert hooks.remaining() == 0
    run(model)
    assert len(seen) == 6
    assert len(foreign) == 2
    assert hooks_of(model) == 1


def test_a_hook_that_someone_else_removed_is_not_counted():
    model, hooks, _ = hooked()
    model[0]._forward_hooks.clear()
    assert hooks.remaining() == 5
    hooks.remove()


def deep_copied(model: nn.Module) -> nn.Module:
    return copy.deepcopy(model)


def pickled(model: nn.Module) -> nn.Module:
    return pickle.loads(pickle.dumps(model))


def saved(model: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("copied", [deep_copied, pickled, saved])
def test_a_copy_of_a_hooked_model_calls_none_of_the_hooks_and_soon_has_none(copied: Any) -> None:
    model, hooks, seen = hooked()
    twin = copied(model)
    run(twin)
    assert seen == []
    assert hooks_of(twin) == 0
    assert not twin[0].weight._backward_hooks
    run(model)
    assert len(seen) == 6
    hooks.remove()
    assert hooks_of(model) == 0
