"""Handles: owns every hook it registers, and takes every one of them away again."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle


class Handles:
    """Registers module hooks and removes exactly those, on success, on error and on interruption.

    Hooks that others registered are never touched. Removing twice is harmless, and a manager may be used again.

    Example:
        >>> with Handles() as hooks:
        ...     hooks.forward(model.layer4, lambda module, args, output: print(output.shape))
        ...     model(inputs)
    """

    def __init__(self) -> None:
        self._handles: list[RemovableHandle] = []

    def forward(self, module: nn.Module, hook: Callable[..., Any]) -> None:
        """Call ``hook(module, args, output)`` after each forward of ``module``; what it returns replaces the output."""
        self._handles.append(module.register_forward_hook(hook))

    def forward_pre(self, module: nn.Module, hook: Callable[..., Any]) -> None:
        """Call ``hook(module, args, kwargs)`` before each forward of ``module``; a pair returned replaces them."""
        self._handles.append(module.register_forward_pre_hook(hook, with_kwargs=True))

    def remaining(self) -> int:
        """How many hooks of this manager are still registered."""
        return len(self._handles)

    def remove(self) -> None:
        """Remove every hook of this manager."""
        while self._handles:
            self._handles.pop().remove()

    def __enter__(self) -> Handles:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()
