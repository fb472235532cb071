"""The hooks of an inspection: which forwards they heed, and when a new one begins."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from camapp.hooks.as_found import here, in_backward
from camapp.hooks.handles import Handles
from camapp.hooks.inspector.forward import Forward, Seen
from camapp.hooks.inspector.watched import Watched


class Recorder:
    """Measures the last forward that records a graph, and its backward, while it is armed.

    Heeds only the thread that made it, and no forward of an explanation within it. A forward is what one call of the
    model does; of models whose parts are called one by one, all that they do until a backward. Forwards that record
    no graph, such as those of a validation, are passed over.

    Args:
        most: how many elements of a tensor the quantiles may rest on.
        state: what is asked before each forward that is heeded, armed or not; the last answer is ``begun_with``.
    """

    def __init__(self, most: int, state: Callable[[], Any] | None = None) -> None:
        self.armed = False
        self.begun_with: Any = None
        self._most = most
        self._state = state
        self._here = here()
        self._forward: Forward | None = None
        self._passed_over = False

    def attach(self, model: nn.Module, layers: Iterable[Watched], hooks: Handles) -> None:
        """Put the hooks on."""
        hooks.forward_pre(model, self._on_model)
        for layer in layers:
            hooks.forward(layer.module, self._on_layer(layer))
        hooks.forward(model, self._on_model_left, always=True)

    def taken(self) -> list[Seen]:
        """What was seen of the last forward; the next one begins anew."""
        forward, self._forward = self._forward, None
        return forward.close() if forward is not None else []

    def _on_model(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if here() != self._here or in_backward():
            return
        self._passed_over = not torch.is_grad_enabled()
        if self._passed_over:
            return
        if self._state is not None:
            self.begun_with = self._state()
        if self.armed:
            self._begin(whole=True)

    def _on_model_left(self, module: nn.Module, args: Any, output: Any) -> None:
        if here() != self._here or in_backward():
            return
        self._passed_over = False
        if self._forward is not None:
            self._forward.ended()

    def _on_layer(self, layer: Watched) -> Callable[..., None]:
        def on_layer(module: nn.Module, args: Any, output: Any) -> None:
            if not self.armed or self._passed_over or here() != self._here:
                return
            if in_backward():
                if self._forward is not None and torch.is_grad_enabled():
                    self._forward.visit_again(layer, output)
                return
            forward = self._current()
            if forward is not None:
                forward.visit(layer, output)

        return on_layer

    def _current(self) -> Forward | None:
        """The forward that a call of a layer belongs to; None where the call belongs to none."""
        forward = self._forward
        if forward is not None and not forward.backward_began:
            return forward
        if forward is not None and forward.whole:
            return None  # after the backward, and outside of any call of the model
        if not torch.is_grad_enabled():
            return None
        return self._begin(whole=False)

    def _begin(self, *, whole: bool) -> Forward:
        if self._forward is not None:
            self._forward.close()
        self._forward = Forward(self._most, whole=whole)
        return self._forward
