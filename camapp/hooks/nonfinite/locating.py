"""Runs a failing step once more, and finds where its first NaN or infinity is born."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from camapp.errors import UsageError
from camapp.hooks.as_found import as_found
from camapp.hooks.layers import unwrap
from camapp.hooks.nonfinite.describe import describe
from camapp.hooks.nonfinite.finding import Finding
from camapp.hooks.nonfinite.held import RandomState, held
from camapp.hooks.nonfinite.origin import find_origin
from camapp.hooks.nonfinite.watch import Watch


def locate(
    model: nn.Module, step: Callable[[], torch.Tensor | None], *, random_state: RandomState | None = None
) -> Finding | None:
    """Run a training step again and name the first module that made NaN or infinity out of finite numbers.

    The step is run once, under watch: every operation of its forward and its backward, in true order, functional
    ones, in-place ones and those of hooks and of checkpoints included. If the loss, or else a gradient, is not finite,
    the flow of numbers is followed back from there, so that NaN and infinities that do no harm (masks of -Inf, NaN that
    is masked out) are passed over.

    Training flags, buffers, gradients, parameters, random state, hooks and grad mode are left as they were found, also
    where the step raises; its error passes through. Leave the optimizer's step out: what the optimizer holds is not put
    back.

    Args:
        model: the network; of a compiled or DataParallel one the module inside.
        step: runs the failing batch through the model and returns its loss, a tensor of one element, which is then sent
            backward; or sends it backward itself, and returns it or None.
        random_state: the state of the random generators before the failing step, as ``RandomState.capture`` gave it, so
            that dropout drops the same again; None for the state now.

    Returns:
        What was found; None where the loss and all gradients are finite.

    Raises:
        UsageError: the step returned something else, nothing without a backward of its own, or did not call the model
            in this thread.
        ModelError: a scripted model, which takes no hooks.
    """
    inner = unwrap(model)  # what was compiled runs as it was written while operations are watched (torch 2.6, 2.14)
    with as_found(inner, predict=False), held(inner) as kept:
        if random_state is not None:
            random_state.restore()
        watch = Watch(inner, kept)
        with watch:
            loss = _loss(step())
            # autograd.grad alone, as for a penalty on gradients, is not yet the step's backward: that writes .grad.
            done = watch.saw_backward and any(one.grad is not None for one in inner.parameters())
            if loss is None and not watch.saw_backward:
                raise UsageError(
                    "The step returned no loss and ran no backward, so that its gradients cannot be looked at. Return "
                    "the loss."
                )
            if loss is not None and not done and loss.requires_grad:
                watch.learn_graph(loss)
                if watch.finite(loss):
                    _send_back(loss, again=watch.saw_backward)
        if not watch.saw_model:
            raise UsageError(
                f"The step did not call this {type(inner).__name__}, or any module of it, in this thread. Let it call "
                "the model that is given; of a DataParallel one, which may run copies in threads, call its .module."
            )
        recording = watch.finish(loss)
    origin = find_origin(recording)
    return None if origin is None else describe(recording, origin)


def _send_back(loss: torch.Tensor, *, again: bool) -> None:
    """Send the loss backward; where the step has run a backward of its own kind, its graph may be gone by now."""
    try:
        loss.backward()
    except RuntimeError as error:
        if not (again and "a second time" in str(error)):
            raise


def _loss(returned: object) -> torch.Tensor | None:
    if returned is None:
        return None
    if not isinstance(returned, torch.Tensor):
        raise UsageError(f"A step returns its loss as a tensor, or None, not {type(returned).__name__}.")
    if returned.numel() != 1:
        raise UsageError(
            f"A step returns its loss as a tensor of one element, not one of shape {tuple(returned.shape)}. "
            "Reduce it, say by .mean()."
        )
    return returned
