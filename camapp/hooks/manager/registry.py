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
        self._tensors: list[tuple[weakref.ref[torch.Tensor], TensorStation]] = []
        self._extras: list[Extra] = []
        self._session.handles.forward_pre(self.model, self._session.begin_step)
        self._session.handles.forward(self.model, self._session.end_forward, always=True)
        # Hooks hold the session, not this object: dropped without close(), it takes its hooks along.
        self._end = weakref.finalize(self, self._session.close)
        self._end.atexit = False

    def _register(
        self, place: Place | Iterable[Place], what: str, name: str | None, make: Callable[[str, bool], Action]
    ) -> list[tuple[Station, Action]]:
        """Put an action at every place meant; all places are found before the first is touched.

        Args:
            place: what is meant.
            what: what the action does, in a word.
            name: the name given, or None.
            make: makes the action of its name and of whether its place is a layer.
        """
        self._check_open()
        layers, tensors = find_places(self.model, place)
        names = self._unused_names(name, what, [*(layer.key for layer in layers), *tensors])
        of_layers = [(layer, make(names[layer.key], True)) for layer in layers]
        of_tensors = [(key, tensor, make(names[key], False)) for key, tensor in tensors.items()]
        placed: list[tuple[Station, Action]] = []
        for layer, action in of_layers:
            action.call, action.part = layer.call, layer.output
            placed.append((self._station_of(layer), action))
        placed += [(self._station_at(key, tensor), action) for key, tensor, action in of_tensors]
        for station, action in placed:
            station.actions.append(action)
        return placed

    def _unused_names(self, name: str | None, what: str, keys: list[str]) -> dict[str, str]:
        """A name for each place: the one given (with the place, where there are several) or a plain one."""
        taken = {one.name for one in self.registered}
        if name is not None and any(one == name or one.startswith(f"{name} ") for one in taken):
            raise UsageError(
                f'"{name}" is registered. Choose another name, or remove it first: hooks.remove("{name}").'
            )
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
        return self._layers[key]

    def _station_at(self, name: str, tensor: torch.Tensor) -> TensorStation:
        for held, station in self._tensors:
            if held() is tensor:
                return station
        name = _unused(name, {station.name for _, station in self._tensors})
        self._tensors.append((weakref.ref(tensor), TensorStation(name, tensor, self._session)))
        return self._tensors[-1][1]

    @property
    def _stations(self) -> list[Station]:
        return [*self._layers.values(), *(station for _, station in self._tensors)]

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
        names = [one.name for one in self.registered]
        meant = {one for one in names if one == name or one.startswith(f"{name} ")} if name not in names else {name}
        if not meant:
            raise UsageError(f'Nothing is registered as "{name}".{did_you_mean(name, names)}')
        for station in self._stations:
            for action in [action for action in station.actions if action.name in meant]:
                station.actions.remove(action)
                action.live = False
                if action.what == "record":
                    self._session.recordings.of(action.of).expect(station.name, -1)
        for extra in [extra for extra in self._extras if extra.name in meant]:
            extra.handles.remove()
            self._extras.remove(extra)

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
        place: the layer, parameter or tensor.
        what: what it is.
        handles: its hooks.
        fired: how often it did something.
    """

    name: str
    place: str
    what: str
    handles: Handles
    fired: int = 0


def _unused(stem: str, taken: Container[str]) -> str:
    """``stem``, or ``stem 2``, ``stem 3`` ... where it is taken."""
    names = (stem if number == 1 else f"{stem} {number}" for number in count(1))
    return next(name for name in names if name not in taken)


def _shown(station: Station) -> str:
    return f"{station.name}:input" if isinstance(station, LayerStation) and station.input else station.name
