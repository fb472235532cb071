"""Biases: while a model runs, every bias that its convolutions, linear layers and normalisations add."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

from camapp.hooks.functions import FunctionCalls


@dataclass(frozen=True)
class Bias:
    """One bias, and where it was added.

    Args:
        kind: the function that added it, by its name in torch.
        output: the function's output, within the graph.
        bias: the bias, shaped so that it spreads over ``output``.
        channels_last: whether the output's channels are its last axis; otherwise they are its second.
    """

    kind: str
    output: torch.Tensor
    bias: torch.Tensor
    channels_last: bool


_CONVOLUTIONS = (
    F.conv1d,
    F.conv2d,
    F.conv3d,
    F.conv_transpose1d,
    F.conv_transpose2d,
    F.conv_transpose3d,
)


class Biases(FunctionCalls):
    """Records biases, explicit ones and the implicit one of a BatchNorm that predicts.

    A BatchNorm with running mean m and variance v is the linear map x * g / s + (b - g m / s) with s = sqrt(v + eps);
    the second term is its bias. Of LayerNorm, GroupNorm and InstanceNorm, whose means depend on the input, it is b
    alone. Biases that a model adds by itself (``x + self.bias``, position embeddings) are not seen, nor are those
    within a fused function, such as the projections of ``nn.MultiheadAttention``.

    Attributes:
        found: the biases, in the order of the calls.
    """

    answers = {  # noqa: RUF012 - declared by the class above as one for all
        **dict.fromkeys(_CONVOLUTIONS, "_on_convolution"),
        F.linear: "_on_linear",
        F.batch_norm: "_on_batch_norm",
        F.layer_norm: "_on_layer_norm",
        F.group_norm: "_on_scaled",
        F.instance_norm: "_on_scaled",
    }

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Bias] = []

    def _on_convolution(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._add(func, func(*args, **kwargs), _given("bias", 2, args, kwargs))

    def _on_linear(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._add(func, func(*args, **kwargs), _given("bias", 2, args, kwargs), channels_last=True)

    def _on_batch_norm(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        names = ("running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
        mean, variance, weight, bias, training, _, eps = (
            _given(name, place, args, kwargs) for place, name in enumerate(names, start=1)
        )
        if mean is not None and not training:
            scale = (variance + (1e-5 if eps is None else eps)).rsqrt()
            shift = -mean * (scale if weight is None else scale * weight)
            bias = shift if bias is None else bias + shift
        return self._add(func, func(*args, **kwargs), bias)

    def _on_layer_norm(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._add(func, func(*args, **kwargs), _given("bias", 3, args, kwargs), channels_last=True)

    def _on_scaled(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        place = 3 if func is F.group_norm else 4
        return self._add(func, func(*args, **kwargs), _given("bias", place, args, kwargs))

    def _add(
        self, func: Callable[..., Any], output: Any, bias: torch.Tensor | None, *, channels_last: bool = False
    ) -> Any:
        if bias is None or not isinstance(output, torch.Tensor) or not output.requires_grad:
            return output
        spread = bias.detach() if channels_last else bias.detach().view(-1, *[1] * (output.dim() - 2))
        self.found.append(Bias(func.__name__, output, spread, channels_last))
        # What is recorded is not what the model goes on with, which it may change in place.
        return output.clone()


def _given(name: str, place: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An argument, by its name or its place; None where it is not given."""
    return args[place] if place < len(args) else kwargs.get(name)
