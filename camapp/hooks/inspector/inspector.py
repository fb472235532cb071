"""The Inspector: watches a training from within, step by step, and says what goes wrong."""

from __future__ import annotations

import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from types import TracebackType
from typing import Any

import torch
from torch import nn

from camapp.errors import UsageError
from camapp.hooks.handles import Handles
from camapp.hooks.hookable import check_layers, hookable
from camapp.hooks.inspector.judging import Thresholds
from camapp.hooks.inspector.measured import Judged, Parameters, compose
from camapp.hooks.inspector.recorder import Recorder
from camapp.hooks.inspector.updates import Moves, Weights
from camapp.hooks.inspector.watched import watched_layers
from camapp.hooks.nonfinite import Finding, RandomState, locate, nonfinite_flag
from camapp.hooks.report.records import Snapshot, Verdict
from camapp.hooks.report.table import text
from camapp.hooks.report.writer import Writer
from camapp.hooks.scaling import has_unscaled, scale_of
from camapp.hooks.schedules import Active, schedule
from camapp.hooks.selection import Pattern


class Inspector:
    """Watches activations and gradients while a model is trained, and changes no bit of the training.

    Every step the loss and all gradients of parameters are checked to be finite, which waits for the device once. At
    chosen steps everything is measured: the output of each layer and its gradient, of the last forward before
    ``step``; the accumulated gradient of each parameter; and how far the update after the last such step moved it.
    That too is read at once, at ``step``. Steps in between cost next to nothing.

    Without ``with``, ``close`` removes the hooks, as does dropping the inspector.

    Args:
        model: the model that is trained, not compiled. Only forwards in this thread are watched.
        every: measure each so many steps, beginning with the first, or where a function of the step's number says so.
        layers: those whose outputs are measured: patterns such as ``"layer4.*"`` or ``"lstm#0"``, modules, or classes
            such as ``nn.Conv2d``; by default all layers without layers inside, but for those that hand on what they
            were given, as Identity does. Gradients of parameters are measured of the whole model.
        writers: what snapshots are handed to; closed with the inspector.
        sample: how many elements of a tensor its quantiles may rest on, always the same ones.
        check: False to look at nothing at steps that are not measured.
        keep: how many snapshots ``history`` holds.
        thresholds: from where on something is called wrong.

    Raises:
        ModelError: a model that would run without hooks: compiled, scripted, or in an nn.DataParallel.
        LayerError: a pattern that means no layer of the model.
        UsageError: an argument out of range.

    Example:
        >>> with Inspector(model, every=50) as inspector:
        ...     for x, y in loader:
        ...         loss = criterion(model(x), y)
        ...         loss.backward()
        ...         inspector.step(loss)
        ...         optimizer.step()
        ...         optimizer.zero_grad()
        >>> print(inspector.report())
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        every: int | Active = 50,
        layers: Pattern | Iterable[Pattern] | None = None,
        writers: Iterable[Writer] = (),
        sample: int = 8192,
        check: bool = True,
        keep: int = 1000,
        thresholds: Thresholds | None = None,
    ) -> None:
        _check_number("sample", sample)
        _check_number("keep", keep)
        self._model = hookable(model)
        self._every = schedule(every)
        self._writers = tuple(writers)
        self._sample = sample
        self._check = check
        self._thresholds = thresholds or Thresholds()
        self._history: deque[Snapshot] = deque(maxlen=keep)
        self._parameters = Parameters.of(self._model)
        self._weights: Weights | None = None
        self._moves: Moves | None = None
        self._number = 0
        self._warned: set[str] = set()
        self._open = True
        self._recorder = Recorder(sample, _random_state_of(self._model) if check else None)
        self._recorder.armed = self._every(0)
        hooks = Handles()
        # The hooks hold the recorder, which does not know the inspector: so that this runs when that is dropped.
        self._remove_hooks = weakref.finalize(self, hooks.remove)
        watched = watched_layers(self._model, layers)
        check_layers(self._model, [(one.name, one.module) for one in watched])
        self._recorder.attach(self._model, watched, hooks)

    @property
    def history(self) -> tuple[Snapshot, ...]:
        """The snapshots so far, oldest first; the last ``keep`` of them."""
        return tuple(self._history)

    @property
    def latest(self) -> Snapshot | None:
        """The last snapshot; None before the first."""
        return self._history[-1] if self._history else None

    def step(
        self,
        loss: torch.Tensor | float | None = None,
        *,
        scaler: torch.amp.GradScaler | None = None,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> Snapshot | None:
        """Take stock of a step: call it after the backward (the last one, of several) and before the optimizer's step.

        Args:
            loss: the loss of the step, one number; not yet multiplied by a scale.
            scaler: the GradScaler, if one is used: gradients are divided by its scale, unless that has been done.
            optimizer: the optimizer that the scaler may have unscaled; needed only where there are several.

        Returns:
            What was measured, at chosen steps and where a gradient or the loss is not finite; None otherwise.

        Raises:
            UsageError: the inspector has been closed; a loss that is not one number.
        """
        if not self._open:
            raise UsageError("This inspector has been closed. Make a new one to go on inspecting.")
        _check_loss(loss)
        parameters = self._parameters
        if self._weights is not None:
            self._moves, self._weights = self._weights.moved(parameters.named), None
        measured = self._recorder.armed
        if measured:
            parameters = self._parameters = Parameters.of(self._model)  # some may have been replaced
        gradients = {name: one.grad for name, one in parameters.trained().items() if one.grad is not None}
        snapshot = None
        if measured or (self._check and not _finite(gradients, loss)):
            snapshot = self._measure(loss, gradients, scaler, optimizer, measured=measured)
            if measured:
                self._weights = Weights.of({name: parameters.named[name] for name in gradients})
        self._number += 1  # before anyone is told, who may raise
        self._recorder.armed = self._every(self._number)
        if snapshot is not None:
            self._tell(snapshot, measured=measured, nothing=not gradients)
        return snapshot

    def locate(self, step: Callable[[], torch.Tensor | None]) -> Finding | None:
        """Find where the first value that is not finite comes from, by running a step again.

        Args:
            step: computes the loss of the same batch anew. Random numbers are drawn as in the last forward.

        Returns:
            As ``camapp.hooks.nonfinite.locate``: a finding, or None where all is finite.
        """
        return locate(self._model, step, random_state=self._recorder.begun_with)

    def report(self) -> str:
        """The last snapshot as text, to be printed: what is wrong in words, then all figures as a table."""
        if self.latest is None:
            return "Nothing has been measured yet."
        return text(self.latest)

    def close(self) -> None:
        """Remove the hooks and close the writers; a second time does nothing."""
        if not self._open:
            return
        self._open = False
        self._remove_hooks()
        self._recorder.armed = False
        self._recorder.taken()
        self._weights = self._moves = None
        with ExitStack() as stack:
            for writer in self._writers:
                stack.callback(writer.close)

    def __enter__(self) -> Inspector:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "open" if self._open else "closed"
        return f"Inspector({type(self._model).__name__}, {state}, {self._number} steps, {len(self._history)} snapshots)"

    def _measure(
        self,
        loss: torch.Tensor | float | None,
        gradients: dict[str, torch.Tensor],
        scaler: torch.amp.GradScaler | None,
        optimizer: torch.optim.Optimizer | None,
        *,
        measured: bool,
    ) -> Snapshot:
        like = next(iter(gradients.values()), loss)
        moves = self._moves if measured else None
        if measured:
            self._moves = None
        return compose(
            self._number,
            loss,
            self._recorder.taken(),
            self._parameters,
            gradients,
            Judged(self._history, self._thresholds),
            most=self._sample,
            moves=moves,
            scale=scale_of(scaler, like) if isinstance(like, torch.Tensor) else None,
            unscaled=has_unscaled(scaler, optimizer),
        )

    def _tell(self, snapshot: Snapshot, *, measured: bool, nothing: bool) -> None:
        self._history.append(snapshot)
        broken = [verdict for verdict in snapshot.verdicts if verdict.what == "non-finite"]
        if broken:
            self._warn(
                "non-finite",
                f"Step {snapshot.step}: {_told(broken[0])} inspector.locate(function) tells where it begins, given a "
                "function that computes the same loss again. This is said once.",
            )
        if measured and not any(snapshot.of("activation")):
            self._warn(
                "nothing ran",
                f"Step {snapshot.step}: none of the layers ran in this thread since the last step, with gradients on. "
                "Run the model that was given, not a compiled one or a copy of it.",
            )
        if measured and nothing:
            self._warn(
                "no gradient",
                f"Step {snapshot.step}: no parameter has a gradient. Call step() after the backward and before "
                "zero_grad().",
            )
        for writer in self._writers:
            writer.write(snapshot)

    def _warn(self, about: str, text: str) -> None:
        if about not in self._warned:
            self._warned.add(about)
            warnings.warn(text, stacklevel=4)  # of who called step()


def _told(verdict: Verdict) -> str:
    return verdict.why if verdict.name == "loss" else f"{verdict.name}, {verdict.of}: {verdict.why}"


def _random_state_of(model: nn.Module) -> Callable[[], Any]:
    """What tells the random state before a forward, so that ``locate`` can draw the same numbers again."""
    model_of = weakref.ref(model)  # the recorder lives in the model's hooks

    def random_state() -> Any:
        model = model_of()
        return None if model is None else RandomState.capture(model)

    return random_state


def _check_number(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UsageError(f"{name}={value!r} is no whole number from 1 up.")


def _check_loss(loss: Any) -> None:
    if loss is None or isinstance(loss, float | int):
        return
    if not isinstance(loss, torch.Tensor):
        raise UsageError(f"A loss is a tensor with one element or a number, not {type(loss).__name__}.")
    if loss.numel() != 1:
        raise UsageError(f"A loss is one number, not a tensor of the shape {tuple(loss.shape)}. Give its mean or sum.")


def _finite(gradients: dict[str, torch.Tensor], loss: torch.Tensor | float | None) -> bool:
    """Whether all is finite; waits for the device, once."""
    given = loss if isinstance(loss, torch.Tensor) else torch.tensor(0.0 if loss is None else float(loss))
    return not nonfinite_flag([*gradients.values(), given])
