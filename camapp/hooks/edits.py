"""Edits: changes of activations and gradients, each a function that returns a new tensor."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from camapp.errors import UsageError

# Takes a tensor and the scale of the loss (a tensor of one number, or None for 1); returns another like it.
Change = Callable[[torch.Tensor, torch.Tensor | None], torch.Tensor]


@dataclass(frozen=True)
class Edit:
    """One change of a tensor.

    Edits of gradients count in the gradients of the loss itself: where a ``GradScaler`` has multiplied the loss, limits
    are multiplied by the same.

    Args:
        name: what it does, in a word.
        change: takes the tensor and the scale of the loss (None for 1), returns a new tensor like it.
        any_shape: whether the new tensor may have another shape.
        repeatable: whether it changes the same tensor in the same way when checkpointing runs a forward again.
    """

    name: str
    change: Change
    any_shape: bool = False
    repeatable: bool = True

    def __call__(self, tensor: torch.Tensor, loss_scale: torch.Tensor | None = None) -> torch.Tensor:
        """The changed tensor; the one given stays as it is."""
        return self.change(tensor, loss_scale)


def clip_value(limit: float) -> Edit:
    """Clamp every element to ``[-limit, limit]``; NaN stays NaN.

    Raises:
        UsageError: a limit that is negative or no number.
    """
    check_number("limit", limit)

    def change(tensor: torch.Tensor, loss_scale: torch.Tensor | None) -> torch.Tensor:
        if loss_scale is None:
            return tensor.clamp(-limit, limit)
        scaled = loss_scale.to(tensor.device, precise(tensor.dtype)) * limit
        return torch.minimum(torch.maximum(tensor, -scaled), scaled).to(tensor.dtype)

    return Edit("clip_value", change)


def clip_norm(max_norm: float) -> Edit:
    """Multiply the whole tensor by min(1, max_norm / norm), its Euclidean norm taken in float32 or better.

    A tensor whose norm is NaN or infinite stays as it is: no factor would make it right, and a zero would hide it.
    (Pascanu, Mikolov, Bengio: On the difficulty of training recurrent neural networks, 2013, algorithm 1, for one
    tensor.)

    Raises:
        UsageError: a norm that is negative or no number.
    """
    check_number("max_norm", max_norm)

    def change(tensor: torch.Tensor, loss_scale: torch.Tensor | None) -> torch.Tensor:
        norm = _norm(tensor)
        limit = max_norm if loss_scale is None else loss_scale.to(norm) * max_norm
        return (tensor * shrinking(norm, limit)).to(tensor.dtype)

    return Edit("clip_norm", change)


def scale(factor: float) -> Edit:
    """Multiply by ``factor``.

    Raises:
        UsageError: a factor that is not finite.
    """
    check_number("factor", factor, lowest=-math.inf)
    return Edit("scale", lambda tensor, loss_scale: tensor * factor)


def reverse(factor: float = 1.0) -> Edit:
    """Multiply by ``-factor``: gradient reversal (Ganin and Lempitsky: Unsupervised Domain Adaptation by
    Backpropagation, 2015, equations 7 and 8).

    Raises:
        UsageError: a factor that is not finite.
    """  # noqa: D205 - one sentence with its source
    check_number("factor", factor, lowest=-math.inf)
    return Edit("reverse", lambda tensor, loss_scale: tensor * -factor)


def zero() -> Edit:
    """Put zeros in its place, also of NaN and infinity.

    Where a gradient shall simply stop and nothing else needs the graph, ``tensor.detach()`` in the model is cheaper: it
    saves the backward that this one still runs.
    """
    return Edit("zero", lambda tensor, loss_scale: torch.zeros_like(tensor))


def add_noise(std: float, *, generator: torch.Generator | None = None) -> Edit:
    """Add normal noise of mean 0 and standard deviation ``std``.

    Args:
        std: the standard deviation.
        generator: where the numbers come from; torch's own by default, on the device of the generator.

    Raises:
        UsageError: a deviation that is negative or no number.
    """
    check_number("std", std)

    def change(tensor: torch.Tensor, loss_scale: torch.Tensor | None) -> torch.Tensor:
        device = tensor.device if generator is None else generator.device
        noise = torch.randn(tensor.shape, generator=generator, device=device, dtype=precise(tensor.dtype))
        noise = noise.to(tensor.device) * std
        if loss_scale is not None:
            noise = noise * loss_scale.to(noise)
        return (tensor + noise).to(tensor.dtype)

    return Edit("add_noise", change, repeatable=generator is None)  # torch's own state is rewound


def replace(function: Callable[[torch.Tensor], torch.Tensor], *, any_shape: bool = False) -> Edit:
    """Put in its place what ``function`` makes of it.

    Args:
        function: takes the tensor, returns a new one of the same shape, dtype and device; must not change it in place.
        any_shape: the shape may be another (of activations, where the network behind can take it).

    Raises:
        UsageError: not a function.
    """
    if not callable(function):
        raise UsageError(f"replace takes a function of a tensor, not {type(function).__name__}.")
    return Edit("replace", lambda tensor, loss_scale: function(tensor), any_shape)


def _norm(tensor: torch.Tensor) -> torch.Tensor:
    """The Euclidean norm, also where squares of the elements would overflow or vanish."""
    values, dtype = values_of(tensor), precise(tensor.dtype)
    if not values.numel():
        return torch.zeros((), dtype=dtype, device=values.device)
    largest = torch.linalg.vector_norm(values, math.inf).to(dtype)
    unit = torch.where((largest > 0) & largest.isfinite(), largest, torch.ones_like(largest))
    return torch.linalg.vector_norm(values.to(dtype) / unit) * unit


def values_of(tensor: torch.Tensor) -> torch.Tensor:
    """The elements that are stored: all of an ordinary tensor; those of a sparse one are not all its zeros."""
    return tensor.coalesce().values() if tensor.layout is torch.sparse_coo else tensor


def precise(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which norms of a tensor are taken: float32, or its own where that is wider."""
    return torch.promote_types(dtype, torch.float32)


def shrinking(norm: torch.Tensor, limit: float | torch.Tensor) -> torch.Tensor:
    """The factor that brings a norm down to a limit: min(1, limit / norm), and 1 where the norm is not finite."""
    factor = (limit / norm.clamp(min=torch.finfo(norm.dtype).tiny)).clamp(max=1.0)
    return torch.where(norm.isfinite(), factor, torch.ones_like(factor))


def check_number(name: str, value: float, *, lowest: float = 0.0) -> None:
    """Refuse what is no finite number from ``lowest`` on.

    Raises:
        UsageError: it is.
    """
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or value < lowest:
        raise UsageError(f"{name} is a finite number{' from 0' if lowest == 0 else ''}, not {value!r}.")
