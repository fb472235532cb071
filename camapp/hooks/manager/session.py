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
        self.on_begin: dict[str, Callable[[int], None]] = {}  #: by name, what is told that a forward begins
        self.gradient_came = False  #: whether a gradient came by since the step began
        self._more: dict[int, Handles] = {}
        self._passing = Handles()  # on tensors of the forward that runs, whose graph may outlive the manager
        self._views = ChangedViews()
        self._where = here()
        self._graph = True  # whether the step began with gradients on
        self._whole = False  # whether the model itself was run, and not only parts of it
        self._running: dict[tuple[int, int], int] = {}  # by thread and explanation: how deep in the model's forward
        self._forwards: dict[tuple[int, int], int] = {}  # and how many of them began

    def enter_forward(self, *_: Any) -> None:
        """A forward of the model begins, perhaps within another one."""
        if in_backward():
            return
        place = here()
        self._running[place] = self._running.get(place, 0) + 1
        if self._running[place] == 1:
            self._forwards[place] = self._forwards.get(place, 0) + 1
            if self.heeded and place == self._where:
                self._whole = True
                self.begin_step()

    def leave_forward(self, *_: Any) -> None:
        """A forward of the model is over: look after views that it changed in place, and let go of them."""
        if in_backward():
            return
        place = here()
        self._running[place] = max(0, self._running.get(place, 0) - 1)
        if not self._running[place] and place == self._where:
            self._views.settle()

    def begin_step(self) -> None:
        """Count a step: of what is asked for, nothing has come yet."""
        self.step += 1
        self.gradient_came = False
        self._graph = torch.is_grad_enabled()
        self._passing = Handles()
        self._views = ChangedViews()
        for begin in self.on_begin.values():
            begin(self.step)

    def begin_part(self, *, again: bool) -> None:
        """Count a step where parts of the model are run and never the model itself.

        A layer that runs again does so within the same step only as long as a graph is recorded that no backward has
        passed yet.

        Args:
            again: whether the layer that runs has run in this step.
        """
        place = here()
        if self._whole or self._running.get(place) or in_backward():
            return
        same = torch.is_grad_enabled() and self._graph and not self.gradient_came
        if place in self._forwards and (same or not again):
            return
        self._forwards[place] = self._forwards.get(place, 0) + 1
        if self.heeded and place == self._where:
            self._views.settle()
            self.begin_step()

    @property
    def forward(self) -> int:
        """The number of the forward that this code runs in, within its thread and explanation."""
        return self._forwards.get(here(), 0)

    @property
    def heeded(self) -> bool:
        """Whether hooks do anything at present."""
        return self.open and not self.paused

    @property
    def mine(self) -> bool:
        """Whether this is a forward to be recorded: in the thread that opened the manager, outside of explanations.

        Of a model that is run as a whole, parts that are called by hand in between are none. What is recomputed within
        a backward may run in a thread of autograd's.
        """
        thread, depth = here()
        if in_backward():
            return (thread, depth) == self._where or (thread != self._where[0] and depth == 0)
        return (thread, depth) == self._where and (not self._whole or self._running.get(self._where, 0) > 0)

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
        handles = Handles()
        self._more[id(handles)] = handles
        return handles

    def drop(self, handles: Handles) -> None:
        """Remove what ``more_handles`` gave."""
        handles.remove()
        self._more.pop(id(handles), None)

    def close(self) -> None:
        """Remove every hook; what was recorded stays."""
        self.open = False
        self._views = ChangedViews()
        for handles in (self._passing, self.handles, *self._more.values()):
            handles.remove()

    def remaining(self) -> int:
        """How many hooks are still registered."""
        return sum(handles.remaining() for handles in (self._passing, self.handles, *self._more.values()))
