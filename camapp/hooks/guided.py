"""Guided: while a model runs, what flows back into its rectifiers is clamped to its positive part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from camapp.hooks.functions import FunctionCalls

# Those whose derivative is 0 or 1, by their names in torch: with them it is guided backpropagation to the letter.
PLAIN = ("relu", "relu6", "hardtanh", "threshold")
# Those with a derivative of their own.
SMOOTH = ("celu", "elu", "gelu", "hardswish", "leaky_relu", "mish", "prelu", "rrelu", "selu", "silu", "softplus")


def _functions(kind: str) -> set[Callable[..., Any]]:
    """Every function of torch that is the rectifier ``kind``, in place or not."""
    names = (kind, f"{kind}_", f"_{kind}")
    owners = (F, torch, torch.Tensor, torch._C._nn)
    found = {getattr(owner, name, None) for owner in owners for name in names}
    return {function for function in found if callable(function)}


_KINDS = {function: kind for kind in (*PLAIN, *SMOOTH) for function in _functions(kind)}


class Guided(FunctionCalls):
    """Clamps the gradients that reach the outputs of rectifiers (ReLU and its kin) to their positive part.

    Rectifiers are caught as modules, functions and methods of tensors, in place or not. The clamp is a hook on the
    output as it is at that moment: later changes in place do not move it, and forwards are not altered at all.

    Attributes:
        seen: how often each kind was called, by its name in torch.

    Example:
        >>> with Guided() as guided:
        ...     score = model(inputs)[0, 281]
        ...     (gradient,) = torch.autograd.grad(score, inputs)
    """

    answers = dict.fromkeys(_KINDS, "_clamp")

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, int] = {}

    def _clamp(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        kind = _KINDS[func]
        self.seen[kind] = self.seen.get(kind, 0) + 1
        given = args[0] if args else kwargs.get("input")
        if not isinstance(given, torch.Tensor) or not given._is_view():
            output = func(*args, **kwargs)
            _hook(output)
            return output
        # Behind a change of a view in place the gradient also comes by way of the tensor viewed, past the view. So the
        # change is made on a copy, which all of it passes.
        copy = given.clone()
        output = func(copy, *args[1:], **kwargs) if args else func(**{**kwargs, "input": copy})
        _hook(output)
        return given.copy_(output) if output is copy else output


def _hook(output: Any) -> None:
    if isinstance(output, torch.Tensor) and output.requires_grad:
        output.register_hook(_positive)


def _positive(gradient: torch.Tensor) -> torch.Tensor:
    return gradient.clamp(min=0)
