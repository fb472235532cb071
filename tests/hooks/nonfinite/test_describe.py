"""Operations of a backward go to the module calls whose nodes they run, in whatever thread those were made."""

from __future__ import annotations

import pytest

from camapp.hooks.nonfinite.describe import describe
from camapp.hooks.nonfinite.measure import Counts
from camapp.hooks.nonfinite.origin import find_origin
from camapp.hooks.nonfinite.record import ModuleRun, Operation, Read, Recording

HOST, DEVICE = 1, 2


def operation(number: int, *, task: int, node: int, nan: bool) -> Operation:
    result = Read("", (2,), "float32", int(nan), (number,), number)
    return Operation(
        number, "aten.mul.Tensor", "mul", (), (result,), None, task, DEVICE, node, "MulBackward0", None, False, False,
        None, 3, True,
    )  # fmt: skip


@pytest.mark.parametrize(("task", "named"), [(0, "late"), (1, "again")])
def test_a_device_thread_that_recomputes_a_forward_counts_its_nodes_anew(task: int, named: str) -> None:
    # Both numbered 4: a node made in the forward, and one made by the device's thread when it ran a segment again.
    runs = [
        ModuleRun("early", "Linear", 0, None, 0, HOST, -1, 3),
        ModuleRun("late", "Linear", 0, None, 3, HOST, -1, 9),
        ModuleRun("again", "Linear", 0, None, 4, DEVICE, 0, 6),
    ]
    bad = operation(1, task=task, node=4, nan=True)
    recording = Recording(
        operations=[operation(0, task=0, node=8, nan=False), bad],
        runs=runs,
        counts={0: Counts(largest=1.0), 1: Counts(nan=2)},
        symptoms=list(bad.results),
    )
    origin = find_origin(recording)
    assert origin is not None
    finding = describe(recording, origin)
    assert finding.module is not None
    assert (finding.module.name, finding.phase, finding.nan) == (named, "backward", 2)
