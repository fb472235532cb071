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


class Recorded(Mapping[str, Any]):
    """What was recorded of one kind, activations or gradients, by the name of the place.

    Keys are as short as they can be: ``layer4``; ``layer4:input``; ``relu@0`` and ``relu@1`` where a layer ran several
    times; ``lstm#0`` and ``lstm#1.0`` where it gave several tensors. Looking up a name without call gives the last
    call, without part the first part; ``("relu", 0)`` is the same as ``"relu@0"``.

    Example:
        >>> hooks.activations["layer4"].shape
        >>> {name: tensor.norm() for name, tensor in hooks.gradients.items()}
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._values: dict[str, dict[Spot, _Steps]] = {}  # by the name of the layer or parameter
        self._expected: dict[str, int] = {}  # how many recorders there are, by the name of the layer or parameter

    def __getitem__(self, key: str | tuple[str, int]) -> Any:
        """The last value recorded at a place.

        Raises:
            LayerError: a place that is not recorded, or where nothing was seen yet.
        """
        return self._find(key)[-1][1]

    def __contains__(self, key: object) -> bool:
        try:
            self._find(key)  # type: ignore[arg-type]
        except LayerError:
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        for spots in self._values.values():
            for spot in spots:
                beside = [one for one in spots if one.input == spot.input]
                several = spot.call or any(one.call != spot.call for one in beside)
                alone = spot.part in ("", "0") and all(one.part == spot.part for one in beside)
                call, part = f"@{spot.call}" if several else "", "" if alone else f"#{spot.part}"
                yield f"{spot.name}{call}{':input' if spot.input else ''}{part}"

    def __len__(self) -> int:
        return sum(map(len, self._values.values()))

    def __repr__(self) -> str:
        return f"{{{', '.join(f'{key!r}: {_shown(value)}' for key, value in self.items())}}}"

    def steps(self, key: str | tuple[str, int]) -> list[tuple[int, Any]]:
        """The steps at which a place was recorded and what was recorded, oldest first; as many as are kept."""
        return list(self._find(key))

    def clear(self) -> None:
        """Forget all values."""
        self._values.clear()

    def expect(self, name: str, more: int = 1) -> None:
        """A recorder of ``name`` was put up (or, with -1, taken away)."""
        self._expected[name] = self._expected.get(name, 0) + more
        if self._expected[name] < 1:
            del self._expected[name]

    def put(self, spot: Spot, step: int, value: Any, keep: int) -> None:
        """Write one value, and let go of the oldest beyond ``keep`` steps."""
        spots = self._values.setdefault(spot.name, {})
        values = spots.get(spot)
        if values is None or values.maxlen != keep:
            values = spots[spot] = deque(values or (), maxlen=keep)
        if values and values[-1][0] == step:
            values.pop()  # the gradient of a second backward
        values.append((step, value))

    def begin(self, name: str) -> None:
        """Forget what a layer of which only the latest step is kept gave in steps before: it may not run in this."""
        spots = self._values.get(name, {})
        for spot in [spot for spot, values in spots.items() if values.maxlen == 1]:
            del spots[spot]

    def _find(self, key: str | tuple[str, int]) -> _Steps:
        if isinstance(key, tuple):
            key = f"{key[0]}@{key[1]}"
        if not isinstance(key, str):
            raise UsageError(f"A recording is looked up by name or (name, call), not by {type(key).__name__}.")
        place = PLACE.fullmatch(key)
        assert place is not None, "PLACE matches any text"
        own = self._values.get(key, {})  # a name may itself look like a place
        spots = {spot: values for spot, values in own.items() if not spot.input}
        if not spots:
            call = None if place["call"] is None else int(place["call"])
            spots = {
                spot: values
                for spot, values in self._values.get(place["name"], {}).items()
                if spot.input == bool(place["input"]) and call in (None, spot.call)
                if place["output"] in (None, spot.part)
            }
        if not spots:
            raise self._nothing(key, place["name"])
        last = max(spot.call or 0 for spot in spots)
        return next(values for spot, values in spots.items() if (spot.call or 0) == last)

    def _nothing(self, key: str, name: str) -> LayerError:
        if name in self._expected or key in self._expected:
            there = [one for one in self if (place := PLACE.fullmatch(one)) and place["name"] == name]
            what = f" Recorded of it: {', '.join(there)}." if there else ""
            return NotRecordedYet(
                f'No {self._kind} of "{key}" has been recorded yet: the model has not run since, or the layer did not '
                f"run in it.{what} hooks.silent() says which hooks never fired, and why."
            )
        hint = did_you_mean(name, self._expected) or (" Nothing is." if not self._expected else "")
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

    def of(self, kind: str) -> Recorded:
        """``activations`` or ``gradients``."""
        return self.activations if kind == "activation" else self.gradients


def _shown(value: Any) -> str:
    if isinstance(value, torch.Tensor) and value.numel() > 1:
        return f"tensor{tuple(value.shape)}"
    return repr(value)
