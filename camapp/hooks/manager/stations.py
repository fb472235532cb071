"""Stations: one hook at each place, that runs all that was declared there, in the order of declaration."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import torch
from torch import nn
from torch._C._functorch import is_functorch_wrapped_tensor

from camapp.errors import LayerError, UsageError
from camapp.hooks.as_found import here, in_backward
from camapp.hooks.handles import Handles
from camapp.hooks.layers import Layer
from camapp.hooks.manager.recordings import Spot, within
from camapp.hooks.manager.session import Session
from camapp.hooks.schedules import Active
from camapp.hooks.structures import tensors_in, with_tensors

Of: TypeAlias = Literal["activation", "gradient"]


@dataclass
class Action:
    """One thing that is done to a tensor or its gradient whenever it comes by.

    Args:
        name: the name under which it is registered.
        group: the name that it was given, with others perhaps, by which it can be removed.
        what: what it does, in a word: ``"record"``, ``"clip_norm"``.
        of: whether it is done to the tensor itself or to its gradient.
        run: takes the tensor (or the gradient), where it was seen and the step it belongs to; returns another tensor,
            or None for the same.
        active: whether it is done at a step.
        watches: whether it only looks, which explanations and recomputed forwards shall not be looked at by.
        call: the call of a layer that is meant; None for every one.
        part: the part that is meant, with all within it; None for every one.
        any_shape: whether what it returns may have another shape.
        fired: how often it recorded or changed something.
        live: False once it was removed.
    """

    name: str
    group: str
    what: str
    of: Of
    run: Callable[[torch.Tensor, Spot, int], torch.Tensor | None]
    active: Active
    watches: bool = False
    call: int | None = None
    part: str | None = None
    any_shape: bool = False
    fired: int = 0
    live: bool = True

    def meant(self, spot: Spot) -> bool:
        """Whether the call and the part are those that are meant."""
        return self.call in (None, spot.call) and within(spot.part, self.part)


@dataclass
class Station:
    """What is done at one place: an output or the inputs of a layer, a parameter, or a tensor.

    Args:
        name: the name of the layer, parameter or tensor.
        session: what it shares with the other stations of the manager.
        actions: in the order of declaration.
        handles: its hooks.
        asked: the spots whose gradient was asked for in this step, and has not come yet.
        no_graph: the spots whose gradient was asked for, but which do not require one.
    """

    name: str
    session: Session
    actions: list[Action] = field(default_factory=list)
    handles: Handles = field(init=False)
    asked: set[Spot] = field(default_factory=set)
    no_graph: set[Spot] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.handles = self.session.more_handles()

    def pass_gradient(
        self,
        spot: Spot,
        gradient: torch.Tensor,
        step: int,
        *,
        beside: torch.Tensor | None = None,
        editable: bool = True,
        first: bool = True,
    ) -> torch.Tensor | None:
        """Run what is done to gradients; None where nothing changed.

        Args:
            spot: where it is.
            gradient: the gradient, or the part of it that comes this way.
            step: the number of the forward that it belongs to.
            beside: the part that came another way, past the hook.
            editable: whether what is returned reaches the graph.
            first: False for a second place of one tensor, where edits of both have been made.

        Raises:
            LayerError: an edit of a gradient that goes past the hook.
        """
        if not self.session.heeded:
            return None
        self.session.gradient_came = True
        if step == self.session.step:
            self.asked.discard(spot)
            self.no_graph.discard(spot)
        changed = gradient
        for action in self._due("gradient", step):
            if not action.meant(spot) or not (first or action.watches or action.part is not None):
                continue
            if not action.watches and not editable:
                raise LayerError(
                    f'"{spot.key}" gives a view, which the network changes in place afterwards; its gradient goes '
                    f'another way, where "{action.name}" cannot reach it. Edit the layer before or behind it.'
                )
            whole = changed + beside if action.watches and beside is not None else changed
            result = _run(action, whole, spot, step)
            changed = changed if action.watches else result
        return None if changed is gradient else changed

    def _due(self, of: Of, step: int) -> Iterable[Action]:
        return [action for action in self.actions if action.of == of and action.active(step)]


class LayerStation(Station):
    """The station at the outputs of a layer, in its forward hook, or at its inputs, in its forward pre-hook."""

    def __init__(self, layer: Layer, session: Session) -> None:
        super().__init__(layer.name, session)
        self.module = layer.module
        self.input = layer.input
        self.ran = 0  #: how often the layer ran, whether or not anything was to be done
        self.step = -1  #: the step of the last forward that was recorded here
        # By thread and explanation, for forwards and for what is recomputed in a backward: the forward, and its calls.
        self._calls: dict[tuple[tuple[int, int], bool], tuple[int, int]] = {}
        self._several = False  # whether the layer ran more than once in a forward
        if layer.input:
            self.handles.forward_pre(layer.module, self._on_inputs)
        else:
            self.handles.forward(layer.module, self._on_output, with_kwargs=True)

    def _on_output(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        call = self._counted()
        if call is None:
            return None
        given = {id(tensor) for tensor in (*tensors_in(args).values(), *tensors_in(kwargs).values())}
        changed = self._passed(tensors_in(output), call, shared=given)
        return with_tensors(output, changed) if changed else None

    def _on_inputs(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        call = self._counted()
        if call is None:
            return None
        by_place, by_name = tensors_in(args), tensors_in(kwargs)
        changed = self._passed({**by_place, **by_name}, call, shared=None)
        if not changed:
            return None
        replaced = {place: tensor for place, tensor in changed.items() if place in by_place}
        named = {place: tensor for place, tensor in changed.items() if place not in by_place}
        return with_tensors(args, replaced), with_tensors(kwargs, named)

    def _counted(self) -> int | None:
        """The number of this call within its forward; None where nothing is to be done."""
        self.ran += 1
        session, again = self.session, in_backward()
        key = (here(), again)
        forward, calls = self._calls.get(key, (-1, 0))
        if not again:
            session.begin_part(again=forward == session.forward)
        calls = calls if forward == session.forward else 0
        self._calls[key] = (session.forward, calls + 1)
        if not again:
            self._several = calls > 0
        if not session.heeded or not any(action.active(session.step) for action in self.actions):
            return None
        return calls

    def _passed(
        self, tensors: Mapping[str, torch.Tensor], call: int, *, shared: set[int] | None
    ) -> dict[str, torch.Tensor]:
        """Hand the tensors to the actions; those that changed.

        Args:
            tensors: by part.
            call: the number of the call.
            shared: the ids of tensors that others than this layer hold, whose gradients are sums over all of these;
                None for all.
        """
        step = self.session.step
        if self.step != step:
            self.step = step
            self.asked.clear()
            self.no_graph.clear()
        parts: dict[int, list[str]] = {}
        for part, tensor in tensors.items():
            if tensor.is_floating_point() and not is_functorch_wrapped_tensor(tensor):
                parts.setdefault(id(tensor), []).append(part)  # one tensor may be there twice
        changed = {}
        for places in parts.values():
            tensor = tensors[places[0]]
            spots = [Spot(self.name, call, self.input, part) for part in places]
            passed = self._pass(tensor, spots, step, own=shared is not None and id(tensor) not in shared)
            if passed is not tensor:
                changed.update(dict.fromkeys(places, passed))
        return changed

    def _pass(self, tensor: torch.Tensor, spots: list[Spot], step: int, *, own: bool) -> torch.Tensor:
        seen, again = self.session.mine, in_backward()
        for action in self._due("activation", step):
            meant = [spot for spot in spots if action.meant(spot)]
            if again and meant and action.call is not None and self._several and not action.watches:
                raise self._unknown_call(spots[0])
            for spot in meant if action.watches else meant[:1]:
                if not action.watches or (seen and not again):
                    tensor = _run(action, tensor, spot, step)
        waiting = [spot for spot in spots if any(action.meant(spot) for action in self._due("gradient", step))]
        editing = any(not action.watches for action in self._due("gradient", step))
        if not waiting or not (seen or editing):
            return tensor
        if not tensor.requires_grad or not torch.is_grad_enabled():
            if seen and not again:
                self.no_graph.update(waiting)
            return tensor
        if seen and not again:
            self.asked.update(waiting)
        if tensor.is_leaf or not own:
            # A view has a node of its own, for this layer alone, and what is written to it is written to the tensor.
            tensor = tensor.view_as(tensor)
        self._follow(tensor, waiting, step, again=again)
        return tensor

    def _follow(self, tensor: torch.Tensor, spots: list[Spot], step: int, *, again: bool) -> None:
        """Have the gradient of a tensor pass by, also where it is a view that the network changes in place later."""
        past: list[torch.Tensor] = []

        def on_gradient(gradient: torch.Tensor) -> torch.Tensor | None:
            if again and self._several and self.session.heeded:
                raise self._unknown_call(spots[0])
            beside, changed = past.pop() if past else None, gradient
            for number, spot in enumerate(spots):
                result = self.pass_gradient(spot, changed, step, beside=beside, editable=True, first=number == 0)
                changed = changed if result is None else result
            return None if changed is gradient else changed

        def on_passed_by(gradient: torch.Tensor) -> None:
            past[:] = [gradient]
            for spot in spots:
                self.pass_gradient(spot, gradient, step, editable=False)

        self.session.on_gradient(tensor, on_gradient, on_passed_by)

    def _unknown_call(self, spot: Spot) -> LayerError:
        return LayerError(
            f'"{spot.name}" runs several times and is checkpointed: which of its calls runs again cannot be told. Name '
            "no call, or give checkpoint use_reentrant=False."
        )


class TensorStation(Station):
    """The station at the gradient of one parameter or tensor."""

    def __init__(self, name: str, tensor: torch.Tensor, session: Session) -> None:
        super().__init__(name, session)
        self.tensor = weakref.ref(tensor)
        spot = Spot(name)
        self.handles.tensor(tensor, lambda gradient: self.pass_gradient(spot, gradient, session.step))


def _run(action: Action, tensor: torch.Tensor, spot: Spot, step: int) -> torch.Tensor:
    """What comes after an action: what it returned, once that is what it may return."""
    version = None if tensor.is_inference() else tensor._version
    changed = action.run(tensor, spot, step)
    action.fired += action.watches or changed is not None
    if action.of == "gradient" and version is not None and tensor._version != version:
        raise UsageError(
            f'"{action.name}" changed the gradient of "{spot.key}" in place, which reaches other gradients too. Return '
            "a new tensor instead."
        )
    return tensor if changed is None else _checked(changed, tensor, action, spot)


def _checked(changed: Any, tensor: torch.Tensor, action: Action, spot: Spot) -> torch.Tensor:
    if not isinstance(changed, torch.Tensor):
        raise UsageError(
            f'"{action.name}" returned {type(changed).__name__} for the {action.of} of "{spot.key}". It must return a '
            "tensor, or None for no change."
        )
    same_shape = action.any_shape or changed.shape == tensor.shape
    if not same_shape or (changed.dtype, changed.device) != (tensor.dtype, tensor.device):
        raise UsageError(
            f'"{action.name}" returned {_described(changed)} for the {action.of} of "{spot.key}", which is '
            f"{_described(tensor)}. It must return a tensor like the one it is given."
        )
    return changed


def _described(tensor: torch.Tensor) -> str:
    shape = "x".join(map(str, tensor.shape)) or "a scalar"
    return f"{shape} {str(tensor.dtype).removeprefix('torch.')} on {tensor.device}"
