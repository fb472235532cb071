"""Modules in which NaN or infinity is planted, and a locate that also holds the model against what it was before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from camapp.hooks.nonfinite import Finding, RandomState, locate


class Scale(nn.Module):
    """Multiplies by a number, in the forward at one of its calls (or at all)."""

    def __init__(self, factor: float, call: int | None = None) -> None:
        super().__init__()
        self.factor = factor
        self.call = call
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        here = self.call is None or self.calls == self.call
        self.calls += 1
        return x * (self.factor if here else 1.0)


class _ScaledGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: float) -> torch.Tensor:
        ctx.factor = factor
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient * ctx.factor, None


class ScaleGradient(nn.Module):
    """Passes its input on, and multiplies the gradient by a number."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _ScaledGradient.apply(x, self.factor)


def network(planted: nn.Module, place: int) -> nn.Sequential:
    """Convolutions, normalisation and an in-place ReLU, with ``planted`` as the module number ``place``."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.Conv2d(4, 4, 3, padding=1),
        nn.Flatten(),
        nn.Linear(4 * 6 * 6, 3),
    ]
    layers.insert(place, planted)
    return nn.Sequential(*layers)


def pictures(count: int = 2) -> torch.Tensor:
    return torch.randn(count, 3, 6, 6)


def located(
    model: nn.Module, step: Callable[[], torch.Tensor | None], *, random_state: RandomState | None = None
) -> Finding | None:
    """``locate``, with the model and torch's state held against what they were before it."""
    for parameter in model.parameters():
        if parameter.requires_grad and parameter.grad is None:
            parameter.grad = torch.full_like(parameter, 0.25)
    before = state(model)
    try:
        return locate(model, step, random_state=random_state)
    finally:
        assert_as_found(before, state(model))


def state(model: nn.Module) -> dict[str, Any]:
    return {
        "flags": [module.training for module in model.modules()],
        "hooks": [
            [list(getattr(module, name)) for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")]
            for module in model.modules()
        ],
        "wants gradient": [parameter.requires_grad for parameter in model.parameters()],
        "gradient objects": [id(parameter.grad) for parameter in model.parameters()],
        "gradients": [None if p.grad is None else p.grad.clone() for p in model.parameters()],
        "parameters": [parameter.detach().clone() for parameter in model.parameters()],
        "buffer objects": [id(buffer) for buffer in model.buffers()],
        "buffers": [buffer.clone() for buffer in model.buffers()],
        "random": [torch.get_rng_state()],
        "grad mode": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
    }


def assert_as_found(before: dict[str, Any], after: dict[str, Any]) -> None:
    for key, value in before.items():
        if not any(isinstance(part, torch.Tensor) for part in value):
            assert value == after[key], key
            continue
        for one, other in zip(value, after[key], strict=True):
            assert (one is None) == (other is None), key
            if one is not None:
                torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True, msg=key)
