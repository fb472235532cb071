"""Capture: the activations of named layers in one forward, and the gradients of a score with respect to them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch
from torch import nn

from camapp.errors import LayerError
from camapp.hooks.layers import Layer, find_layers
from camapp.hooks.visits import Visits


class NotExpandable(Exception):  # noqa: N818 - a signal between two rooms, never an error a user meets
    """The rows of a layer's output cannot be repeated, or are mixed by the network behind it."""


# What a network may raise that cannot take repeated rows; a lack of memory is also a RuntimeError, and is none of them.
REPETITION_FAULTS = (RuntimeError, ValueError, IndexError, AssertionError, TypeError, LookupError)


class TooLarge(NotExpandable):
    """The repeated rows would take more memory than allowed."""


class NeverCalled(LayerError):  # noqa: N818
    """The layer did not run in this forward."""


class NoPath(LayerError):  # noqa: N818 - says what is wrong: no path
    """The score does not depend on the captured layers through a graph."""


@dataclass
class Tap:
    """What one call of one layer gave.

    Args:
        layer: the layer's dotted name.
        call: the number of this call within the forward, from 0.
        activation: the layer's output (or input), a copy that no later in-place operation reaches; one row a picture.
        gradient: the gradient of the last score sent backward, of the same layout; K rows a picture when expanded.
        live: the same as ``activation`` within the graph, where gradients of gradients begin; None without a graph.
    """

    layer: str
    call: int
    activation: torch.Tensor
    gradient: torch.Tensor | None = None
    live: torch.Tensor | None = None


