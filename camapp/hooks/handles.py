"""Handles: owns every hook it registers, and takes every one of them away again."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

Hook = Callable[..., Any]


class Handles:
    """Registers hooks and removes exactly those, on success, on error and on interruption.

    Hooks that others registered are never touched. Removing twice is harmless, and handles may be used again. A copy of
    a hooked model, by ``copy.deepcopy`` or pickle, does not carry the hooks along: what it gets in their place does
    nothing, and is gone after the copy's first forward.

    Example:
        >>> with Handles() as hooks:
        ...     hooks.forward(model.layer4, lambda module, args, output: print(output.shape))
        ...     model(inputs)
    """

    def __init__(self) -> None:
        self._handles: list[RemovableHandle] = []

    def forward(self, module: nn.Module, hook: Hook, *, with_kwargs: bool = False, always: bool = False) -> None:
        """Call ``hook(module, args, output)`` after each forward of ``module``; what it returns replaces the output.

        Args:
            module: the module.
            hook: the function; ``with_kwargs`` hands it the keyword arguments as a third argument before the output.
            with_kwargs: as above.
            always: call it also where the forward raised; then ``output`` is None.
        """
        own = _Own(hook)
        self._keep(module.register_forward_hook(own, with_kwargs=with_kwargs, always_call=always))

    def forward_pre(self, module: nn.Module, hook: Hook, *, first: bool = False) -> None:
        """Call ``hook(module, args, kwargs)`` before each forward of ``module``; a pair returned replaces them.

        Args:
            module: the module.
            hook: the function.
            first: call it before the hooks that are there already.
        """
        self._keep(module.register_forward_pre_hook(_Own(hook), with_kwargs=True, prepend=first))

    def full_backward(self, module: nn.Module, hook: Hook) -> None:
        """Call ``hook(module, grad_input, grad_output)`` when the gradients of the inputs of ``module`` are there."""
        self._keep(module.register_full_backward_hook(_Own(hook)))

    def full_backward_pre(self, module: nn.Module, hook: Hook) -> None:
        """Call ``hook(module, grad_output)`` when the gradients of the outputs of ``module`` are there."""
        self._keep(module.register_full_backward_pre_hook(_Own(hook)))

    def tensor(self, tensor: torch.Tensor, hook: Hook) -> None:
        """Call ``hook(gradient)`` when the gradient of ``tensor`` is there; what it returns replaces the gradient."""
        self._keep(tensor.register_hook(hook))

    def post_accumulate(self, parameter: torch.Tensor, hook: Hook) -> None:
        """Call ``hook(parameter)`` each time a gradient has been added to its ``.grad``."""
        self._keep(parameter.register_post_accumulate_grad_hook(hook))

    def remaining(self) -> int:
        """How many hooks of these are still registered."""
        return sum(_is_registered(handle) for handle in self._handles)

    def remove(self) -> None:
        """Remove every hook of these."""
        while self._handles:
            self._handles.pop().remove()

    def _keep(self, handle: RemovableHandle) -> None:
        self._handles.append(handle)

    def __enter__(self) -> Handles:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


class _Own:
    """A hook that stays with the module it was registered on: a copy of the module gets one that is spent."""

    __slots__ = ("_hook",)

    def __init__(self, hook: Hook) -> None:
        self._hook = hook

    def __call__(self, *args: Any) -> Any:
        return self._hook(*args)

    def __deepcopy__(self, memo: Any) -> _Spent:
        return _Spent()

    def __reduce__(self) -> tuple[type[_Spent], tuple[()]]:
        return _Spent, ()


class _Spent:
    """What a copied module finds in place of a hook: it takes itself away when it is first called."""

    _PLACES = (
        ("_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called"),
        ("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs"),
        ("_backward_hooks",),
        ("_backward_pre_hooks",),
    )

    def __call__(self, module: nn.Module, *args: Any) -> None:
        for hooks, *marks in self._PLACES:
            registered = getattr(module, hooks)
            for number in [number for number, hook in registered.items() if hook is self]:
                del registered[number]
                for mark in marks:
                    getattr(module, mark).pop(number, None)


def _is_registered(handle: RemovableHandle) -> bool:
    hooks = handle.hooks_dict_ref()
    return hooks is not None and handle.id in hooks
