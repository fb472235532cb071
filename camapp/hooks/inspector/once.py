"""One look at a model: what its layers give and what gradients reach them, from one forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from camapp.errors import UsageError
from camapp.hooks.as_found import as_found
from camapp.hooks.handles import Handles
from camapp.hooks.hookable import hookable
from camapp.hooks.inspector.judging import Thresholds
from camapp.hooks.inspector.measured import Judged, Parameters, compose
from camapp.hooks.inspector.recorder import Recorder
from camapp.hooks.inspector.watched import watched_layers
from camapp.hooks.report.records import Snapshot
from camapp.hooks.selection import Pattern


def inspect_once(
    model: nn.Module,
    score: Callable[[], torch.Tensor],
    *,
    layers: Pattern | Iterable[Pattern] | None = None,
    sample: int = 8192,
    predict: bool = True,
    thresholds: Thresholds | None = None,
) -> Snapshot:
    """Measure one forward and backward of a model, and leave it as it was.

    No ``.grad`` is touched, and flags, buffers and random state are put back.

    Args:
        model: the network, not compiled.
        score: runs the model and returns what is differentiated: a loss or a score, one number.
        layers: as of ``Inspector``.
        sample: how many elements of a tensor its quantiles may rest on.
        predict: False to run the modules by the flags they have: with dropout, say, and batch statistics.
        thresholds: from where on something is called wrong.

    Returns:
        The snapshot, of step 0 and without an update ratio.

    Raises:
        ModelError: a model that would run without hooks.
        LayerError: a pattern that means no layer of the model.
        UsageError: a score that is not one number, or that depends on nothing that requires a gradient.
    """
    model = hookable(model)
    with as_found(model, predict=predict), Handles() as hooks:
        recorder = Recorder(sample)
        recorder.armed = True
        recorder.attach(model, watched_layers(model, layers), hooks)
        value = score()
        _check(value)
        parameters = Parameters.of(model)
        leaves = _leaves(value)
        found = torch.autograd.grad(value, leaves, allow_unused=True)
        by_leaf = {id(leaf): gradient for leaf, gradient in zip(leaves, found, strict=True)}
        gradients = {
            name: gradient
            for name, parameter in parameters.trained().items()
            if (gradient := by_leaf.get(id(parameter))) is not None
        }
        judged = Judged(None, thresholds or Thresholds())
        return compose(0, value.detach(), recorder.taken(), parameters, gradients, judged, most=sample)


def _check(value: Any) -> None:
    if not isinstance(value, torch.Tensor) or value.numel() != 1:
        given = (
            f"a tensor of the shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
        )
        raise UsageError(
            f"score() returned {given}, not a tensor of one number. Return a sum, or the score of a class."
        )
    if not value.requires_grad:
        raise UsageError(
            "The score depends on nothing that requires a gradient: all parameters are frozen, or the model detaches. "
            "Let the input require a gradient, or some parameters (requires_grad_(True))."
        )


def _leaves(value: torch.Tensor) -> list[torch.Tensor]:
    """All tensors whose gradient a backward would accumulate: parameters, and inputs that require a gradient."""
    if value.grad_fn is None:
        return [value]
    found: dict[int, torch.Tensor] = {}
    waiting, known = [value.grad_fn], {value.grad_fn}
    while waiting:
        node = waiting.pop()
        leaf = getattr(node, "variable", None)
        if leaf is not None and node.name().endswith("AccumulateGrad"):
            found[id(leaf)] = leaf
        for following, _ in node.next_functions:
            if following is not None and following not in known:
                known.add(following)
                waiting.append(following)
    return list(found.values())
