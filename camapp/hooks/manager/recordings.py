"""Recordings: what hooks recorded, by layer, call and part."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from camapp.errors import LayerError, UsageError, did_you_mean
from camapp.hooks.layers import PLACE

_Steps: TypeAlias = "deque[tuple[int, Any]]"  # the number of a step, and what was recorded at it


class NotRecordedYet(LayerError):  # noqa: N818 - says what is wrong: not recorded yet
    """The place is recorded, but nothing has been seen there so far."""


@dataclass(frozen=True)
class Spot:
    """Where in a forward a tensor was seen.

    Args:
        name: the dotted name of the layer or parameter, or the name given to a tensor.
        call: the number of the call within the forward, from 0; None for parameters and tensors.
        input: whether it went into the layer, instead of out of it.
        part: its place in the layer's output or inputs, as ``camapp.hooks.structures`` names it; ``""`` for an output
            that is one tensor.
    """

    name: str
    call: int | None = None
    input: bool = False
    part: str = ""

    @property
    def key(self) -> str:
        """Its name as a place: ``layer4``, ``relu@1``, ``lstm#1.0``."""
        call, part = f"@{self.call}" if self.call else "", f"#{self.part}" if self.part else ""
        return f"{self.name}{call}{':input' if self.input else ''}{part}"


def within(part: str, meant: str | None) -> bool:
    """Whether a part is the one meant, or lies within it; None means all."""
    return meant is None or part == meant or part.startswith(f"{meant}.")


