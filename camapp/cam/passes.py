"""The passes through a network that one call needs: forward to the layers, on to the scores, and back to the layers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm

from camapp.cam.shot import Read, Seen, Shot
from camapp.cam.targets.output import How, Output, pick_output
from camapp.cam.targets.plan import Aims, Plan
from camapp.cam.watch import Watch
from camapp.errors import LayerError
from camapp.hooks.capture import REPETITION_FAULTS, Capture, NeverCalled, NoPath, NotExpandable, Tap, TooLarge
from camapp.hooks.trace import that_ran, trace_calls

# What a layer's repeated output may take; K classes of a layer beyond that are sent backward one by one.
MOST_REPEATED_BYTES = 256 * 2**20


# Per model, and per layers, output and modules: whether the network takes repeated rows and keeps them apart.
_repeats: WeakKeyDictionary[nn.Module, dict[tuple[Any, ...] | None, bool]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Passes:
    """Runs a model for its scores and its layers' gradients, in as few passes as the network allows.

    Several targets a picture: the layer's output is repeated K times, so that the network behind it runs once, on more
    rows. Where it cannot take them, or does not keep them apart, there is one backward a target, with the same result.
    Which of the two is found out once for each layer and remembered for the model.

    Args:
        model: in the hands of ``as_found``.
        inputs: (B, C, *size), placed and typed as the model's parameters.
        layers: the keys of the layers looked at.
        plan: what is explained.
        how: which part of the model's output is explained.
        watch: counts what runs.
        differentiable: whether what is found shall be part of a graph back to the inputs and the parameters.
    """

    model: nn.Module
    inputs: torch.Tensor
    layers: tuple[str, ...]
    plan: Plan
    how: How = None
    watch: Watch = field(default_factory=Watch)
    differentiable: bool = False

    def case(self, *layers: str) -> tuple[Any, ...] | None:
        """What a finding about the network behind layers holds for: the output looked at, and the modules as they are.

        None where it cannot be told from another: an output picked by a function.
        """
        return None if callable(self.how) else (layers, self.how, tuple(map(id, self.model.modules())))

    def on(self, inputs: torch.Tensor) -> Passes:
        """The same for other inputs, of as many pictures."""
        return replace(self, inputs=inputs)

    def at(self, *layers: str) -> Passes:
        """The same for other layers."""
        return replace(self, layers=layers)

    def aiming(self, aims: Aims) -> Passes:
        """The same for targets that are settled already, so that altered inputs are asked for the same thing."""
        return replace(self, plan=replace(self.plan, targets=aims.targets))

    def gradients(self, read: Read) -> Shot:
        """One pass with the graph cut at the layer; where the model undoes that, one more with the whole graph.

        Raises:
            LayerError: a layer is never called, or the scores do not depend on it.
            TargetError, OutputError: as ``Plan.settle`` and ``pick_output``.
        """
        try:
            return self._gradients(read, whole_graph=False)
        except NoPath:
            return self._gradients(read, whole_graph=True)

    def activations(self, read: Read) -> Shot:
        """One forward as plain inference; ``read`` is given no gradients."""
        capture = Capture(self.model, self.layers, graph=False)
        output = self.run(capture)
        aims = self.plan.settle(output)
        taken = {key: read(Seen(key, tap.activation)) for key, tap in self._taps(capture).items()}
        return Shot(taken, aims, aims.scores(output), output, capture.calls)

    def graph(self, read: Read, *, curvature: bool = False, whole_graph: bool = False) -> Shot:
        """Activations and gradients that are themselves part of a graph, one backward a target.

        Args:
            read: as for ``gradients``; what it takes may be differentiated again.
            curvature: give the Hessian times the activation too.
            whole_graph: let the graph reach back to the inputs and the parameters, instead of to the layers.
        """
        try:
            return self._graph(read, curvature, whole_graph)
        except NoPath:
            return self._graph(read, curvature, True)

    def scores(self, inputs: torch.Tensor, aims: Aims, row: int, *, counted: bool = True) -> torch.Tensor:
        """The scores (N, K) of N altered copies of the picture ``row``, without a graph, counted by the watch."""
        with torch.no_grad():
            scores = aims.scores_of_row(self.pick(self.model(inputs.clone()), len(inputs)), row)
        if counted:
            self.watch.step(len(inputs))
        return scores

    def run(self, capture: Capture) -> Output:
        """One forward of the inputs under ``capture``; what is explained of the output."""
        with capture:
            output = self.model(self.inputs.clone())  # a model may change its input in place
        return self.pick(output, len(self.inputs))

    def pick(self, output: Any, rows: int) -> Output:
        """The part of ``output`` that is explained: a tensor (rows, ...) or a list of as many."""
        return pick_output(output, rows, self.how)

    def _gradients(self, read: Read, *, whole_graph: bool) -> Shot:
        if self.plan.per_row == 1:
            return self._one_by_one(read, whole_graph)
        repeats, case = _repeats.setdefault(self.model, {}), self.case(*self.layers)
        if repeats.get(case) is False:
            return self._one_by_one(read, whole_graph)
        try:
            shot = self._repeated(read, whole_graph, known=repeats.get(case, False))
            found = True
        except TooLarge:
            return self._one_by_one(read, whole_graph)
        except NotExpandable:
            shot = self._one_by_one(read, whole_graph)
            found = False  # remembered only once the model has run: the fault was the repetition
        if case is not None:
            repeats[case] = found
        return shot

    def _repeated(self, read: Read, whole_graph: bool, *, known: bool) -> Shot:
        """All targets at once, on K copies of each row behind the layer.

        Raises:
            NotExpandable: a branch around the layer still carries B rows, or the network mixes its rows.
        """
        rows, per_row = len(self.inputs), self.plan.per_row
        capture = Capture(
            self.model, self.layers, rows=rows, expand=per_row, whole_graph=whole_graph, most_bytes=MOST_REPEATED_BYTES
        )
        try:
            with capture:
                output = self.model(self.inputs.clone())
            wide = self.pick(output, rows * per_row)
            taps = {key: capture[key] for key in self.layers}
        except torch.OutOfMemoryError as error:
            raise TooLarge from error
        except REPETITION_FAULTS as error:
            # A fault that is not of the repetition shows again without it, and is raised there.
            raise NotExpandable from error
        if not isinstance(wide, torch.Tensor):
            raise NotExpandable
        copies = wide.detach().unflatten(0, (rows, per_row))
        narrow = copies[:, 0]
        if not torch.allclose(copies, narrow[:, None].expand_as(copies), rtol=1e-3, atol=1e-4, equal_nan=True):
            raise NotExpandable
        aims = self.plan.settle(narrow)
        scores = aims.scores_of_repeated(wide)
        scale = _scale(taps)
        if not known:
            capture.backward(scores[::per_row], keep_graph=True, scale=scale)
            if any(_gradient(tap).unflatten(0, (rows, per_row))[:, 1:].any() for tap in taps.values()):
                raise NotExpandable  # the first copies' scores depend on the other copies
        capture.backward(scores, scale=scale)
        taken = {key: read(Seen(key, tap.activation, _gradient(tap))) for key, tap in taps.items()}
        return Shot(taken, aims, scores.detach().view(rows, per_row), narrow, capture.calls)

    def _one_by_one(self, read: Read, whole_graph: bool) -> Shot:
        """One forward, then one backward for each of the K targets."""
        capture = Capture(self.model, self.layers, whole_graph=whole_graph)
        output = self.run(capture)
        taps = self._taps(capture)
        aims = self.plan.settle(output)
        scores = aims.scores(output)
        parts: dict[str, list[tuple[torch.Tensor, ...]]] = {key: [] for key in taps}
        for k in range(self.plan.per_row):
            capture.backward(scores[:, k], keep_graph=k + 1 < self.plan.per_row, scale=_scale(taps))
            for key, tap in taps.items():
                parts[key].append(read(Seen(key, tap.activation, _gradient(tap))))
        return Shot(_interleaved(parts), aims, scores.detach(), _detached(output), capture.calls)

    def _graph(self, read: Read, curvature: bool, whole_graph: bool) -> Shot:
        capture = Capture(self.model, self.layers, whole_graph=whole_graph)
        with sdpa_kernel(SDPBackend.MATH):  # torch 2.14 has no second derivative of the fused attentions
            output = self.run(capture)
        aims = self.plan.settle(output)
        scores = aims.scores(output)
        parts: dict[str, list[tuple[torch.Tensor, ...]]] = {layer: [] for layer in self.layers}
        for k in range(self.plan.per_row):
            gradients = capture.gradients(scores[:, k])
            for key, tap in self._taps(capture).items():
                live = tap.live if tap.live is not None else tap.activation
                bend = _curvature(gradients[key], live) if curvature else None
                parts[key].append(read(Seen(key, live, gradients[key], bend)))
        return Shot(_interleaved(parts), aims, scores, _detached(output), capture.calls)

    def _taps(self, capture: Capture) -> dict[str, Tap]:
        """The taps of all layers, each with the batch as its first axis."""
        taps = {}
        for key in self.layers:
            try:
                tap = capture[key]
            except NeverCalled as error:
                near = that_ran(trace_calls(self.model, self.inputs[:1]), key)
                raise LayerError(f"{error} {near}") from error
            if tap.activation.dim() == 0 or len(tap.activation) != len(self.inputs):
                raise LayerError(
                    f'"{key}" gives an output of shape {tuple(tap.activation.shape)} for a batch of '
                    f"{len(self.inputs)}: its first axis is not the batch, so rows cannot be matched to pictures. "
                    "Choose another layer."
                )
            taps[key] = tap
        return taps


def mixes_rows(model: nn.Module) -> bool:
    """Whether the rows of a batch depend on each other: a BatchNorm without running statistics uses the batch's own."""
    return any(isinstance(module, _BatchNorm) and module.running_mean is None for module in model.modules())


