"""Watch: sees every operation of torch while a step runs, forward and backward, and writes down where numbers flow."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import local
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from camapp.hooks.nonfinite import autograd
from camapp.hooks.nonfinite.held import Held
from camapp.hooks.nonfinite.measure import Measures
from camapp.hooks.nonfinite.memory import Memory
from camapp.hooks.nonfinite.operands import Operand, makes_memory, may_be_view, operands, real_tensors, short_name
from camapp.hooks.nonfinite.record import Known, Operation, Outside, Read, Recording
from camapp.hooks.nonfinite.runs import Runs
from camapp.hooks.structures import tensors_in


class Watch(TorchDispatchMode):
    """While it is entered, writes down all operations of this thread, and of the backwards that it starts.

    Args:
        model: the network; its modules get hooks meanwhile.
        held: is told of leaves and parameters before a step changes them.
    """

    supports_higher_order_operators = True

    def __init__(self, model: nn.Module, held: Held) -> None:
        super().__init__()
        self._measures = Measures()
        self._memory = Memory(self._measures)
        self._held = held
        self._runs = Runs(model, self._on_given, self._on_returned)
        self._recording = Recording(runs=self._runs.all)
        self._aside = local()
        self._leaves: dict[torch.Tensor, str] = {}
        self._backward = False
        self._losses: list[Read] = []
        self._gradients: list[Read] = []
        for name, buffer in model.named_buffers():
            self._name(buffer, "buffer", name)
        for name, parameter in model.named_parameters():
            self._name(parameter, "parameter", name)
            self._leaves[parameter] = name

    def __enter__(self) -> Any:
        self._runs.__enter__()
        try:
            return super().__enter__()
        except BaseException:
            self._runs.__exit__()
            raise

    def __exit__(self, *error: Any) -> None:
        try:
            super().__exit__(*error)
        finally:
            self._runs.__exit__()

    @property
    def saw_backward(self) -> bool:
        """Whether a backward has run."""
        return self._backward

    @property
    def saw_model(self) -> bool:
        """Whether any module of the model was called."""
        return bool(self._runs.all)

    def learn_graph(self, loss: torch.Tensor) -> None:
        """Take down the names of the nodes that a backward from ``loss`` would run."""
        for node in autograd.nodes_behind(loss):
            number = autograd.number_of(node)
            if number is not None:
                self._recording.node_names[number] = autograd.name_of(node)

    def finite(self, loss: torch.Tensor) -> bool:
        """Whether a loss is finite; waits for the device."""
        with self._unwatched():
            return bool(torch.isfinite(loss.detach()).all())

    def finish(self, loss: torch.Tensor | None) -> Recording:
        """All that was written down; to be called once, after the step.

        Args:
            loss: the loss, where the step returned it.
        """
        with self._unwatched():
            losses = [*self._losses, *([] if loss is None else [self._memory.read(loss)])]
            gradients = [*self._gradients, *(self._memory.read(gradient) for gradient in self._held.gradients())]
        recording = self._recording
        recording.counts = self._measures.read()
        for operation in recording.operations:
            if operation.node is not None and operation.node_name is not None:
                recording.node_names.setdefault(operation.node, operation.node_name)
        recording.symptoms = recording.bad(losses) or recording.bad(gradients)
        return recording

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one operation, and write it down."""
        kwargs = kwargs or {}
        if getattr(self._aside, "value", False):
            return func(*args, **kwargs)
        node = self._running_node()
        given = operands(func, args, kwargs)
        if may_be_view(func):
            output = func(*args, **kwargs)
            self._write_down_view(func, given, output, node)
            return output
        if autograd.begins_backward(sys._getframe(1)):
            self._learn_loss(given)
        reads = self._read(given)
        changed = [tensor for operand in given if operand.written for tensor in operand.tensors]
        for tensor in changed:
            self._held.about_to_change(self._memory.address(tensor))
        output = func(*args, **kwargs)
        made = [] if makes_memory(func) else self._made(given, output)
        self._write_down(func, given, reads, made, changed, node)
        if makes_memory(func):
            self._note_memory(output)
        return output

    def _running_node(self) -> Any:
        """The node whose backward runs; its leaf, if it has one, is set aside before its gradient comes."""
        if autograd.running_task() < 0:
            return None
        self._backward = True
        node = autograd.running_node()
        leaf = None if node is None else autograd.leaf_of(node)
        if leaf is not None:
            self._held.leaf(leaf)
        return node

    def _learn_loss(self, given: list[Operand]) -> None:
        """Learn of a loss that the step sends backward itself: torch makes ones like it before it begins."""
        for loss in (tensor for operand in given for tensor in operand.tensors):
            if loss.numel() == 1:
                self.learn_graph(loss)
                self._losses.append(self._memory.read(loss))

    def _read(self, given: list[Operand]) -> tuple[Read, ...]:
        return tuple(
            self._memory.read(tensor, operand.name) for operand in given if operand.read for tensor in operand.tensors
        )

    def _made(self, given: list[Operand], output: Any) -> list[torch.Tensor]:
        """What an operation returned that lies in memory of its own."""
        taken = {self._memory.address(tensor) for operand in given for tensor in operand.tensors} - {None}
        return [tensor for tensor in real_tensors(output) if self._memory.address(tensor) not in taken]

    def _note_memory(self, output: Any) -> None:
        for tensor in real_tensors(output):
            self._recording.known[self._memory.number(tensor)] = Known("constant", "uninitialised memory")

    def _write_down_view(self, func: Any, given: list[Operand], output: Any, node: Any) -> None:
        """Views are no operations of their own, and are not measured, as they are made often and without need."""
        made = self._made(given, output)
        if made:  # no view after all
            self._write_down(func, given, self._read(given), made, [], node)
        elif node is not None and autograd.leaf_of(node) is not None:  # so a leaf takes its first gradient over
            self._gradients.extend(self._memory.read(tensor) for tensor in real_tensors(output))

    def _write_down(
        self,
        func: Any,
        given: list[Operand],
        reads: tuple[Read, ...],
        made: list[torch.Tensor],
        changed: list[torch.Tensor],
        node: Any,
    ) -> None:
        number = len(self._recording.operations)
        results = (
            *(self._memory.write(tensor, number, new=True) for tensor in made),
            *(self._memory.write(tensor, number) for tensor in changed),
        )
        run, line = self._runs.running(), autograd.users_line(sys._getframe(2))
        behind = node if run is None else None  # within a module, a backward runs a forward again
        leaf = None if behind is None else autograd.leaf_of(behind)
        hooked = behind is not None and line is not None and not autograd.written_in_python(behind)
        if leaf is not None and not hooked:
            self._gradients.extend((*reads, *results))
        if not results:
            return
        self._recording.operations.append(
            Operation(
                number=number,
                name=str(func),
                short_name=short_name(func),
                reads=reads,
                results=results,
                run=run,
                task=autograd.running_task(),
                thread=autograd.thread(),
                node=_made_for(given) if behind is None else autograd.number_of(behind),
                node_name=None if behind is None else autograd.name_of(behind),
                leaf=None if leaf is None else self._leaves.get(leaf, ""),
                hooked=hooked,
                says_minus=any(operand.value == -math.inf for operand in given if isinstance(operand.value, float)),
                line=line,
                begun=len(self._runs.all),
                ended=self._backward,
            )
        )

    def _on_given(self, arguments: Any) -> None:
        with self._unwatched():
            for tensor in real_tensors(tuple(tensors_in(arguments).values())):
                read = self._memory.read(tensor)
                if read.outside and not read.writers:
                    self._recording.known.setdefault(read.memory, Known("batch", "", read.shape))

    def _on_returned(self, output: Any) -> None:
        with self._unwatched():
            tensors = real_tensors(tuple(tensors_in(output).values()))
            self._recording.handed_out.extend(self._memory.read(tensor) for tensor in tensors)

    @contextmanager
    def _unwatched(self) -> Iterator[None]:
        before = getattr(self._aside, "value", False)
        self._aside.value = True
        try:
            yield
        finally:
            self._aside.value = before

    def _name(self, tensor: torch.Tensor, what: Outside, name: str) -> None:
        self._recording.known[self._memory.number(tensor)] = Known(what, name, tuple(tensor.shape))


def _made_for(given: list[Operand]) -> int | None:
    """The number of the node that autograd made for an operation, just before it came here."""
    if torch.is_grad_enabled() and any(tensor.requires_grad for operand in given for tensor in operand.tensors):
        return autograd.next_number() - 1
    return None
