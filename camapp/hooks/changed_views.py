"""Gradients of views that are changed in place afterwards, which hooks on them do not see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

# So many changes in place of one tensor are looked through; a loop that writes row by row makes many.
_MOST_CHANGES = 10_000


class ChangedViews:
    """Finds the gradients of views (of what flatten, reshape or an index gave) that a network changes in place.

    A change in place gives the view's base a new node, which hands the gradient of the base as it was before on to
    the node of the base. The view's own node is passed by, and with it hooks on the view: seen in torch 2.14. So the
    new node is found once the forward is over, and the view's part of that gradient is taken there. A clone of
    the view would be seen too, but changes that shall reach the base would not do so any more.
    """

    def __init__(self) -> None:
        self._views: list[_View] = []

    def watch(self, tensor: torch.Tensor, take: Callable[[torch.Tensor], None]) -> None:
        """Give ``take`` the gradient of ``tensor`` that goes past it, if it is a view and is changed in place."""
        base = tensor._base
        if base is not None and base.grad_fn is not None:
            self._views.append(_View(tensor, base, base._version, base.grad_fn, base.output_nr, take))

    def settle(self) -> None:
        """Put hooks where views were changed, and let go of them all."""
        views, self._views = self._views, []
        for view in views:
            if view.base._version != view.version:
                _hook(view)


@dataclass(frozen=True)
class _View:
    """A view as a layer gave it: its base, how often that had been changed, its node, and which output of it."""

    tensor: torch.Tensor
    base: torch.Tensor
    version: int
    node: Any
    output: int
    take: Callable[[torch.Tensor], None]


def _hook(view: _View) -> None:
    found = _first_change(view)
    if found is None:
        return
    node, place = found
    base_size, base_stride = view.base.size(), view.base.stride()
    size, stride = view.tensor.size(), view.tensor.stride()
    offset = view.tensor.storage_offset() - view.base.storage_offset()
    take = view.take

    def on_node(inputs: tuple[torch.Tensor | None, ...], outputs: Any) -> None:
        gradient = inputs[place]  # of the node's inputs: gradients leave it there
        if gradient is None:
            return
        laid = torch.empty_strided(base_size, base_stride, dtype=gradient.dtype, device=gradient.device)
        laid.copy_(gradient.detach())
        take(laid.as_strided(size, stride, offset))

    node.register_hook(on_node)


def _first_change(view: _View) -> tuple[Any, int] | None:
    """The node of the first change after the view was made, and which of its inputs the base as it was is."""
    node = view.base.grad_fn
    for _ in range(_MOST_CHANGES):
        if node is None or node is view.node:
            return None
        following = node.next_functions
        for place, (one, output) in enumerate(following):
            if one is view.node and output == view.output:
                return node, place
        node = following[0][0] if following else None
    return None
