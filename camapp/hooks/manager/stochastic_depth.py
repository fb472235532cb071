"""Stochastic depth: residual blocks that are passed by at random while the network trains."""

from __future__ import annotations

from threading import get_ident
from typing import Any

import torch
from torch import nn

from camapp.errors import LayerError, UsageError
from camapp.hooks.as_found import in_backward
from camapp.hooks.manager.registry import Extra
from camapp.hooks.manager.session import Session

MODES = ("row", "batch")


class StochasticDepth:
    """Leaves out what a block adds to its input with probability ``p``, and enlarges it by 1 / (1 - p) otherwise.

    With input x and output y the network goes on with x + b (y - x) / (1 - p), where b is 1 with probability 1 - p and
    else 0. Its expectation is y, so that the block is left alone in eval mode. (Huang et al.: Deep Networks with
    Stochastic Depth, 2016, section 3, with the rescaling moved from the test to the training.)

    Args:
        p: how often it is passed by, from 0 up to but not including 1.
        mode: ``"row"`` draws for each row of the batch, ``"batch"`` once for all.
        generator: where the numbers come from; torch's own by default.
        session: it is done only while this is heeded.
        extra: where it is counted how often a block ran so.

    Raises:
        UsageError: a probability or mode that is none.
    """

    def __init__(self, p: float, mode: str, generator: torch.Generator | None, session: Session, extra: Extra) -> None:
        if isinstance(p, bool) or not isinstance(p, int | float) or not 0 <= p < 1:
            raise UsageError(f"p is a probability from 0 up to, but not including, 1, not {p!r}.")
        if mode not in MODES:
            raise UsageError(f'mode is "row" or "batch", not {mode!r}.')
        self._extra = extra
        self._p = float(p)
        self._mode = mode
        self._generator = generator
        self._session = session
        self._given: dict[int, list[torch.Tensor | None]] = {}

    def before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Remember the block's input: a copy, since the block may change it in place."""
        due = self._session.heeded and module.training and self._p > 0
        first = next((value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)), None)
        self._given.setdefault(get_ident(), []).append(first.clone() if due and first is not None else None)
        if due and first is None:
            raise LayerError(f'"{self._extra.place}" is given no tensor that could be handed on in its place.')

    def after(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> torch.Tensor | None:
        """What the network goes on with."""
        waiting = self._given.get(get_ident())
        given = waiting.pop() if waiting else None  # another's hook may have raised before ours was called
        if given is None or output is None:
            return None
        if not isinstance(output, torch.Tensor) or (output.shape, output.dtype) != (given.shape, given.dtype):
            raise LayerError(
                f'"{self._extra.place}" takes {_shape(given)} and gives {_shape(output)}, so it cannot be passed by. '
                "Stochastic depth is for residual blocks, which keep shape and dtype."
            )
        if self._generator is not None and in_backward():
            raise UsageError(
                f'"{self._extra.place}" is checkpointed, and runs again within the backward, where its generator would '
                "draw other numbers. Leave generator= out: torch's own state is rewound there."
            )
        self._extra.fired += 1
        shape = (len(given), *[1] * (given.dim() - 1)) if self._mode == "row" and given.dim() else ()
        device = output.device if self._generator is None else self._generator.device
        drawn = torch.rand(shape, generator=self._generator, device=device).to(output.device)
        factor = (drawn >= self._p).to(output.dtype) / (1 - self._p)
        return given + factor * (output - given)


def _shape(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    return f"{'x'.join(map(str, value.shape))} {str(value.dtype).removeprefix('torch.')}"
