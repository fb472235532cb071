"""Tells an origin in the model's terms: which module, in which phase, after and before which others."""

from __future__ import annotations

import math
from collections import Counter

import torch

from camapp.hooks.nonfinite.finding import Finding, ModuleCall, Phase, Place, TensorFacts
from camapp.hooks.nonfinite.origin import Origin
from camapp.hooks.nonfinite.record import ModuleRun, Operation, Read, Recording

_MAKE_INFINITIES = {"div", "reciprocal", "rsqrt", "log", "log2", "log10", "log1p", "logit", "atanh"}


def describe(recording: Recording, origin: Origin) -> Finding:
    """The finding that an origin is."""
    operation = origin.operation
    if operation is None:
        assert origin.source is not None
        return Finding("constant", "forward", None, None, None, (), (_facts(recording, origin.source),))
    story = _Story(recording)
    run = story.run_of(operation)
    place = (
        _place(recording, story, operation, run) if origin.source is None else _brought(recording, operation, origin)
    )
    inputs = tuple(_facts(recording, read) for read in operation.reads)
    outputs = operation.results if origin.source is None else (origin.source,)
    facts = tuple(_facts(recording, read) for read in outputs)
    before, after = story.neighbours(operation, run)
    return Finding(
        place=place,
        phase=_phase(operation),
        module=None if run is None else story.call(run),
        operation=operation.name,
        autograd=operation.node_name or recording.node_names.get(-1 if operation.node is None else operation.node),
        inputs=inputs,
        outputs=facts,
        largest_input=max((one.largest for one in inputs), default=None),
        overflow=origin.source is None and _overflows(operation, inputs, facts),
        tensor=_tensor(recording, operation, origin, place),
        mask=None if origin.mask is None else _mask(recording, story, origin.mask),
        before=before,
        after=after,
        line=operation.line,
    )


class _Story:
    """Who ran what: attributes operations to module runs, those of a backward by the numbers of autograd's nodes."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._runs = recording.runs
        self._calls = Counter((run.name, run.task >= 0) for run in recording.runs)
        self._tasks = [operation.task for operation in recording.operations if operation.task >= 0]
        #: The calls by the step itself, with their numbers.
        self.tops = [(place, run) for place, run in enumerate(recording.runs) if run.parent is None and run.task < 0]

    def call(self, number: int) -> ModuleCall:
        """The call that a run is."""
        run = self._runs[number]
        return ModuleCall(run.name, run.kind, run.call, self._calls[run.name, run.task >= 0])

    def run_of(self, operation: Operation) -> int | None:
        """The number of the run that an operation belongs to; None for the step's own code."""
        if operation.run is not None or operation.task < 0:
            return operation.run
        if operation.leaf:
            owner = operation.leaf.rpartition(".")[0]
            return next((number for number, run in _backwards(self._runs) if run.name == owner), None)
        if operation.node is None:
            return None
        around = [number for number, run in enumerate(self._runs) if _made(run, operation.node)]
        # A thread counts its nodes from 0, and a GPU's backward recomputes forwards in a thread of its own. The nodes
        # of such a forward run in a backward of their own, within the first one.
        first = operation.task == self._tasks[0]
        alike = [
            number
            for number in around
            if (self._runs[number].task < 0) == first and (first or self._runs[number].thread == operation.thread)
        ]
        return max(alike or around, key=lambda number: (self._runs[number].first, number), default=None)

    def neighbours(self, operation: Operation, run: int | None) -> tuple[ModuleCall | None, ModuleCall | None]:
        """The calls of modules without modules of their own that ran before and after an operation, in true order."""
        if operation.run is not None or operation.task < 0:
            return self._forward_neighbours(operation, run)
        return self._beside(operation, run, -1), self._beside(operation, run, 1)

    def _forward_neighbours(self, operation: Operation, run: int | None) -> tuple[ModuleCall | None, ModuleCall | None]:
        recomputed = operation.task >= 0
        leaves = [
            number
            for number, one in enumerate(self._runs)
            if not one.inner and number != run and (one.task >= 0) == recomputed
        ]
        before = [number for number in leaves if number < operation.begun]
        after = [number for number in leaves if number >= operation.begun]
        return self.call(before[-1]) if before else None, self.call(after[0]) if after else None

    def _beside(self, operation: Operation, run: int | None, way: int) -> ModuleCall | None:
        operations = self._recording.operations
        place = operation.number + way
        while 0 <= place < len(operations) and operations[place].task >= 0:
            other = self.run_of(operations[place])
            if other is not None and other != run and not self._runs[other].inner:
                return self.call(other)
            place += way
        return None