class Capture:
    """Records layers while a model runs, then their gradients while a score runs backward.

    A full backward hook on the layer itself would raise as soon as anything changes the layer's output in place. So
    each layer gets a forward hook, which sends a copy of the output through an ``nn.Identity`` probe; the probe carries
    the full backward hook, and the model goes on with a clone of the probe's output.

    The graph is cut: the forward begins with gradients off, and the first layer reached switches them on. Everything
    before it runs as in plain inference, and the parameters' ``requires_grad`` stays as it is (torch chooses kernels by
    it, so that switching it off would change the last digits).

    The hooks live only inside the ``with`` block, heed only forwards of the thread that opened it (and no forward of
    another explanation nested in that one), and are removed on errors too; ``backward`` works after the block.

    Args:
        model: the model that holds the layers.
        layers: names (``"layer4"``, or ``"layer4.relu@0"`` for its first call) or modules. A layer that runs several
            times is recorded at its last call unless a call is named.
        rows: the batch size B of the inputs; needed to expand.
        expand: K copies of each row of the first layer reached, so that K scores a picture cost one pass.
        most_bytes: what the repeated rows of one layer may take; no limit by default.
        whole_graph: record the whole forward instead: for models that run the layer under a no_grad() of their own,
            whose end would switch off what the layer switched on.
        graph: False to record activations only: the forward runs as plain inference, and there is no backward.

    Raises:
        LayerError: a layer that the model does not have.

    Example:
        >>> with as_found(model):
        ...     with Capture(model, ["layer4"]) as capture:
        ...         scores = model(inputs)[:, 281]
        ...     capture.backward(scores)
        ...     capture["layer4"].activation, capture["layer4"].gradient
    """

    def __init__(
        self,
        model: nn.Module,
        layers: Iterable[str | nn.Module],
        *,
        rows: int = 1,
        expand: int = 1,
        most_bytes: int | None = None,
        whole_graph: bool = False,
        graph: bool = True,
    ) -> None:
        self.layers = find_layers(model, layers)
        self._rows = rows
        self._expand = expand
        self._most_bytes = most_bytes
        self._whole_graph = whole_graph
        self._graph = graph
        self._taps: dict[str, Tap] = {}
        self.calls = {layer.key: 0 for layer in self.layers}  #: how often each layer was called in this forward
        self._visits: Visits | None = None
        self._grad_mode = True

    def __enter__(self) -> Capture:
        self._taps.clear()  # a capture may be used again
        self._grad_mode = torch.is_grad_enabled()
        self._visits = Visits(self.layers, self._tap).__enter__()
        self.calls = self._visits.calls
        torch.set_grad_enabled(self._whole_graph and self._graph)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        torch.set_grad_enabled(self._grad_mode)
        if self._visits is not None:
            self._visits.__exit__(kind, error, trace)
        self._visits = None  # it holds this capture, and no circle of objects shall wait for the garbage collector

    def __getitem__(self, key: str) -> Tap:
        """The tap of the layer named ``key``.

        Raises:
            LayerError: the layer was not called in this forward, or not as often as its ``@call`` says.
        """
        if key in self._taps:
            return self._taps[key]
        calls = self.calls[key]
        if calls:
            raise LayerError(f'"{key}" was called {calls} time(s) in this forward, counted from @0.')
        raise NeverCalled(
            f'"{key}" was never called in this forward: it is unused for this input, its .forward is called directly, '
            "or a fused operation takes its place. Choose its parent or a neighbouring layer."
        )

    def backward(self, scores: torch.Tensor, *, keep_graph: bool = False, scale: float = 1.0) -> None:
        """Send the sum of ``scores`` backward, to the captured layers and no further; no ``.grad`` is written.

        Args:
            scores: any shape; every row of the batch must count only once.
            keep_graph: keep the graph for another call.
            scale: multiplies the gradients on their way and is divided out at their end, in float32: keeps those of
                half precision from vanishing.

        Raises:
            NoPath: the scores depend on none of the captured layers through a graph.
        """
        for tap in self._taps.values():
            tap.gradient = None
        # All of them, also those behind another: layers on parallel branches do not lie on each other's way.
        ends = [tap.live for tap in self._taps.values() if tap.live is not None]
        if scores.requires_grad and ends:
            weights = torch.full_like(scores, scale)
            torch.autograd.backward(scores, weights, inputs=ends, retain_graph=keep_graph)
        for end in ends:
            end.grad = None
        if scale != 1.0:
            for tap in self._taps.values():
                tap.gradient = None if tap.gradient is None else tap.gradient.float() / scale
        missed = [key for key, tap in self._taps.items() if tap.gradient is None]
        if missed:
            raise _no_path(missed)

    def gradients(self, scores: torch.Tensor) -> dict[str, torch.Tensor]:
        """The gradients of the sum of ``scores`` as part of a graph of their own, by layer; the graph stays.

        Raises:
            NoPath: the scores do not depend on one of the captured layers through a graph.
        """
        lives = {key: tap.live for key, tap in self._taps.items() if tap.live is not None}
        found: tuple[torch.Tensor | None, ...] = (None,) * len(lives)
        if scores.requires_grad:
            found = torch.autograd.grad(scores.sum(), list(lives.values()), create_graph=True, allow_unused=True)
        gradients = {key: gradient for key, gradient in zip(lives, found, strict=True) if gradient is not None}
        missed = [key for key in self._taps if key not in gradients]
        if missed:
            raise _no_path(missed)
        return gradients

    def _tap(self, layer: Layer, call: int, output: torch.Tensor) -> torch.Tensor | None:
        """Record ``output``, let the graph begin here, and hand on what the model shall go on with."""
        if not self._graph:
            self._taps[layer.key] = Tap(layer.name, call, output.detach().clone())
            return None
        torch.set_grad_enabled(True)
        copy = output.clone()  # the module may have returned its own input, which others may yet overwrite
        tap = Tap(layer.name, call, copy.detach())
        if self._expand > 1:
            if len(copy) == self._rows * self._expand:
                tap.activation = copy.detach()[:: self._expand]
            elif len(copy) == self._rows and not copy.requires_grad:
                if self._most_bytes is not None and copy.nbytes * self._expand > self._most_bytes:
                    raise TooLarge
                copy = copy.repeat_interleave(self._expand, dim=0)
            else:
                raise NotExpandable
        if not copy.requires_grad:
            copy.requires_grad_()
        tap.live = copy
        self._taps[layer.key] = tap
        # The probe's output is a view that must not be written to: the clone may be.
        return self._probe(tap)(copy).clone()

    @staticmethod
    def _probe(tap: Tap) -> nn.Identity:
        def on_backward(module: nn.Module, grad_input: Any, grad_output: tuple[torch.Tensor | None, ...]) -> None:
            tap.gradient = grad_output[0]

        probe = nn.Identity()
        probe.register_full_backward_hook(on_backward)
        return probe


def _no_path(layers: list[str]) -> NoPath:
    return NoPath(
        f"The score does not depend on {', '.join(layers)} through a graph: the layer is not on the way to the output, "
        "or the model detaches or runs under its own no_grad() after it. Choose a layer after that point."
    )
