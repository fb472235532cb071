"""Memory tells who wrote what lies in a tensor, and forgets what was freed."""

from __future__ import annotations

import numpy as np
import torch

from camapp.hooks.nonfinite.measure import Measures
from camapp.hooks.nonfinite.memory import Memory

NAN = float("nan")


def test_a_view_of_the_same_elements_is_not_measured_again_and_a_part_is() -> None:
    measures = Measures()
    memory = Memory(measures)
    x = torch.tensor([[1.0, 2.0], [NAN, NAN]])
    written = memory.write(x, 0, new=True)
    assert memory.read(x.t()).measured == memory.read(x.view(-1)).measured == written.measured
    first = memory.read(x[0])
    assert (first.writers, first.outside) == ((0,), False)
    assert not measures.read()[first.measured].bad
    assert measures.read()[written.measured].nan == 2


def test_a_part_that_is_written_leaves_the_writers_of_the_rest_and_spoils_what_was_read_before() -> None:
    measures = Measures()
    memory = Memory(measures)
    x = torch.ones(4)
    memory.write(x, 0, new=True)
    before = memory.read(x[1:])
    x[2:].fill_(NAN)
    memory.write(x[2:], 1)
    after = memory.read(x[1:])
    assert (after.writers, after.outside) == ((0, 1), False)
    assert not measures.read()[before.measured].bad
    assert measures.read()[after.measured].nan == 2
    x.zero_()
    memory.write(x, 2)
    assert memory.read(x).writers == (2,)
    assert not measures.read()[memory.read(x[1:]).measured].bad


def test_memory_that_was_freed_and_lies_elsewhere_later_has_no_past() -> None:
    memory = Memory(Measures())
    x = torch.ones(3) * 2
    written, address = memory.write(x, 0, new=True), memory.address(x)
    del x
    kept = []
    for _ in range(1000):  # until the allocator gives the same place to numbers that torch did not write
        kept.append(torch.from_numpy(np.ones(3, np.float32)))
        if memory.address(kept[-1]) == address:
            break
    read = memory.read(kept[-1])
    assert memory.address(kept[-1]) == address
    assert (read.writers, read.outside) == ((), True)
    assert read.memory != written.memory