def _backwards(runs: list[ModuleRun]) -> list[tuple[int, ModuleRun]]:
    return list(enumerate(runs))[::-1]


def _made(run: ModuleRun, node: int) -> bool:
    return run.last is not None and run.first <= node < run.last


def _phase(operation: Operation) -> Phase:
    if operation.task < 0:
        return "forward"
    return "backward" if operation.run is None else "recomputation"


def _place(recording: Recording, story: _Story, operation: Operation, run: int | None) -> Place:
    if operation.hooked:
        return "hook"
    if run is not None:
        return "between modules" if recording.runs[run].inner else "module"
    if operation.task < 0:
        if operation.ended:
            return "after the backward"
        began = sum(number < operation.begun for number, _ in story.tops)
        return "before the model" if not began else "loss" if began == len(story.tops) else "between modules"
    if operation.node is None or not story.tops or operation.node >= (story.tops[-1][1].last or 0):
        return "loss"
    return "before the model" if operation.node < story.tops[0][1].first else "between modules"


def _brought(recording: Recording, operation: Operation, origin: Origin) -> Place:
    """What a tensor was that was not finite to begin with."""
    assert origin.source is not None
    known = recording.known.get(origin.source.memory)
    if known is not None:
        return known.what
    return "batch" if operation.task < 0 and operation.run is None else "constant"


def _tensor(recording: Recording, operation: Operation, origin: Origin, place: Place) -> str | None:
    if origin.source is not None:
        known = recording.known.get(origin.source.memory)
        return known.name or None if known else None
    return operation.leaf or None if place == "hook" else None


def _mask(recording: Recording, story: _Story, mask: Operation | Read) -> str:
    if isinstance(mask, Read):
        known = recording.known.get(mask.memory)
        if known is None:
            return "a tensor from outside"
        return f"the {known.what} {known.name}".rstrip()
    run = story.run_of(mask)
    return f"{mask.name} in {'the step' if run is None else story.call(run)}"


def _facts(recording: Recording, read: Read) -> TensorFacts:
    """What a tensor was; of one that was there before the step, in its own shape rather than a view's."""
    counts, known = recording.counts[read.measured], recording.known.get(read.memory)
    shape = read.shape
    if known and known.shape and not read.writers and math.prod(known.shape) == math.prod(shape):
        shape = known.shape
    return TensorFacts(read.name, shape, read.dtype, counts.nan, counts.plus + counts.minus, counts.largest)


def _overflows(operation: Operation, inputs: tuple[TensorFacts, ...], outputs: tuple[TensorFacts, ...]) -> bool:
    """Whether infinities came of numbers that were large already: near the largest, or near its root for products."""
    if not any(facts.inf for facts in outputs) or operation.short_name.rstrip("_") in _MAKE_INFINITIES:
        return False
    dtype = getattr(torch, outputs[0].dtype)
    limit = torch.finfo(dtype).max
    taken = max((facts.largest for facts in inputs), default=0.0)
    if operation.short_name.rstrip("_") in ("exp", "expm1", "sinh", "cosh"):
        return taken > 0.99 * math.log(limit)
    return taken >= math.sqrt(limit) or max(facts.largest for facts in outputs) > 0.01 * limit
