"""What is written down while a step runs: its operations, what each read and wrote, and the calls of modules."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from camapp.hooks.nonfinite.measure import Counts

Outside: TypeAlias = Literal["parameter", "buffer", "batch", "constant"]


@dataclass(frozen=True)
class Known:
    """A tensor that was there before the step.

    Args:
        what: what it is to the model.
        name: the name of a parameter or buffer; empty for others.
        shape: its shape; None where it is not known.
    """

    what: Outside
    name: str = ""
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Read:
    """A tensor of floating-point numbers as it was when an operation took it, or had just made it.

    Args:
        name: the name of the argument, ``"weight"`` say; empty for a result.
        shape: its shape.
        dtype: its dtype without the word torch, ``"float16"``.
        measured: the number of its counts.
        writers: the operations, by number, whose results lie in its memory.
        memory: the number of its memory.
        outside: whether its memory, or a part, was written by no operation of the step.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    measured: int
    writers: tuple[int, ...]
    memory: int
    outside: bool = False


@dataclass
class ModuleRun:
    """One call of one module.

    Args:
        name: the module's dotted name; empty for the model itself.
        kind: the name of its class.
        call: the number of this call of the module, from 0; calls in a recomputation are counted on their own.
        parent: the number of the run that it was called in; None for a call by the step itself.
        first: the number that autograd's next node had when the call began.
        thread: the thread that it ran in.
        task: the number of the backward that it was recomputed for; -1 for a call in the forward.
        last: the number that autograd's next node had when the call ended; None while it runs.
        inner: whether it called other modules.
    """

    name: str
    kind: str
    call: int
    parent: int | None
    first: int
    thread: int
    task: int
    last: int | None = None
    inner: bool = False


@dataclass(frozen=True)
class Operation:
    """One operation of torch, in true order.

    Args:
        number: its place in that order, from 0.
        name: aten's name of it, ``"aten.div.Tensor"``.
        short_name: the same without namespace and overload, ``"div"``.
        reads: what it took.
        results: what it made, or changed in place.
        run: the module run that it ran in, by number; None outside of modules, and in a backward.
        task: the number of the backward that it ran in; -1 outside of any.
        thread: the thread that it ran in.
        node: the number of the node of autograd's graph whose backward it belongs to; of an operation of a forward, of
            the node made for it. None where there is none.
        node_name: the name of the node whose backward it belongs to, ``"DivBackward0"``.
        leaf: the name of the parameter whose gradient was being accumulated; empty for another leaf, else None.
        hooked: whether a hook of the user's called it during a backward.
        says_minus: whether a number written in its call is -Inf.
        line: the line of the user's code that called it, ``"net.py:34"``; None where autograd did.
        begun: how many module calls had begun before it.
        ended: whether a backward had run before it.
    """

    number: int
    name: str
    short_name: str
    reads: tuple[Read, ...]
    results: tuple[Read, ...]
    run: int | None
    task: int
    thread: int
    node: int | None
    node_name: str | None
    leaf: str | None
    hooked: bool
    says_minus: bool
    line: str | None
    begun: int
    ended: bool


@dataclass
class Recording:
    """All that was written down of a step.

    Args:
        operations: in true order.
        runs: the module calls, in the order in which they began.
        counts: the counts by their numbers.
        known: by the number of a memory, what it was before the step: which parameter, buffer or other tensor.
        node_names: names of autograd's nodes by their numbers.
        handed_out: what calls of the model itself returned.
        symptoms: the losses that are not finite, of those that are known; else such gradients that reached leaves.
    """

    operations: list[Operation] = field(default_factory=list)
    runs: list[ModuleRun] = field(default_factory=list)
    counts: dict[int, Counts] = field(default_factory=dict)
    known: dict[int, Known] = field(default_factory=dict)
    node_names: dict[int, str] = field(default_factory=dict)
    handed_out: list[Read] = field(default_factory=list)
    symptoms: list[Read] = field(default_factory=list)

    def bad(self, reads: Iterable[Read]) -> list[Read]:
        """Those of some tensors that are not finite."""
        return [read for read in reads if self.counts[read.measured].bad]
