"""What a GradScaler multiplied gradients by, read without waiting for a device."""

from __future__ import annotations

from typing import Any

import torch
from torch.amp.grad_scaler import OptState


def scale_of(scaler: torch.amp.GradScaler | None, like: torch.Tensor) -> torch.Tensor | None:
    """The scale of the gradients that a backward gave, as a 0-d tensor; None where there is none.

    Args:
        scaler: the scaler of the training.
        like: a tensor on the device of the training.
    """
    if scaler is None or not scaler.is_enabled():
        return None
    # get_scale() would wait for the device
    return scaler.scale(torch.ones((), dtype=torch.float32, device=like.device))


def has_unscaled(scaler: torch.amp.GradScaler | None, optimizer: torch.optim.Optimizer | None) -> bool:
    """Whether the gradients of parameters have been unscaled since the backward.

    Args:
        scaler: the scaler of the training.
        optimizer: the optimizer that holds the parameters; None for any.
    """
    if scaler is None or not scaler.is_enabled():
        return False
    states: dict[int, dict[str, Any]] = scaler._per_optimizer_states  # torch 2.14 tells it nowhere else
    if optimizer is not None:
        # A plain lookup would create a state: the scaler keeps a defaultdict.
        return id(optimizer) in states and states[id(optimizer)]["stage"] is not OptState.READY
    return any(state["stage"] is not OptState.READY for state in states.values())
