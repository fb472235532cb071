"""Session: what all hooks of one manager share: the step, whether they are heeded, and what they recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from camapp.hooks.as_found import here, in_backward
from camapp.hooks.changed_views import ChangedViews
from camapp.hooks.handles import Handles
from camapp.hooks.manager.recordings import Recordings
from camapp.hooks.scaling import scale_of


class Session:
    """The state behind a ``HookManager``; hooks hold it and not the manager, which can so be dropped.

    Args:
        scaler: the ``torch.amp.GradScaler`` of the training loop, or None.
    """

    def __init__(self, scaler: Any = None) -> None:
        self.step = -1  #: the number of the forward that runs or ran last
        self.open = True  #: False once the manager is closed
        self.paused = 0  #: how many ``paused()`` blocks there are around
        self.recordings = Recordings()
        self.handles = Handles()
        self.scaler = scaler
        self.on_begin: list[Callable[[int], None]] = []
        self._more: list[Handles] = []
        self._passing = Handles()  # on tensors of the forward that runs, whose graph may outlive the manager
        self._views = ChangedViews()
        self._where = here()

    def begin_step(self, *_: Any) -> None:
        """A forward of the model begins."""
        if not self.heeded or not self.mine or in_backward():
            return
        self.step += 1
        self._passing = Handles()
        self._views = ChangedViews()
        for begin in self.on_begin:
            begin(self.step)

    @property
    def heeded(self) -> bool:
        """Whether hooks do anything at present."""
        return self.open and not self.paused

    @property
    def mine(self) -> bool:
        """Whether this code runs in the thread that opened the manager, outside of any explanation."""
        return here() == self._where

    def end_forward(self, *_: Any) -> None:
        """A forward of the model is over: look after views that it changed in place, and let go of them."""
        if self.mine and not in_backward():
            self._views.settle()

    def on_gradient(
        self,
        tensor: torch.Tensor,
        hook: Callable[[torch.Tensor], torch.Tensor | None],
        passed_by: Callable[[torch.Tensor], None],
    ) -> None:
        """Call ``hook`` with the gradient of a tensor of this forward.

        Of a view that is changed in place later, the gradient (or a part of it) goes past the hook; ``passed_by`` is
        called with that, and can only look.
        """
        self._passing.tensor(tensor, hook)
        self._views.watch(tensor, passed_by)

    def loss_scale(self, like: torch.Tensor) -> torch.Tensor | None:
        """What the scaler multiplied the loss by, on the device of a tensor; None without one."""
        return scale_of(self.scaler, like)

    def more_handles(self) -> Handles:
        """Handles that can be removed before the others, and go with them at the latest."""
        self._more.append(Handles())
        return self._more[-1]

    def close(self) -> None:
        """Remove every hook; what was recorded stays."""
        self.open = False
        self._views = ChangedViews()
        for handles in (self._passing, self.handles, *self._more):
            handles.remove()

    def remaining(self) -> int:
        """How many hooks are still registered."""
        return sum(handles.remaining() for handles in (self._passing, self.handles, *self._more))
