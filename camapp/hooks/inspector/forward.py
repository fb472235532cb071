"""One forward and its backward as an inspection sees them: what layers gave, and the gradients that came back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from camapp.hooks.changed_views import ChangedViews
from camapp.hooks.inspector.figures import Reading, measurable, measure
from camapp.hooks.inspector.kinds import unit_axis
from camapp.hooks.inspector.recomputed import Recomputed
from camapp.hooks.inspector.watched import Watched
from camapp.hooks.structures import tensors_in


@dataclass
class Seen:
    """What one call of a layer gave (one tensor of it), and its gradient.

    Args:
        name: as in ``TensorStatistics``.
        kind: the class of the layer.
        activation: what was measured of it.
        recorded: whether it lies within a graph.
        gradient: what was measured of the gradient; None as long as there is none.
    """

    name: str
    kind: str
    activation: Reading
    recorded: bool
    gradient: Reading | None = None


class Forward:
    """Measures a forward as it runs, and its backward; forgets all tensors but the small ones it made itself.

    Gradients are seen by hooks on the tensors, put on by the layers' forward hooks: unlike full backward hooks these
    let operations in place follow, and they add nothing to the graph.

    Args:
        most: how many elements of a tensor the quantiles may rest on.
        whole: whether the model itself was called, which then tells where the forward ends.
    """

    def __init__(self, most: int, *, whole: bool) -> None:
        self.whole = whole
        self.backward_began = False
        self._most = most
        self._open = True
        self._calls: dict[str, int] = {}
        self._seen: dict[tuple[str, int, str], Seen] = {}
        self._views = ChangedViews()
        self._recomputed = Recomputed()
        self._leaves: list[RemovableHandle] = []
        self._last: _Last | None = None

    def visit(self, layer: Watched, output: Any) -> None:
        """Measure what a layer gave."""
        call = self._calls.get(layer.name, 0)
        self._calls[layer.name] = call + 1
        for part, tensor in tensors_in(output).items():
            if layer.meant(call, part) and measurable(tensor) and (layer.named or not self._same(layer, tensor)):
                self._seen[layer.name, call, part] = self._measured(layer, layer.key(call, part), tensor)

    def visit_again(self, layer: Watched, output: Any) -> None:
        """Watch the gradients of what checkpointing computes once more, within a backward."""
        call = self._recomputed.counted(layer.name)
        for part, tensor in tensors_in(output).items():
            if tensor.requires_grad and measurable(tensor):
                self._follow(tensor, self._recomputed.taker(layer.name, call, part))

    def ended(self) -> None:
        """The forward is over: look after tensors that were changed in place, and let go of them."""
        self._last = None
        self._views.settle()

    def close(self) -> list[Seen]:
        """Take no more gradients, and tell what was seen, in the order in which the layers ran."""
        self._open = False
        self.ended()
        for handle in self._leaves:
            handle.remove()
        self._recomputed.deliver(self._seen)
        return list(self._seen.values())

    def _same(self, layer: Watched, tensor: torch.Tensor) -> bool:
        """Whether a layer gives what the one before gave: Identity, Dropout that predicts, a container."""
        last = self._last
        if last is None or last.tensor is not tensor or layer.bounds is not None:
            return False
        return last.version == tensor._version

    def _measured(self, layer: Watched, name: str, tensor: torch.Tensor) -> Seen:
        last = self._last
        if last is not None and self._same(layer, tensor):
            first = last.seen[0]
            seen = Seen(name, layer.kind, replace(first.activation, units=0, bounded=False), first.recorded)
            last.seen.append(seen)
            return seen
        axis = unit_axis(layer.axis, tensor.dim()) if layer.dead else None
        reading = measure(tensor, self._most, unit_axis=axis, bounds=layer.bounds)
        seen = Seen(name, layer.kind, reading, tensor.requires_grad)
        if tensor.is_inference():
            return seen
        self._last = last = _Last(tensor, tensor._version, [seen])
        if tensor.requires_grad:
            every = last.seen

            def take(gradient: Reading) -> None:
                for one in every:
                    one.gradient = gradient

            self._follow(tensor, take)
        return seen

    def _follow(self, tensor: torch.Tensor, take: Callable[[Reading], None]) -> None:
        arrived = _Arrived()

        def on_gradient(gradient: torch.Tensor | None) -> None:
            if gradient is None or not self._open:
                return
            self.backward_began = True
            self.ended()
            self._recomputed.gradient_came()
            whole = gradient if arrived.part is None else gradient.detach() + arrived.part
            take(measure(whole, self._most))

        def on_changed(gradient: torch.Tensor) -> None:
            if self._open:
                arrived.part = gradient  # what used the tensor before it was changed is still to come, if anything
                take(measure(gradient, self._most))

        handle = tensor.register_hook(on_gradient)
        if tensor.is_leaf:
            self._leaves.append(handle)  # a parameter or an input outlives this forward
        self._views.watch(tensor, on_changed)


@dataclass
class _Last:
    """The tensor measured last, and all that was seen in it."""

    tensor: torch.Tensor
    version: int
    seen: list[Seen] = field(default_factory=list)


@dataclass
class _Arrived:
    """The part of a gradient that came past a change in place."""

    part: torch.Tensor | None = None
