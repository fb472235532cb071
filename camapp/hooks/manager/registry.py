"""Registry: the stations of one manager, and what is registered at them under which name."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
from torch import nn

from camapp.errors import UsageError, did_you_mean
from camapp.hooks.handles import Handles
from camapp.hooks.hookable import hookable
from camapp.hooks.layers import Layer
from camapp.hooks.manager.places import Place, find_places
from camapp.hooks.manager.session import Session
from camapp.hooks.manager.stations import Action, LayerStation, Station, TensorStation


@dataclass(frozen=True)
class Registered:
    """One thing that is registered at one place.

    Args:
        name: its name, by which it can be removed.
        place: the layer, parameter or tensor.
        what: what it does: ``"record"``, ``"clip_norm"``, ``"forward"`` ...
        of: what it is done to: activations, gradients, or the module itself.
        fired: how often it was done.
    """

    name: str
    place: str
    what: str
    of: str
    fired: int


class Registry:
    """What a manager stands on: it finds places, keeps one station at each, and knows all that is registered.

    Args:
        model: the network.
        scaler: the ``torch.amp.GradScaler`` of the training loop.
    """

    def __init__(self, model: nn.Module, *, scaler: Any = None) -> None:
        self.model = hookable(model)
        self._session = Session(scaler)
        self._layers: dict[tuple[int, bool], LayerStation] = {}
        self._tensors: dict[int, TensorStation] = {}  # by the id of the tensor, as long as that lives
        self._extras: list[Extra] = []
        self._second_names = _second_names(self.model)
        self._session.handles.forward_pre(self.model, self._session.enter_forward)
        self._session.handles.forward(self.model, self._session.leave_forward, always=True)
        # Hooks hold the session, not this object: dropped without close(), it takes its hooks along.
        self._end = weakref.finalize(self, self._session.close)
        self._end.atexit = False

    def _register(
        self,
        place: Place | Iterable[Place],
        what: str,
        name: str | None,
        make: Callable[[str, str, bool], Action],
        *,
        together: bool = False,
    ) -> list[tuple[Station, Action]]:
        """Put an action at every place meant; all places are found before the first is touched.

        Args:
            place: what is meant.
            what: what the action does, in a word.
            name: the name given, or None.
            make: makes the action of its name, of the key of its place and of whether that is a layer.
            together: whether something was just registered under the same name, which this belongs to.
        """
        self._check_open()
        for key in [key for key, one in self._tensors.items() if one.tensor() is None]:
            del self._tensors[key]  # of a step that is over: its hook went with the tensor
        layers, tensors = find_places(self.model, place)
        names = self._unused_names(name, what, [*(layer.key for layer in layers), *tensors], together=together)
        of_layers = [(layer, make(names[layer.key], layer.key, True)) for layer in layers]
        of_tensors = [(key, tensor, make(names[key], key, False)) for key, tensor in tensors.items()]
        placed: list[tuple[Station, Action]] = []
        for layer, action in of_layers:
            action.call, action.part = layer.call, layer.output
            placed.append((self._station_of(layer), action))
        placed += [(self._station_at(key, tensor), action) for key, tensor, action in of_tensors]
        for station, action in placed:
            action.group = name or action.name
            station.actions.append(action)
        return placed

    def _unused_names(self, name: str | None, what: str, keys: list[str], *, together: bool = False) -> dict[str, str]:
        """A name for each place: the one given (with the place, where there are several) or a plain one."""
        everything: list[Action | Extra] = [action for station in self._stations for action in station.actions]
        everything += self._extras
        if name is not None and not together and any(_named(one, name) for one in everything):
            raise UsageError(
                f'"{name}" is registered. Choose another name, or remove it first: hooks.remove("{name}").'
            )
        taken = {one.name for one in everything}
        names = {}
        for key in keys:
            stem = f"{what} {key}" if name is None else name if len(keys) == 1 else f"{name} {key}"
            names[key] = _unused(stem, taken)
            taken.add(names[key])
        return names

    def _station_of(self, layer: Layer) -> LayerStation:
        key = (id(layer.module), layer.input)
        if key not in self._layers:
            self._layers[key] = LayerStation(layer, self._session)
            self._name(layer.module, layer.name)
        return self._layers[key]

    def _station_at(self, name: str, tensor: torch.Tensor) -> TensorStation:
        station = self._tensors.get(id(tensor))
        if station is None or station.tensor() is not tensor:
            name = _unused(name, {one.name for one in self._tensors.values()} if name.startswith("tensor") else ())
            station = self._tensors[id(tensor)] = TensorStation(name, tensor, self._session)
            self._name(tensor, name)
        return station

    def _name(self, one: nn.Module | torch.Tensor, name: str) -> None:
        """Let what is recorded under a name be found by the others of the same module or parameter."""
        for other in self._second_names.get(id(one), ()):
            self._session.recordings.same(other, name)

    @property
    def _stations(self) -> list[Station]:
        return [*self._layers.values(), *self._tensors.values()]

    @property
    def registered(self) -> list[Registered]:
        """All that is registered, place by place, in the order in which it is done."""
        of_stations = [
            Registered(action.name, _shown(station), action.what, action.of, action.fired)
            for station in self._stations
            for action in station.actions
        ]
        return of_stations + [Registered(one.name, one.place, one.what, "module", one.fired) for one in self._extras]

    def remove(self, name: str) -> None:
        """Take away what was registered under ``name``, at all its places; the rest stays.

        Raises:
            UsageError: nothing is registered under that name.
        """
        stations = [station for station in self._stations if any(_named(one, name) for one in station.actions)]
        extras = [extra for extra in self._extras if _named(extra, name)]
        if not stations and not extras:
            known = [one.name for one in self.registered]
            raise UsageError(f'Nothing is registered as "{name}".{did_you_mean(name, known)}')
        for station in stations:
            for action in [action for action in station.actions if _named(action, name)]:
                station.actions.remove(action)
                action.live = False
                self._session.on_begin.pop(action.name, None)
                self._session.recordings.of(action.of).forgo(action.name)
            if not station.actions:
                self._session.drop(station.handles)
        for extra in extras:
            self._session.drop(extra.handles)
            self._extras.remove(extra)
        self._layers = {key: station for key, station in self._layers.items() if station.actions}
        self._tensors = {key: station for key, station in self._tensors.items() if station.actions}

    def remaining(self) -> int:
        """How many hooks of this manager are still registered in torch; 0 once it is closed."""
        return self._session.remaining()

    def _check_open(self) -> None:
        if not self._session.open:
            raise UsageError(
                "This HookManager is closed: its hooks are gone. What it recorded can still be read; open another one "
                "to register more."
            )


@dataclass
class Extra:
    """Something registered beside the stations: a hook of the user's own, or several that work together.

    Args:
        name: the name under which it is registered.
        group: the name that it was given, perhaps with others.
        place: the layer, parameter or tensor.
        what: what it is.
        handles: its hooks.
        fired: how often it did something.
    """

    name: str
    group: str
    place: str
    what: str
    handles: Handles
    fired: int = 0


def _second_names(model: nn.Module) -> dict[int, list[str]]:
    """The names of modules and parameters that have several, by id."""
    names: dict[int, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        names.setdefault(id(module), []).append(name)
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return {key: several for key, several in names.items() if len(several) > 1}


def _named(one: Action | Extra, name: str) -> bool:
    return name in (one.name, one.group)


def _unused(stem: str, taken: Container[str]) -> str:
    """``stem``, or ``stem 2``, ``stem 3`` ... where it is taken."""
    names = (stem if number == 1 else f"{stem} {number}" for number in count(1))
    return next(name for name in names if name not in taken)


def _shown(station: Station) -> str:
    return f"{station.name}:input" if isinstance(station, LayerStation) and station.input else station.name
