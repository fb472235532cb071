"""A set of texts that only remembers their hashes: millions of them in little memory."""

from __future__ import annotations

from array import array

_64_BITS = 2**64 - 1
_FULLEST = 0.7


class Seen:
    """Which texts came by before, in 12 to 23 bytes each whatever their length.

    Two different texts are taken for one if all 64 bits of their hashes agree: among a million, with a probability of
    3e-8.
    """

    def __init__(self) -> None:
        self._slots = array("Q", bytes(8 * 1024))
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, text: str) -> bool:
        key = _key(text)
        return self._slots[self._slot(key)] == key

    def add(self, text: str) -> bool:
        """Remember a text; whether it is new."""
        key = _key(text)
        slot = self._slot(key)
        if self._slots[slot] == key:
            return False
        self._slots[slot] = key
        self._count += 1
        if self._count > _FULLEST * len(self._slots):
            self._grow()
        return True

    def _slot(self, key: int) -> int:
        """Where a key is, or the free slot where it would go."""
        slots = self._slots
        last = len(slots) - 1
        slot = key & last
        while slots[slot] not in (0, key):
            slot = (slot + 1) & last
        return slot

    def _grow(self) -> None:
        before = self._slots
        self._slots = array("Q", bytes(2 * 8 * len(before)))
        for key in before:
            if key:
                self._slots[self._slot(key)] = key


def _key(text: str) -> int:
    return hash(text) & _64_BITS or 1  # 0 marks a free slot
