"""Substitute: the network behind a layer goes on with what a function made of the output, perhaps with more rows."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TypeAlias

import torch
from torch import nn

from camapp.hooks.layers import Layer, find_layer
from camapp.hooks.visits import Visits

# Takes what a layer gave (or is given) and returns what the network goes on with.
Alter: TypeAlias = Callable[[torch.Tensor], torch.Tensor]


class Substitute:
    """Hands a layer's output through a function while a model runs; the network behind it goes on with the result.

    The result may have another number of rows than the layer gave, so that the network before it runs on one picture
    and the network behind it on many altered copies. It must own its memory: operations behind the layer may write to
    it. What else the layer returns beside its first tensor is handed on as it is.

    Forwards run without a graph. The hook lives only inside the ``with`` block, heeds only forwards of the thread that
    opened it, and goes on errors too.

    Args:
        model: the model that holds the layer.
        layer: a name, ``name@call``, or ``name:input`` for what goes into it. Of a layer that runs several times and
            whose call is not named, every call is altered.
        alter: the function.

    Raises:
        LayerError: a layer that the model does not have, or that gives no tensor of real numbers.

    Example:
        >>> with as_found(model), Substitute(model, "layer4", lambda output: output.repeat(2, 1, 1, 1)):
        ...     model(inputs).shape  # twice the rows
    """

    def __init__(self, model: nn.Module, layer: str | nn.Module, alter: Alter) -> None:
        self.altered = 0  #: how often the function was called
        self._layer = find_layer(model, layer)
        self._alter = alter
        self._visits: Visits | None = None
        self._grad_mode = True

    def __enter__(self) -> Substitute:
        self.altered = 0
        self._grad_mode = torch.is_grad_enabled()
        self._visits = Visits([self._layer], self._altered).__enter__()
        torch.set_grad_enabled(False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        torch.set_grad_enabled(self._grad_mode)
        if self._visits is not None:
            self._visits.__exit__(kind, error, trace)
        self._visits = None  # it holds this object, and no circle of objects shall wait for the garbage collector

    def _altered(self, layer: Layer, call: int, output: torch.Tensor) -> torch.Tensor:
        self.altered += 1
        return self._alter(output)
