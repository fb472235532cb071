"""The passes through a network that one call needs: forward to the layer, on to the scores, and back to the layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from camapp.cam.targets import Plan, class_logits
from camapp.errors import LayerError, closest
from camapp.hooks.capture import Capture, NeverCalled, NoPath, NotExpandable, Tap, TooLarge
from camapp.hooks.trace import trace_calls

# What a layer's repeated output may take; K classes of a layer beyond that are sent backward one by one.
MOST_REPEATED_BYTES = 256 * 2**20

# From the activation of B rows and the gradient of N = B * K: the raw maps (N, h, w), and per map whether any gradient
# reaches it (N,).
Read = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True)
class Shot:
    """What the passes over B pictures with K targets each gave; of N = B * K rows a picture's targets are together.

    Args:
        raw: (N, h, w) float32.
        reached: (N,) bool, whether any gradient reaches the map.
        logits: (B, classes).
        targets: (B, K) class indices.
        calls: how often the layer ran in one forward.
    """

    raw: torch.Tensor
    reached: torch.Tensor
    logits: torch.Tensor
    targets: torch.Tensor
    calls: int


# Per model and layer: whether the network behind the layer takes repeated rows and keeps them apart, once known.
_repeats: WeakKeyDictionary[nn.Module, dict[str, bool]] = WeakKeyDictionary()


class Passes:
    """Runs a model for its scores and a layer's gradients, in as few passes as the network allows.

    Several targets a picture: the layer's output is repeated K times, so that the network behind it runs once, on more
    rows. Where it cannot take them, or does not keep them apart, there is one backward a target, with the same result.
    Which of the two is found out once for each layer and remembered for the model.

    Args:
        model: in the hands of ``as_found``.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._repeats = _repeats.setdefault(model, {})

    def shoot(self, inputs: torch.Tensor, layer: str, plan: Plan, read: Read) -> Shot:
        """One pass with the graph cut at the layer; where the model undoes that, one more with the whole graph.

        Raises:
            LayerError: the layer is never called, or the scores do not depend on it.
            TargetError, OutputError: as ``Plan.choose`` and ``class_logits``.
        """
        try:
            return self._shoot(inputs, layer, plan, read, whole_graph=False)
        except NoPath:
            return self._shoot(inputs, layer, plan, read, whole_graph=True)

    def _shoot(self, inputs: torch.Tensor, layer: str, plan: Plan, read: Read, *, whole_graph: bool) -> Shot:
        if plan.per_row == 1 or self._repeats.get(layer) is False:
            return self._one_by_one(inputs, layer, plan, read, whole_graph)
        try:
            return self._repeated(inputs, layer, plan, read, whole_graph)
        except TooLarge:
            return self._one_by_one(inputs, layer, plan, read, whole_graph)
        except NotExpandable:
            shot = self._one_by_one(inputs, layer, plan, read, whole_graph)
            self._repeats[layer] = False  # remembered only once the model has run: the fault was the repetition
            return shot

    def _repeated(self, inputs: torch.Tensor, layer: str, plan: Plan, read: Read, whole_graph: bool) -> Shot:
        """All targets at once, on K copies of each row behind the layer.

        Raises:
            NotExpandable: a branch around the layer still carries B rows, or the network mixes its rows.
        """
        rows, per_row = len(inputs), plan.per_row
        capture = Capture(
            self._model, [layer], rows=rows, expand=per_row, whole_graph=whole_graph, most_bytes=MOST_REPEATED_BYTES
        )
        try:
            with capture:
                output = self._model(inputs.clone())  # a model may change its input in place
            wide = class_logits(output, rows * per_row)
            tap = capture[layer]
        except (RuntimeError, ValueError, IndexError, AssertionError, TypeError, LookupError) as error:
            # A fault that is not of the repetition shows again without it, and is raised there.
            raise NotExpandable from error
        copies = wide.view(rows, per_row, -1).detach()
        logits = copies[:, 0]
        if not torch.allclose(copies, logits[:, None].expand_as(copies), rtol=1e-3, atol=1e-4, equal_nan=True):
            raise NotExpandable
        targets = plan.choose(logits)
        scores = wide.gather(1, targets.reshape(-1, 1))
        scale = _scale(tap)
        if layer not in self._repeats:
            capture.backward(scores[::per_row], keep_graph=True, scale=scale)
            if _gradient(tap).unflatten(0, (rows, per_row))[:, 1:].any():
                raise NotExpandable  # the first copies' scores depend on the other copies
            self._repeats[layer] = True
        capture.backward(scores, scale=scale)
        return Shot(*read(tap.activation, _gradient(tap)), logits, targets, capture.calls[layer])

    def _one_by_one(self, inputs: torch.Tensor, layer: str, plan: Plan, read: Read, whole_graph: bool) -> Shot:
        """One forward, then one backward for each of the K targets."""
        per_row = plan.per_row
        capture = Capture(self._model, [layer], whole_graph=whole_graph)
        with capture:
            output = self._model(inputs.clone())
        try:
            tap = capture[layer]
        except NeverCalled as error:
            raise LayerError(f"{error}{self._that_ran(inputs, layer)}") from error
        if tap.activation.dim() == 0 or len(tap.activation) != len(inputs):
            raise LayerError(
                f'"{layer}" gives an output of shape {tuple(tap.activation.shape)} for a batch of {len(inputs)}: its '
                "first axis is not the batch, so rows cannot be matched to pictures. Choose another layer."
            )
        logits = class_logits(output, len(inputs))
        targets = plan.choose(logits.detach())
        maps = []
        for index in range(per_row):
            scores = logits.gather(1, targets[:, index : index + 1])
            capture.backward(scores, keep_graph=index + 1 < per_row, scale=_scale(tap))
            maps.append(read(tap.activation, _gradient(tap)))
        raw, reached = (torch.stack(parts, dim=1).flatten(0, 1) for parts in zip(*maps, strict=True))
        return Shot(raw, reached, logits.detach(), targets, capture.calls[layer])

    def _that_ran(self, inputs: torch.Tensor, layer: str) -> str:
        """The layers nearest to one that did not run, of those that did."""
        ran = list(dict.fromkeys(call.name for call in trace_calls(self._model, inputs[:1])))
        parent = layer.rpartition(".")[0]
        beside = [name for name in ran if parent and (name == parent or name.startswith(f"{parent}."))]
        near = [*closest(layer, ran), *beside][:4] or ran[-4:]
        return f" Layers that ran: {', '.join(dict.fromkeys(near))}."


def mixes_rows(model: nn.Module) -> bool:
    """Whether the rows of a batch depend on each other: a BatchNorm without running statistics uses the batch's own."""
    return any(isinstance(module, _BatchNorm) and module.running_mean is None for module in model.modules())


def _scale(tap: Tap) -> float:
    """What keeps gradients of float16, whose smallest step is 6e-8, from vanishing in the mean over a map's places."""
    return 256.0 if tap.activation.dtype == torch.float16 else 1.0


def _gradient(tap: Tap) -> torch.Tensor:
    assert tap.gradient is not None, "Capture.backward raises NoPath where there is none"
    return tap.gradient
