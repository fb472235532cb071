"""Intervening: the second layer of a manager, which changes activations and gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import torch

from camapp.errors import LayerError, UsageError
from camapp.hooks import edits
from camapp.hooks.as_found import in_backward
from camapp.hooks.edits import Edit
from camapp.hooks.manager.norm_clip import NormClip
from camapp.hooks.manager.places import Place, find_places, whole_layers
from camapp.hooks.manager.recording import Recording
from camapp.hooks.manager.recordings import NotRecordedYet, Recordings, Spot
from camapp.hooks.manager.registry import Extra
from camapp.hooks.manager.stations import Action, Of
from camapp.hooks.manager.stochastic_depth import StochasticDepth
from camapp.hooks.schedules import Active, schedule

# Asks what was recorded, and answers whether to edit: a bool, or a tensor of one bool, which nothing waits for.
Rule: TypeAlias = Callable[[Recordings], "bool | torch.Tensor"]
Places: TypeAlias = "Place | Iterable[Place]"


class Intervening(Recording):
    """What a manager changes. All changes are new tensors; those at one place are made in the order of declaration.

    Each method takes the place as ``record`` does and these options:

    - ``of``: ``"gradient"``, the default, or ``"activation"``;
    - ``when``: a rule, asked with what was recorded: ``when=lambda seen: seen.gradients["layer3"] > 10``. Until that
      has been recorded once, nothing is changed;
    - ``every``: at every so many forwards, or a function of the forward's number;
    - ``name``: a name for it, by which it can be removed.
    """

    def edit(
        self,
        place: Places,
        *changes: Edit,
        of: Of = "gradient",
        when: Rule | None = None,
        every: int | Active = 1,
        name: str | None = None,
    ) -> None:
        """Change tensors or gradients at a place, by one edit after the other.

        On a parameter an edit sees each micro-batch's gradient, before it is added up. On a layer it sees the gradient
        of what the layer gave, or with ``"layer4:input"`` the part of its input's that comes through this layer.

        Args:
            place: layers, parameters or a tensor, as for ``record``.
            changes: edits of ``camapp.hooks.edits``.
            of: ``"gradient"`` or ``"activation"``.
            when: a rule that is asked with what was recorded.
            every: at every so many forwards, or a function of the forward's number.
            name: a name for it, by which it can be removed.

        Raises:
            LayerError: a place that the model does not have.
            UsageError: no edit, an activation of a parameter, or a closed manager. At work: an edit that returns
                another shape, dtype or device.
        """
        if not changes or not all(isinstance(change, Edit) for change in changes):
            raise UsageError("edit takes one or more edits of camapp.hooks.edits, such as edits.scale(0.1).")
        active = schedule(every)
        for number, change in enumerate(changes):
            self._edit(place, change, of, when, active, name, together=number > 0)

    def clip_value(self, place: Places, limit: float, **options: Any) -> None:
        """Clamp every element to ``[-limit, limit]``."""
        self.edit(place, edits.clip_value(limit), **options)

    def clip_norm(self, place: Places, max_norm: float, **options: Any) -> None:
        """Bring the norm of each tensor down to ``max_norm``; of many together: ``clip_total_norm``."""
        self.edit(place, edits.clip_norm(max_norm), **options)

    def scale(self, place: Places, factor: float, **options: Any) -> None:
        """Multiply by ``factor``: how strongly a branch is learned from."""
        self.edit(place, edits.scale(factor), **options)

    def reverse(self, place: Places, factor: float = 1.0, **options: Any) -> None:
        """Multiply by ``-factor``: gradient reversal."""
        self.edit(place, edits.reverse(factor), **options)

    def zero(self, place: Places, **options: Any) -> None:
        """Put zeros in its place: a stopped gradient, or an ablated layer (``of="activation"``)."""
        self.edit(place, edits.zero(), **options)

    def add_noise(self, place: Places, std: float, *, generator: torch.Generator | None = None, **options: Any) -> None:
        """Add normal noise of standard deviation ``std``."""
        self.edit(place, edits.add_noise(std, generator=generator), **options)

    def replace(self, place: Places, function: Callable[[torch.Tensor], torch.Tensor], **options: Any) -> None:
        """Put in its place what ``function`` makes of it, a new tensor like it."""
        self.edit(place, edits.replace(function), **options)

    def edit_output(
        self,
        place: Places,
        function: Callable[[torch.Tensor], torch.Tensor],
        *,
        any_shape: bool = False,
        **options: Any,
    ) -> None:
        """Let the network go on with what ``function`` makes of each tensor that a layer gives."""
        self.edit(place, edits.replace(function, any_shape=any_shape), of="activation", **options)

    def edit_input(
        self,
        place: Places,
        function: Callable[[torch.Tensor], torch.Tensor],
        *,
        any_shape: bool = False,
        **options: Any,
    ) -> None:
        """Let a layer run on what ``function`` makes of each tensor that it is given (in a forward pre-hook)."""
        layers, tensors = find_places(self.model, place)
        if tensors:
            raise UsageError(f"Layers have inputs; {next(iter(tensors))} has none.")
        inputs = [one.key if one.input else _input_of(one.key) for one in layers]
        self.edit(inputs, edits.replace(function, any_shape=any_shape), of="activation", **options)

    def stochastic_depth(
        self,
        place: Places,
        p: float,
        *,
        mode: str = "row",
        generator: torch.Generator | None = None,
        name: str | None = None,
    ) -> None:
        """Pass residual blocks by at random, in train mode only, with the expectation kept (``StochasticDepth``).

        Args:
            place: the blocks.
            p: how often each is passed by, from 0 up to but not including 1.
            mode: ``"row"`` draws for each row of the batch, ``"batch"`` once for all.
            generator: where the numbers come from; torch's own by default.
            name: a name for it, by which it can be removed.

        Raises:
            LayerError: a place that the model does not have. At work: a block that changes shape or dtype.
            UsageError: a probability or mode that is none.
        """
        self._check_open()
        layers, tensors = find_places(self.model, place)
        if tensors:
            raise UsageError(f"Stochastic depth is for blocks, not for parameters such as {next(iter(tensors))}.")
        whole_layers(layers, "Residual blocks")
        twice = [one.place for one in self._extras if one.what == "stochastic_depth"]
        if any(layer.key in twice for layer in layers):
            raise UsageError(f"{', '.join(twice)}: passed by already. Remove that first: hooks.remove(...).")
        names = self._unused_names(name, "stochastic_depth", [layer.key for layer in layers])
        for layer in layers:
            extra = Extra(
                names[layer.key], name or names[layer.key], layer.key, "stochastic_depth", self._session.more_handles()
            )
            depth = StochasticDepth(p, mode, generator, self._session, extra)
            extra.handles.forward_pre(layer.module, depth.before)
            extra.handles.forward(layer.module, depth.after, with_kwargs=True, always=True)
            self._extras.append(extra)

    def clip_total_norm(self, max_norm: float, place: Places | None = None) -> NormClip:
        """What clips the norm of many gradients together: call its ``step()`` between backward and optimizer.

        Args:
            max_norm: the highest norm, from 0.
            place: parameters by name or glob; all by default.

        Raises:
            LayerError: a place that the model does not have.
        """
        self._check_open()
        if place is None:
            return NormClip(self.model.parameters(), max_norm, self._session.scaler)
        layers, tensors = find_places(self.model, place)
        inner = {id(one): one for layer in layers for one in layer.module.parameters()}
        parameters = {**inner, **{id(one): one for one in tensors.values()}}.values()
        return NormClip(parameters, max_norm, self._session.scaler)

    def _edit(
        self,
        place: Places,
        change: Edit,
        of: Of,
        when: Rule | None,
        active: Active,
        name: str | None,
        *,
        together: bool,
    ) -> None:
        session = self._session
        decided = _Decided(when, session.recordings.for_rules())

        def run(tensor: torch.Tensor, spot: Spot, step: int) -> torch.Tensor | None:
            again = of == "activation" and in_backward()
            if again and not change.repeatable:
                raise UsageError(
                    f'"{spot.name}" is checkpointed, and runs again within the backward, where the generator of '
                    f"{change.name} would draw other numbers. Leave generator= out: torch's own state is rewound there."
                )
            allowed = decided(spot, step, again=again)
            if allowed is False:
                return None
            changed = change(tensor, session.loss_scale(tensor) if of == "gradient" else None)
            return changed if allowed is True else torch.where(allowed.to(tensor.device), changed, tensor)

        def make(name: str, key: str, layer: bool) -> Action:
            if of not in ("activation", "gradient"):
                raise UsageError(f'of is "activation" or "gradient", not {of!r}.')
            if of == "activation" and not layer:
                raise UsageError("A parameter or tensor has no activation that passes by. Edit its gradient.")
            return Action(name, name, change.name, of, run, active, any_shape=change.any_shape)

        self._register(place, change.name, name, make, together=together)


class _Decided:
    """What a rule answers; where checkpointing repeats a forward, what it answered the first time."""

    def __init__(self, when: Rule | None, recordings: Recordings) -> None:
        self._when = when
        self._recordings = recordings
        self._step = -1
        self._answers: dict[Spot, bool | torch.Tensor] = {}

    def __call__(self, spot: Spot, step: int, *, again: bool) -> bool | torch.Tensor:
        if self._when is None:
            return True
        if again and spot in self._answers:
            return self._answers[spot]
        if self._step != step:
            self._step, self._answers = step, {}
        self._answers[spot] = self._asked(self._when)
        return self._answers[spot]

    def _asked(self, when: Rule) -> bool | torch.Tensor:
        try:
            answer = when(self._recordings)
        except NotRecordedYet:
            return False
        except LayerError as error:
            raise LayerError(f"A rule asked for what is not recorded. {error}") from error
        if not isinstance(answer, torch.Tensor):
            return bool(answer)
        if answer.numel() != 1:
            raise UsageError(f"A rule answers yes or no; this one gave a tensor of the shape {tuple(answer.shape)}.")
        return answer.detach().bool().reshape(())


def _input_of(key: str) -> str:
    name, mark, part = key.partition("#")
    return f"{name}:input{mark}{part}"