def _scale(taps: dict[str, Tap]) -> float:
    """What keeps gradients of float16, whose smallest step is 6e-8, from vanishing in the mean over a map's places."""
    return 256.0 if any(tap.activation.dtype == torch.float16 for tap in taps.values()) else 1.0


def _gradient(tap: Tap) -> torch.Tensor:
    assert tap.gradient is not None, "Capture.backward raises NoPath where there is none"
    return tap.gradient


def _curvature(gradient: torch.Tensor, live: torch.Tensor) -> torch.Tensor:
    """The Hessian of the score with respect to a layer, times the layer's activation; zero where it is linear."""
    if not gradient.requires_grad:
        return torch.zeros_like(gradient)
    (bend,) = torch.autograd.grad(gradient, live, live.detach(), retain_graph=True, allow_unused=True)
    return torch.zeros_like(gradient) if bend is None else bend


def _interleaved(parts: dict[str, list[tuple[torch.Tensor, ...]]]) -> dict[str, tuple[torch.Tensor, ...]]:
    """K readings of B rows each as one of B * K, those of one picture together."""
    return {
        key: tuple(torch.stack(each, dim=1).flatten(0, 1) for each in zip(*readings, strict=True))
        for key, readings in parts.items()
    }


def _detached(output: Output) -> Output:
    return output.detach() if isinstance(output, torch.Tensor) else output
