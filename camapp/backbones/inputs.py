"""A batch of inputs as a network wants it, and as it runs fastest."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar
from weakref import WeakSet

import torch
from torch import nn

from camapp.errors import UsageError

T = TypeVar("T")

# Models that reshape maps by ``view``, which channels-last maps do not allow.
_views: WeakSet[nn.Module] = WeakSet()


def check_inputs(inputs: torch.Tensor, model: nn.Module, instead: str = "camapp.explain(model, picture)") -> None:
    """Refuse what is no batch of pictures, signals or volumes.

    Args:
        inputs: (B, C, H, W), (B, C, L) or (B, C, D, H, W), of floats.
        model: the network they are for.
        instead: what takes pictures, for who gave something else than a tensor.

    Raises:
        UsageError: it is none.
    """
    if not isinstance(inputs, torch.Tensor):
        raise UsageError(f"inputs is a {type(inputs).__name__}, not a tensor. For a picture use {instead}.")
    kinds = {type(module) for module in model.modules()}
    forgot_batch = inputs.dim() == 3 and nn.Conv2d in kinds and nn.Conv1d not in kinds
    if inputs.dim() not in (3, 4, 5) or len(inputs) == 0 or forgot_batch:
        raise UsageError(
            f"inputs has the shape {tuple(inputs.shape)}; needed is a batch (B, C, H, W) of one picture or more, or of "
            "signals (B, C, L) or volumes (B, C, D, H, W). A single picture becomes one by inputs.unsqueeze(0)."
        )
    if inputs.is_meta or inputs.layout is not torch.strided:
        raise UsageError(f"inputs are a {inputs.layout} tensor on {inputs.device}; needed is a dense one with values.")
    if not inputs.is_floating_point():
        raise UsageError(f"inputs are {inputs.dtype}, not floats. Scale pixels to 0-1 and normalise them first.")


def like_parameters(inputs: torch.Tensor, model: nn.Module, *, keep_graph: bool) -> torch.Tensor:
    """The inputs as the model's parameters are placed and typed; a normal tensor, also when made in inference mode."""
    if inputs.is_inference():
        inputs = inputs.clone()
    elif not keep_graph:
        inputs = inputs.detach()
    parameter = next((p for p in model.parameters() if p.is_floating_point()), None)
    return inputs if parameter is None else inputs.to(parameter.device, parameter.dtype)


def run_channels_last(model: nn.Module, run: Callable[[torch.Tensor], T], inputs: torch.Tensor) -> T:
    """What ``run`` makes of pictures; on a CPU channels last, where torch 2.14 convolves faster.

    The answers differ by rounding alone. A model that cannot take the layout is remembered.

    Args:
        model: the network that ``run`` calls.
        run: called with the inputs, twice where the first time fails for the layout.
        inputs: (B, C, *size).
    """
    if inputs.dim() == 4 and inputs.device.type == "cpu" and model not in _views:
        try:
            return run(inputs.contiguous(memory_format=torch.channels_last))
        except RuntimeError as error:
            if "view size is not compatible" not in str(error):
                raise
            _views.add(model)
    return run(inputs)
