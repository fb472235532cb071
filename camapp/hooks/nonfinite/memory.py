"""Which operation wrote what lies in a tensor's memory, through views and in-place operations."""

from __future__ import annotations

import itertools
import weakref
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from camapp.hooks.nonfinite.check import stored
from camapp.hooks.nonfinite.measure import Measures
from camapp.hooks.nonfinite.record import Read


@dataclass
class _Held:
    """What is known of one piece of memory, for as long as it is used."""

    number: int
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
        self._ends: dict[int, Any] = {}
        self._numbers = itertools.count()

    @staticmethod
    def address(tensor: torch.Tensor) -> int | None:
        """Tells the memory of one tensor from that of others that are alive; None for a tensor with none of its own."""
        storage = _storage(tensor)
        return None if storage is None else int(storage._cdata)

    def number(self, tensor: torch.Tensor) -> int:
        """The number of the memory that ``tensor`` lies in, which is given to no other later."""
        return self._held_by(tensor).number

    def read(self, tensor: torch.Tensor, name: str = "") -> Read:
        """Note ``tensor`` as it is now."""
        held = self._held_by(tensor)
        if held.whole is not None and held.whole[0] == _elements(tensor):
            return _noted(tensor, name, held.whole[1], held)
        place = _place(tensor)
        if place not in held.parts:
            held.parts[place] = self._measures.add(tensor)
        return _noted(tensor, name, held.parts[place], held)

    def write(self, tensor: torch.Tensor, operation: int, *, new: bool = False) -> Read:
        """Note that an operation, by its number, has just written all of ``tensor``.

        Args:
            tensor: the tensor, or the view of one, that was written.
            operation: the operation's number.
            new: whether the operation also made the memory.
        """
        measured = self._measures.add(tensor)
        held = self._held_by(tensor)
        elements = _elements(tensor)
        if new or elements >= (held.whole[0] if held.whole else _room(tensor)):
            held.writers, held.outside = (operation,), False
            held.whole, held.parts = (elements, measured), {}
        else:
            held.writers = (*held.writers, operation)
            held.whole, held.parts = None, {_place(tensor): measured}
        return _noted(tensor, "", measured, held)

    def _held_by(self, tensor: torch.Tensor) -> _Held:
        storage = _storage(tensor)
        if storage is None:  # nothing is known of it, ever
            return _Held(next(self._numbers))
        address = int(storage._cdata)
        held = self._held.get(address)
        if held is None:
            held = self._held[address] = _Held(next(self._numbers))
            # The end of the storage's object in Python is the end of the memory, which another may lie in later. (A
            # StorageWeakRef keeps a small block alive behind each large one, so that the allocator cannot join them: a
            # step grew by all that it ever allocated.)
            self._ends[address] = weakref.ref(storage, partial(_forget, self._held, self._ends, address))
        return held


def _forget(held: dict[int, _Held], ends: dict[int, Any], address: int, reference: Any) -> None:
    if ends.get(address) is reference:
        del ends[address]
        held.pop(address, None)


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    try:
        return stored(tensor).untyped_storage()
    except (RuntimeError, NotImplementedError):  # tensors of other makes, such as opaque ones
        return None


def _noted(tensor: torch.Tensor, name: str, measured: int, held: _Held) -> Read:
    dtype = str(tensor.dtype).removeprefix("torch.")
    shape = (stored(tensor) if tensor.is_nested else tensor).shape  # nested tensors have no shape of their own
    return Read(name, tuple(shape), dtype, measured, held.writers, held.number, held.outside)


def _elements(tensor: torch.Tensor) -> int:
    """How many elements of memory a tensor covers; expanded ones lie on each other."""
    values = stored(tensor)
    count = 1
    for size, stride in zip(values.shape, values.stride(), strict=True):
        count *= size if stride or not size else 1
    return count


def _room(tensor: torch.Tensor) -> int:
    """How many elements the memory of a tensor has room for."""
    storage = _storage(tensor)
    return 0 if storage is None else storage.nbytes() // tensor.element_size()


def _place(tensor: torch.Tensor) -> tuple[Any, ...]:
    values = stored(tensor)
    return values.storage_offset(), tuple(values.shape), values.stride(), values.dtype