class Recorded(Mapping[str, Any]):
    """What was recorded of one kind, activations or gradients, by the name of the place.

    Keys are as short as they can be: ``layer4``; ``layer4:input``; ``relu@0`` and ``relu@1`` where a layer ran several
    times; ``lstm#0`` and ``lstm#1.0`` where it gave several tensors. Looking up a name without call gives the last
    call, without part the first part; ``("relu", 0)`` is the same as ``"relu@0"``.

    Example:
        >>> hooks.activations["layer4"].shape
        >>> {name: tensor.norm() for name, tensor in hooks.gradients.items()}
    """

    def __init__(self, kind: str, shared: Recorded | None = None) -> None:
        self._kind = kind
        self._latest_only = shared is None  # of places that did not come by in the latest step there is nothing
        # By the name of the layer or parameter; of a second recorder at a place, by its own.
        self._values: dict[str, dict[Spot, _Steps]] = {} if shared is None else shared._values
        self._begun: dict[str, int] = {} if shared is None else shared._begun
        self._expected: dict[str, str] = {} if shared is None else shared._expected  # names by recorder
        self._second_names: dict[str, str] = {} if shared is None else shared._second_names

    def __getitem__(self, key: str | tuple[str, int]) -> Any:
        """The last value recorded at a place.

        Raises:
            LayerError: a place that is not recorded, or where nothing was seen yet.
        """
        return self._find(key)[-1][1]

    def get(self, key: Any, default: Any = None) -> Any:
        """The last value recorded at a place, or ``default`` where there is none."""
        try:
            return self[key]
        except (LayerError, UsageError):
            return default

    def __contains__(self, key: object) -> bool:
        try:
            self._find(key)  # type: ignore[arg-type]
        except (LayerError, UsageError):
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(self._listed())

    def __len__(self) -> int:
        return len(self._listed())

    def __repr__(self) -> str:
        return f"{{{', '.join(f'{key!r}: {_shown(value)}' for key, value in self.items())}}}"

    def steps(self, key: str | tuple[str, int]) -> list[tuple[int, Any]]:
        """The steps at which a place was recorded and what was recorded, oldest first; as many as are kept."""
        return list(self._find(key))

    def clear(self) -> None:
        """Forget all values."""
        self._values.clear()

    @property
    def recorders(self) -> dict[str, str]:
        """By the name of each recorder, the name that it files what it records under."""
        return dict(self._expected)

    def expect(self, recorder: str, name: str) -> None:
        """A recorder was put up, which files what it records under a name."""
        self._expected[recorder] = name

    def forgo(self, recorder: str) -> None:
        """A recorder was taken away; what it recorded stays."""
        self._expected.pop(recorder, None)

    def add_name(self, second: str, name: str) -> None:
        """Let what has one name be found by another."""
        self._second_names[second] = name

    def put(self, spot: Spot, step: int, value: Any, keep: int) -> None:
        """Write one value, and let go of the oldest beyond ``keep`` steps."""
        spots = self._values.setdefault(spot.name, {})
        values = spots.get(spot)
        if values is not None and values.maxlen == keep and values[-1][0] < step:
            values.append((step, value))
            return
        # Of one step the last value counts; backwards of several forwards may come in any order.
        others = [one for one in spots.get(spot, ()) if one[0] != step]
        spots[spot] = deque(sorted([*others, (step, value)], key=lambda one: one[0]), maxlen=keep)

    def begin(self, name: str, step: int) -> None:
        """A step begins that is recorded: what a name has from steps before is no longer the latest."""
        self._begun[name] = step

    def _spots(self, name: str) -> dict[Spot, _Steps]:
        """What there is under a name."""
        begun = self._begun.get(name, -1) if self._latest_only else -1
        spots = self._values.get(name, {})
        return {spot: values for spot, values in spots.items() if values.maxlen != 1 or values[-1][0] >= begun}

    def _listed(self) -> dict[str, _Steps]:
        """Everything by its shortest key."""
        listed = {}
        for name in self._values:
            spots = self._spots(name)
            for spot, values in spots.items():
                beside = [one for one in spots if one.input == spot.input]
                several = spot.call or any(one.call != spot.call for one in beside)
                alone = spot.part in ("", "0") and all(one.part == spot.part for one in beside)
                call, part = f"@{spot.call}" if several else "", "" if alone else f"#{spot.part}"
                listed[f"{name}{call}{':input' if spot.input else ''}{part}"] = values
        return listed

    def _find(self, key: str | tuple[str, int]) -> _Steps:
        if isinstance(key, tuple):
            key = f"{key[0]}@{key[1]}"
        if not isinstance(key, str):
            raise UsageError(f"A recording is looked up by name or (name, call), not by {type(key).__name__}.")
        key = self._second_names.get(key, key)
        place = PLACE.fullmatch(key)
        assert place is not None, "PLACE matches any text"
        name = self._second_names.get(place["name"], place["name"])
        own = self._spots(key)  # a name may itself look like a place
        spots = {spot: values for spot, values in own.items() if not spot.input}
        if not spots:
            call = None if place["call"] is None else int(place["call"])
            spots = {
                spot: values
                for spot, values in self._spots(name).items()
                if spot.input == bool(place["input"]) and call in (None, spot.call)
                if within(spot.part, place["output"])
            }
        if not spots:
            raise self._nothing(key, name)
        if place["call"] is None:
            newest = max(values[-1][0] for values in spots.values())
            spots = {spot: values for spot, values in spots.items() if values[-1][0] == newest}
        exact = {spot: values for spot, values in spots.items() if spot.part == place["output"]}
        spots = exact or spots  # a part may be named like the beginning of another
        last = max(spot.call or 0 for spot in spots)
        return next(values for spot, values in spots.items() if (spot.call or 0) == last)

    def _nothing(self, key: str, name: str) -> LayerError:
        expected = set(self._expected.values())
        if name in expected or key in expected:
            there = [one for one in self if (place := PLACE.fullmatch(one)) and place["name"] == name]
            what = f" Recorded of it: {', '.join(there)}." if there else ""
            return NotRecordedYet(
                f'No {self._kind} of "{key}" has been recorded yet: the model has not run since, or the layer did not '
                f"run in it.{what} hooks.silent() says which hooks never fired, and why."
            )
        hint = did_you_mean(name, expected) or ("" if expected else " Nothing is.")
        return LayerError(f'The {self._kind} of "{key}" is not recorded.{hint}')


class Recordings:
    """What a manager recorded: ``activations`` and ``gradients``; what rules of edits are asked with.

    Attributes:
        activations: what layers gave, or were given.
        gradients: the gradients of that, of parameters and of tensors.
    """

    def __init__(self) -> None:
        self.activations = Recorded("activation")
        self.gradients = Recorded("gradient")

    def for_rules(self) -> Recordings:
        """The same as rules see it: of places that have not come by in this step, what they had in the one before."""
        seen = Recordings()
        seen.activations = Recorded("activation", self.activations)
        seen.gradients = Recorded("gradient", self.gradients)
        return seen

    def same(self, second: str, name: str) -> None:
        """What is recorded under a name can be looked up by another name of the same module or parameter too."""
        if second != name:
            self.activations.add_name(second, name)
            self.gradients.add_name(second, name)

    def of(self, kind: str) -> Recorded:
        """``activations`` or ``gradients``."""
        return self.activations if kind == "activation" else self.gradients


def _shown(value: Any) -> str:
    if isinstance(value, torch.Tensor) and value.numel() > 1:
        return f"tensor{tuple(value.shape)}"
    return repr(value)
