"""NormClip: the norm of many gradients together, brought down between backward and optimizer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch

from camapp.errors import UsageError
from camapp.hooks.edits import check_number, precise, shrinking
from camapp.hooks.scaling import has_unscaled


class NormClip:
    """Clips the norm over several parameters together, of gradients that are whole: summed over all micro-batches.

    No hook can do this: a hook sees each micro-batch and each parameter alone. Call ``step()`` after the last backward
    and before the optimizer. Under AMP, give it the optimizer and the ``GradScaler``: it unscales the gradients first,
    once.

    All gradients are multiplied by min(1, max_norm / norm), where norm is the Euclidean norm of all of them as one
    vector (Pascanu, Mikolov, Bengio: On the difficulty of training recurrent neural networks, 2013, algorithm 1). Where
    it is NaN or infinite they stay as they are: the scaler skips such a step, and a look at them shall show it.

    Args:
        parameters: the parameters.
        max_norm: the highest norm, from 0.
        scaler: the ``torch.amp.GradScaler`` of the training loop, where ``step`` is not given one.

    Raises:
        UsageError: a norm that is negative or no number.
    """

    def __init__(self, parameters: Iterable[torch.Tensor], max_norm: float, scaler: Any = None) -> None:
        check_number("max_norm", max_norm)
        self._scaler = scaler
        self._parameters = list(parameters)
        self._max_norm = max_norm

    def step(self, optimizer: torch.optim.Optimizer | None = None, *, scaler: Any = None) -> torch.Tensor:
        """Clip, and return the norm before, a tensor of one number (reading it waits for the device).

        Args:
            optimizer: clip only what it holds; needed with a scaler.
            scaler: the ``torch.amp.GradScaler`` that has scaled the loss; the manager's own by default.

        Raises:
            UsageError: a scaler without an optimizer.
        """
        scaler = self._scaler if scaler is None else scaler
        if scaler is not None and scaler.is_enabled():
            if optimizer is None:
                raise UsageError("Gradients that a GradScaler scaled are unscaled for an optimizer. Give it too.")
            if not has_unscaled(scaler, optimizer):
                scaler.unscale_(optimizer)
        mine = self._parameters
        if optimizer is not None:  # another optimizer's gradients may still be scaled
            owned = {id(one) for group in optimizer.param_groups for one in group["params"]}
            mine = [one for one in mine if id(one) in owned]
        gradients = [one.grad for one in mine if one.grad is not None]
        if not gradients:
            return torch.zeros(())
        norm = total_norm(gradients)
        factor = shrinking(norm, self._max_norm)
        for group in _alike(gradients).values():
            torch._foreach_mul_(group, factor.to(group[0].device, group[0].dtype))
        return norm


def total_norm(tensors: list[torch.Tensor]) -> torch.Tensor:
    """The Euclidean norm of all elements as one vector, in float32 or better, on the first tensor's device."""
    first = tensors[0].device
    norms = [
        torch.stack(torch._foreach_norm(group, 2, dtype=precise(group[0].dtype))).to(first)
        for group in _alike(tensors).values()
    ]
    widest = max((one.dtype for one in norms), key=lambda dtype: torch.finfo(dtype).bits)
    return torch.linalg.vector_norm(torch.cat([one.to(widest) for one in norms]))


def _alike(tensors: list[torch.Tensor]) -> dict[tuple[torch.device, torch.dtype], list[torch.Tensor]]:
    groups = defaultdict(list)
    for tensor in tensors:
        groups[tensor.device, tensor.dtype].append(tensor)
    return groups
