"""Writes down when each module of a model is called, and which one is running."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from camapp.hooks.handles import Handles
from camapp.hooks.nonfinite import autograd
from camapp.hooks.nonfinite.record import ModuleRun


class Runs:
    """Keeps the calls of modules in order, and a stack of those that are running in each thread.

    Args:
        model: the network; scripted modules within it are passed over, since they take no hooks.
        given: told of a call by the step itself, with its arguments.
        returned: told of the end of a call of the model itself, with its output.
    """

    def __init__(self, model: nn.Module, given: Callable[[Any], None], returned: Callable[[Any], None]) -> None:
        self.all: list[ModuleRun] = []
        self._given = given
        self._returned = returned
        self._hooks = Handles()
        self._thread = autograd.thread()
        self._stacks: dict[int, list[int]] = {}
        self._calls: Counter[tuple[str, bool]] = Counter()
        self._modules = [
            (name, module) for name, module in model.named_modules() if not isinstance(module, torch.jit.ScriptModule)
        ]

    def __enter__(self) -> Runs:
        for name, module in self._modules:
            stack: list[tuple[int, int]] = []  # what is entered and not left, of this module: calls may nest, and fail
            self._hooks.forward_pre(module, self._on_enter(name, stack), first=True)
            self._hooks.forward(module, self._on_leave(stack), always=True)
        return self

    def __exit__(self, *error: object) -> None:
        self._hooks.remove()

    def running(self) -> int | None:
        """The number of the innermost run of this thread."""
        stack = self._stacks.get(autograd.thread())
        return stack[-1] if stack else None

    def _on_enter(self, name: str, entered: list[tuple[int, int]]) -> Callable[..., None]:
        def on_enter(module: nn.Module, args: Any, kwargs: Any) -> None:
            thread, task = autograd.thread(), autograd.running_task()
            if thread != self._thread and task < 0:  # another thread's forward
                return
            stack = self._stacks.setdefault(thread, [])
            if stack:
                self.all[stack[-1]].inner = True
            else:
                self._given((args, kwargs))
            recomputed = task >= 0
            call = self._calls[name, recomputed]
            self._calls[name, recomputed] += 1
            parent = stack[-1] if stack else None
            number = len(self.all)
            self.all.append(ModuleRun(name, type(module).__name__, call, parent, autograd.next_number(), thread, task))
            stack.append(number)
            entered.append((thread, number))

        return on_enter

    def _on_leave(self, entered: list[tuple[int, int]]) -> Callable[..., None]:
        def on_leave(module: nn.Module, args: Any, output: Any) -> None:
            thread = autograd.thread()
            number = next((number for whose, number in reversed(entered) if whose == thread), None)
            if number is None:
                return
            entered.remove((thread, number))
            stack = self._stacks[thread]
            while stack and stack.pop() != number:
                pass  # calls inside that ended without saying so
            run = self.all[number]
            run.last = autograd.next_number()
            if run.parent is None and not run.name:
                self._returned(output)

        return on_leave
