"""What passes give: what one layer gave for a method to read, and what was read, with the scores and the targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import torch

from camapp.cam.targets.output import Output
from camapp.cam.targets.plan import Aims


@dataclass(frozen=True)
class Seen:
    """What one layer gave, in the layer's own layout, for a method to read.

    Args:
        layer: the layer's key.
        activation: one row a picture, B rows.
        gradient: of the targets' scores; B rows for one target, or B * K, those of a picture together. None where no
            gradient was asked for.
        curvature: the Hessian of the score times the activation, like ``gradient``; None unless asked for.
    """

    layer: str
    activation: torch.Tensor
    gradient: torch.Tensor | None = None
    curvature: torch.Tensor | None = None


# What a method takes from what a layer gave: any number of tensors whose first axis is the gradient's (B or B * K), or
# the activation's where there is no gradient.
Read: TypeAlias = Callable[[Seen], tuple[torch.Tensor, ...]]


@dataclass(frozen=True)
class Shot:
    """What the passes over B pictures with K targets each gave; of N = B * K rows a picture's targets are together.

    Args:
        read: by layer, what ``Read`` took of it: tensors of N rows (of B rows where no gradient was asked for).
        aims: the targets explained.
        scores: (B, K), the targets' scores.
        output: what was explained of the model's output, detached: a tensor (B, ...) or a list of B.
        calls: by layer, how often it ran in one forward.
    """

    read: dict[str, tuple[torch.Tensor, ...]]
    aims: Aims
    scores: torch.Tensor
    output: Output
    calls: dict[str, int] = field(default_factory=dict)
