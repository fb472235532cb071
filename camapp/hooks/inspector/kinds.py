"""What the values of a layer mean by its class: where zeros are dead units, and what is a limit."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.instancenorm import _InstanceNorm

from camapp.hooks.inspector.figures import Bounds

# The beginnings of class names, as timm and transformers have activation functions of their own beside torch's.
_CAN_BE_ZERO = (
    "relu", "gelu", "newgelu", "fastgelu", "quickgelu", "silu", "swish", "mish", "hardswish", "hardmish", "threshold",
    "softshrink", "hardshrink",
)  # fmt: skip
_BOUNDED = {"sigmoid": (0.0, 1.0), "hardsigmoid": (0.0, 1.0), "tanh": (-1.0, 1.0), "softsign": (-1.0, 1.0)}


def zeros_mean_dead(module: nn.Module) -> bool:
    """Whether a unit that is always 0 behind this module has died: behind ReLU and its kin."""
    return type(module).__name__.lower().startswith(_CAN_BE_ZERO)


def bounds_of(module: nn.Module) -> Bounds | None:
    """The limits of a bounded activation function; None for any other module.

    Of ReLU6 only the upper one counts: what is at 0 is counted as zeros.
    """
    if isinstance(module, nn.ReLU6):
        return Bounds(None, 6.0, 6.0)
    if isinstance(module, nn.Hardtanh):
        return Bounds(module.min_val, module.max_val, module.max_val - module.min_val)
    limits = _BOUNDED.get(type(module).__name__.lower())
    return None if limits is None else Bounds(*limits, limits[1] - limits[0])


def channel_axes(modules: Iterable[nn.Module]) -> dict[nn.Module, int | None]:
    """The axis of the channels that each module works on: 1 or -1, by the last layer before it that tells.

    Args:
        modules: those of a network in the order of registration.

    Returns:
        By module; None where no layer before it tells.
    """
    found: dict[nn.Module, int | None] = {}
    told: int | None = None
    for module in modules:
        if (
            isinstance(module, _ConvNd | _BatchNorm | _InstanceNorm | nn.GroupNorm)
            or type(module).__name__[-2:] == "2d"
        ):
            told = 1
        elif isinstance(module, nn.Linear | nn.LayerNorm | nn.RMSNorm):
            told = -1
        found[module] = told
    return found


def unit_axis(told: int | None, dimensions: int) -> int:
    """The axis of the channels: 1 of maps (B, C, H, W), the last one of tokens (B, N, C) and vectors (B, C)."""
    if dimensions < 3 or told is None:
        return 1 if dimensions > 3 else -1
    return told
