"""Which operation wrote what lies in a tensor's memory, through views and in-place operations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from camapp.hooks.nonfinite.check import stored
from camapp.hooks.nonfinite.measure import Measures
from camapp.hooks.nonfinite.record import Read


@dataclass
class _Held:
    """What is known of one piece of memory."""

    reference: Any  # a weak one: the memory is freed in time, and its number is not given to another meanwhile
    writers: tuple[int, ...] = ()
    outside: bool = True
    whole: tuple[int, int] | None = None  # how many elements were measured together, and the number of the counts
    parts: dict[tuple[Any, ...], int] = field(default_factory=dict)


class Memory:
    """Follows the flow of numbers by the storages that they lie in.

    Tensors are measured when they are written. What was written in parts, before the step or unseen, is measured when
    it is read.
    """

    def __init__(self, measures: Measures) -> None:
        self._measures = measures
        self._held: dict[int, _Held] = {}

    def number(self, tensor: torch.Tensor) -> int | None:
        """The number of the memory that ``tensor`` lies in; None for a tensor that has none of its own."""
        try:
            return int(stored(tensor).untyped_storage()._cdata)
        except (RuntimeError, NotImplementedError):  # tensors of other makes, such as opaque ones
            return None

    def read(self, tensor: torch.Tensor, name: str = "") -> Read:
        """Note ``tensor`` as it is now."""
        number = self.number(tensor)
        if number is None:
            return self._noted(tensor, name, self._measures.add(tensor), _Held(None), -1)
        held = self._held_by(number, tensor)
        elements = _elements(tensor)
        if held.whole is not None and held.whole[0] == elements:
            return self._noted(tensor, name, held.whole[1], held, number)
        place = _place(tensor)
        if place not in held.parts:
            held.parts[place] = self._measures.add(tensor)
        return self._noted(tensor, name, held.parts[place], held, number)

    def write(self, tensor: torch.Tensor, operation: int, *, new: bool = False) -> Read:
        """Note that an operation, by its number, has just written all of ``tensor``.

        Args:
            tensor: the tensor, or the view of one, that was written.
            operation: the operation's number.
            new: whether the operation also made the memory.
        """
        number = self.number(tensor)
        measured = self._measures.add(tensor)
        if number is None:
            return self._noted(tensor, "", measured, _Held(None, (operation,), False), -1)
        held = self._held_by(number, tensor)
        elements = _elements(tensor)
        if new or elements >= (held.whole[0] if held.whole else _room(tensor)):
            held.writers, held.outside = (operation,), False
            held.whole, held.parts = (elements, measured), {}
        else:
            held.writers = (*held.writers, operation)
            held.whole, held.parts = None, {_place(tensor): measured}
        return self._noted(tensor, "", measured, held, number)

    def make(self, tensor: torch.Tensor) -> int | None:
        """Note that ``tensor`` has just got memory that nothing was written to, and return the number of that."""
        number = self.number(tensor)
        if number is not None:
            self._held_by(number, tensor)
        return number

    def _held_by(self, number: int, tensor: torch.Tensor) -> _Held:
        held = self._held.get(number)
        if held is None:
            held = self._held[number] = _Held(StorageWeakRef(stored(tensor).untyped_storage()))
        return held

    @staticmethod
    def _noted(tensor: torch.Tensor, name: str, measured: int, held: _Held, number: int) -> Read:
        dtype = str(tensor.dtype).removeprefix("torch.")
        return Read(name, tuple(tensor.shape), dtype, measured, held.writers, number, held.outside)


def _elements(tensor: torch.Tensor) -> int:
    """How many elements of memory a tensor covers; expanded ones lie on each other."""
    values = stored(tensor)
    count = 1
    for size, stride in zip(values.shape, values.stride(), strict=True):
        count *= size if stride or not size else 1
    return count


def _room(tensor: torch.Tensor) -> int:
    """How many elements the memory of a tensor has room for."""
    values = stored(tensor)
    return values.untyped_storage().nbytes() // values.element_size()


def _place(tensor: torch.Tensor) -> tuple[Any, ...]:
    values = stored(tensor)
    return values.storage_offset(), tuple(values.shape), values.stride(), values.dtype
