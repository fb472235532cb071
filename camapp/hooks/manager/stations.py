"""Stations: one hook at each place, that runs all that was declared there, in the order of declaration."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from threading import get_ident
from typing import Any, Literal, TypeAlias

import torch
from torch import nn

from camapp.errors import LayerError, UsageError
from camapp.hooks.as_found import in_backward
from camapp.hooks.layers import Layer
from camapp.hooks.manager.recordings import Spot
from camapp.hooks.manager.session import Session
from camapp.hooks.schedules import Active
from camapp.hooks.structures import tensors_in, with_tensors

Of: TypeAlias = Literal["activation", "gradient"]
# By place: an input as the caller gave it, the copy that the layer got, and the version of that.
_Copies: TypeAlias = dict[str, tuple[torch.Tensor, torch.Tensor, int]]


@dataclass
class Action:
    """One thing that is done to a tensor or its gradient whenever it comes by.

    Args:
        name: the name under which it is registered.
        what: what it does, in a word: ``"record"``, ``"clip_norm"``.
        of: whether it is done to the tensor itself or to its gradient.
        run: takes the tensor (or the gradient) and where it was seen; returns another, or None for the same.
        active: whether it is done at a step.
        watches: whether it only looks, which explanations and recomputed forwards shall not be looked at by.
        call: the call of a layer that is meant; None for every one.
        part: the part that is meant; None for every one.
        any_shape: whether what it returns may have another shape.
        fired: how often it was run.
        live: False once it was removed.
    """

    name: str
    what: str
    of: Of
    run: Callable[[torch.Tensor, Spot], torch.Tensor | None]
    active: Active
    watches: bool = False
    call: int | None = None
    part: str | None = None
    any_shape: bool = False
    fired: int = 0
    live: bool = True

    def meant(self, spot: Spot) -> bool:
        """Whether the call and the part are those that are meant."""
        return self.call in (None, spot.call) and self.part in (None, spot.part)


@dataclass
class Station:
    """What is done at one place: an output or the inputs of a layer, a parameter, or a tensor.

    Args:
        name: the name of the layer, parameter or tensor.
        session: what it shares with the other stations of the manager.
        actions: in the order of declaration.
        asked: the spots whose gradient was asked for in this step, and has not come yet.
        no_graph: the spots whose gradient was asked for, but which do not require one.
    """

    name: str
    session: Session
    actions: list[Action] = field(default_factory=list)
    asked: set[Spot] = field(default_factory=set)
    no_graph: set[Spot] = field(default_factory=set)

    def pass_gradient(
        self,
        spot: Spot,
        gradient: torch.Tensor,
        step: int,
        *,
        beside: torch.Tensor | None = None,
        editable: bool = True,
    ) -> torch.Tensor | None:
        """Run what is done to gradients; None where nothing changed.

        Args:
            spot: where it is.
            gradient: the gradient, or the part of it that comes this way.
            step: the number of the forward that it belongs to.
            beside: the part that came another way, past the hook.
            editable: whether what is returned reaches the graph.

        Raises:
            LayerError: an edit of a gradient that goes past the hook.
        """
        if not self.session.heeded:
            return None
        self.asked.discard(spot)
        self.no_graph.discard(spot)
        changed = gradient
        for action in self._due("gradient", step):
            if not action.meant(spot):
                continue
            if not action.watches and not editable:
                raise LayerError(
                    f"{_at(spot)} gives a view, which the network changes in place afterwards; its gradient goes "
                    f'another way, where "{action.name}" cannot reach it. Edit the layer before or behind it.'
                )
            whole = changed + beside if action.watches and beside is not None else changed
            result = _run(action, whole, spot)
            changed = changed if action.watches else result
        return None if changed is gradient else changed

    def _due(self, of: Of, step: int) -> Iterable[Action]:
        return [action for action in self.actions if action.of == of and action.active(step)]


class LayerStation(Station):
    """The station at the outputs of a layer, in its forward hook, or at its inputs, in a pair of hooks around it."""

    def __init__(self, layer: Layer, session: Session) -> None:
        super().__init__(layer.name, session)
        self.module = layer.module
        self.input = layer.input
        self.ran = 0  #: how often the layer ran, whether or not anything was to be done
        self.step = -2
        self._calls = {False: 0, True: 0}  # of the forward itself, and of forwards recomputed in its backward
        self._given: defaultdict[int, list[_Copies]] = defaultdict(list)  # by thread; a layer may run within itself
        if layer.input:
            session.handles.forward_pre(layer.module, self._on_inputs)
            session.handles.forward(layer.module, self._after_inputs, with_kwargs=True, always=True)
        else:
            session.handles.forward(layer.module, self._on_output)

    def _on_output(self, module: nn.Module, args: Any, output: Any) -> Any:
        if not self._due_here():
            return None
        changed = self._passed(tensors_in(output))
        return with_tensors(output, changed) if changed else None

    def _on_inputs(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._given[get_ident()].append({})
        if not self._due_here():
            return None
        by_place, by_name = tensors_in(args), tensors_in(kwargs)
        changed = self._passed({**by_place, **by_name})
        if not changed:
            return None
        replaced = {place: tensor for place, tensor in changed.items() if place in by_place}
        named = {place: tensor for place, tensor in changed.items() if place not in by_place}
        return with_tensors(args, replaced), with_tensors(kwargs, named)

    def _after_inputs(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        """Where the layer wrote to an input in place, write the same to the tensor that the caller gave."""
        given = self._given[get_ident()].pop()
        back: dict[int, torch.Tensor] = {}
        for original, copy, version in given.values():
            if copy._version != version:
                original.copy_(copy)
                back[id(copy)] = original
        if not back or output is None:
            return None
        places = {place: back[id(tensor)] for place, tensor in tensors_in(output).items() if id(tensor) in back}
        return with_tensors(output, places) if places else None

    def _due_here(self) -> bool:
        """Whether anything is to be done at all: most steps of most schedules have nothing."""
        self.ran += 1
        step = self.session.step
        return self.session.heeded and any(action.active(step) for action in self.actions)

    def _passed(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Hand the tensors to the actions; those that changed."""
        step, again = self.session.step, in_backward()
        if self.step != step:
            self.step, self._calls = step, {False: 0, True: 0}
            self.asked.clear()
            self.no_graph.clear()
        seen = self.session.mine
        call = self._calls[again]
        self._calls[again] += seen
        changed = {}
        for part, tensor in tensors.items():
            if not tensor.is_floating_point():
                continue
            passed = self._pass(tensor, Spot(self.name, call, self.input, part), step, seen, again)
            if passed is not tensor:
                changed[part] = passed
        return changed

    def _pass(self, tensor: torch.Tensor, spot: Spot, step: int, seen: bool, again: bool) -> torch.Tensor:
        for action in self._due("activation", step):
            if action.meant(spot) and (not action.watches or (seen and not again)):
                tensor = _run(action, tensor, spot)
        waiting = [action for action in self._due("gradient", step) if action.meant(spot)]
        if not waiting or not (seen or any(not action.watches for action in waiting)):
            return tensor
        if not tensor.requires_grad:
            if seen and not again:
                self.no_graph.add(spot)
            return tensor
        if seen and not again:
            self.asked.add(spot)
        if self.input:
            tensor = self._copied_input(tensor, spot.part)
        elif tensor.is_leaf:
            tensor = tensor.clone()  # a hook on a leaf would outlive this forward
        self._follow(tensor, spot, step)
        return tensor

    def _follow(self, tensor: torch.Tensor, spot: Spot, step: int) -> None:
        """Have the gradient of a tensor pass by, also where it is a view that the network changes in place later."""
        past: list[torch.Tensor] = []

        def on_gradient(gradient: torch.Tensor) -> torch.Tensor | None:
            return self.pass_gradient(spot, gradient, step, beside=past[-1] if past else None)

        def on_passed_by(gradient: torch.Tensor) -> None:
            past.append(gradient)
            self.pass_gradient(spot, gradient, step, editable=False)

        self.session.on_gradient(tensor, on_gradient, on_passed_by)

    def _copied_input(self, tensor: torch.Tensor, part: str) -> torch.Tensor:
        """A copy for this layer alone: the tensor's own gradient is the sum over all that use it."""
        copy = tensor.clone()
        self._given[get_ident()][-1][part] = (tensor, copy, copy._version)
        return copy


