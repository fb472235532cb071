"""Substitute: the network behind a layer goes on with what a function made of the output, perhaps with more rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import nn

from camapp.hooks.capture import Capture
from camapp.hooks.layers import Layer

# Takes what a layer gave (or is given) and returns what the network goes on with.
Alter: TypeAlias = Callable[[torch.Tensor], torch.Tensor]


class Substitute(Capture):
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
        super().__init__(model, [layer], graph=False)
        self.altered = 0
        self._alter = alter

    def __enter__(self) -> Substitute:
        self.altered = 0  #: how often the function was called
        super().__enter__()
        return self

    def _tap(self, layer: Layer, call: int, output: torch.Tensor) -> torch.Tensor:
        self.altered += 1
        return self._alter(output)