class TensorStation(Station):
    """The station at the gradient of one parameter or tensor."""

    def __init__(self, name: str, tensor: torch.Tensor, session: Session) -> None:
        super().__init__(name, session)
        self.shape = tuple(tensor.shape)
        spot = Spot(name)
        session.handles.tensor(tensor, lambda gradient: self.pass_gradient(spot, gradient, session.step))


def _run(action: Action, tensor: torch.Tensor, spot: Spot) -> torch.Tensor:
    """What comes after an action: what it returned, once that is what it may return."""
    version = None if tensor.is_inference() else tensor._version
    changed = action.run(tensor, spot)
    action.fired += 1
    if action.of == "gradient" and version is not None and tensor._version != version:
        raise UsageError(
            f'"{action.name}" changed the gradient of {_at(spot)} in place, which reaches other gradients too. Return '
            "a new tensor instead."
        )
    return tensor if changed is None else _checked(changed, tensor, action, spot)


def _checked(changed: Any, tensor: torch.Tensor, action: Action, spot: Spot) -> torch.Tensor:
    if not isinstance(changed, torch.Tensor):
        raise UsageError(
            f'"{action.name}" returned {type(changed).__name__} for the {action.of} of {_at(spot)}. It must return a '
            "tensor, or None for no change."
        )
    same_shape = action.any_shape or changed.shape == tensor.shape
    if not same_shape or (changed.dtype, changed.device) != (tensor.dtype, tensor.device):
        raise UsageError(
            f'"{action.name}" returned {_described(changed)} for the {action.of} of {_at(spot)}, which is '
            f"{_described(tensor)}. It must return a tensor like the one it is given."
        )
    return changed


def _at(spot: Spot) -> str:
    call = f", call {spot.call}" if spot.call else ""
    part = f", part {spot.part}" if spot.part else ""
    return f'"{spot.name}{":input" if spot.input else ""}"{call}{part}'


def _described(tensor: torch.Tensor) -> str:
    shape = "x".join(map(str, tensor.shape)) or "a scalar"
    return f"{shape} {str(tensor.dtype).removeprefix('torch.')} on {tensor.device}"
