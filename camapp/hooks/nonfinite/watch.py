"""Watch: sees every operation of torch while a step runs, forward and backward, and writes down where numbers flow."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import local
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from camapp.hooks.nonfinite import autograd
from camapp.hooks.nonfinite.held import Held
from camapp.hooks.nonfinite.measure import Measures
from camapp.hooks.nonfinite.memory import Memory
from camapp.hooks.nonfinite.record import Operation, Read, Recording
from camapp.hooks.nonfinite.runs import Runs
from camapp.hooks.structures import tensors_in

_MAKES_MEMORY = {"aten::empty", "aten::empty_like", "aten::empty_strided", "aten::empty_permuted", "aten::new_empty",
                 "aten::new_empty_strided"}  # fmt: skip
# What these find in the tensor that they write plays no part.
_OVERWRITES = {"aten::copy_", "aten::fill_", "aten::zero_", "aten::normal_", "aten::uniform_", "aten::bernoulli_"}
# torch 2.14 does not say in their schemas that these write running statistics.
_WRITES_SILENTLY = {"aten::native_batch_norm", "aten::cudnn_batch_norm", "aten::miopen_batch_norm"}
_SILENTLY_WRITTEN = {"running_mean", "running_var"}


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
        self._behind: Read | None = None
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
        """Take down the names of the nodes that a backward from ``loss`` would run, and its leaves."""
        for node in autograd.nodes_behind(loss):
            number, leaf = autograd.number_of(node), autograd.leaf_of(node)
            if leaf is not None:
                self._held.leaf(leaf)
            elif number is not None:
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
            last = self._behind if loss is None else self._memory.read(loss)
            gradients = [*self._gradients, *(self._memory.read(gradient) for gradient in self._held.gradients())]
        recording = self._recording
        recording.counts = self._measures.read()
        of_loss = [last] if last is not None and recording.counts[last.measured].bad else []
        recording.symptoms = of_loss or [read for read in gradients if recording.counts[read.measured].bad]
        return recording

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one operation, and write it down."""
        kwargs = kwargs or {}
        if getattr(self._aside, "value", False):
            return func(*args, **kwargs)
        node = self._running_node()
        given = list(_given(func, args, kwargs))
        reads = tuple(
            self._memory.read(tensor, name)
            for name, how, value in given
            if not how.overwritten
            for tensor in _real_tensors(value)
        )
        changed = [tensor for _, how, value in given if how.written for tensor in _real_tensors(value)]
        for tensor in changed:
            number = self._memory.number(tensor)
            if number is not None:
                self._held.about_to_change(number)
        output = func(*args, **kwargs)
        self._write_down(func, given, reads, changed, output, node)
        return output

    def _running_node(self) -> Any:
        """The node whose backward runs; its leaf, if it has one, is set aside before its gradient comes."""
        task = autograd.running_task()
        if task < 0:
            return None
        if not self._backward:
            self._backward = True
            operations = self._recording.operations
            # Tensor.backward makes a gradient of ones for the loss, just before the engine begins.
            if operations and operations[-1].name.startswith("aten.ones_like.") and not operations[-1].task >= 0:
                self._behind = operations[-1].reads[0]
        node = autograd.running_node()
        leaf = None if node is None else autograd.leaf_of(node)
        if leaf is not None:
            self._held.leaf(leaf)
        return node

    def _write_down(
        self, func: Any, given: list[Any], reads: tuple[Read, ...], changed: list[torch.Tensor], output: Any, node: Any
    ) -> None:
        task, run = autograd.running_task(), self._runs.running()
        line = autograd.users_line(sys._getframe(2))
        number, named, leaf, hooked = None, None, None, False
        if node is not None and run is None:
            number, named = autograd.number_of(node), autograd.name_of(node)
            variable = autograd.leaf_of(node)
            leaf = None if variable is None else self._leaves.get(variable, "")
            own = autograd.written_in_python(node) and not named.startswith("BackwardHookFunction")
            hooked = line is not None and not own
            if number is not None:
                self._recording.node_names.setdefault(number, named)
        elif torch.is_grad_enabled() and any(
            tensor.requires_grad for _, _, value in given for tensor in _real_tensors(value)
        ):
            number = autograd.next_number() - 1  # the node was made just before the operation was dispatched
        results = self._results(func, given, changed, output)
        if leaf is not None and not hooked:
            self._gradients.extend((*reads, *results))
        if not results:
            return
        self._recording.operations.append(
            Operation(
                number=len(self._recording.operations),
                name=_name_of(func),
                reads=reads,
                results=results,
                run=run,
                task=task,
                thread=autograd.thread(),
                node=number,
                node_name=named,
                leaf=leaf,
                hooked=hooked,
                says_minus=any(value == float("-inf") for _, _, value in given if isinstance(value, float)),
                line=line,
                begun=len(self._runs.all),
                ended=self._backward,
            )
        )

    def _results(self, func: Any, given: list[Any], changed: list[torch.Tensor], output: Any) -> tuple[Read, ...]:
        """What an operation made or changed; a view of what it took is neither."""
        operation, name = len(self._recording.operations), _schema_name(func)
        if name in _WRITES_SILENTLY:
            changed = [*changed, *(value for name, _, value in given if name in _SILENTLY_WRITTEN and value is not None)]
        taken = {self._memory.number(tensor) for _, _, value in given for tensor in _real_tensors(value)}
        made = [tensor for tensor in _real_tensors(output) if self._memory.number(tensor) not in taken]
        if name in _MAKES_MEMORY:
            for tensor in made:
                memory = self._memory.make(tensor)
                if memory is not None:
                    self._recording.named[memory] = ("constant", "uninitialised memory")
            return ()
        written = [self._memory.write(tensor, operation, new=True) for tensor in made]
        return (*written, *(self._memory.write(tensor, operation) for tensor in changed))

    def _on_given(self, arguments: Any) -> None:
        with self._unwatched():
            for tensor in _real_tensors(tuple(tensors_in(arguments).values())):
                read = self._memory.read(tensor)
                if read.outside and not read.writers:
                    self._recording.named.setdefault(read.memory, ("batch", ""))

    def _on_returned(self, output: Any) -> None:
        with self._unwatched():
            tensors = _real_tensors(tuple(tensors_in(output).values()))
            self._recording.handed_out.extend(self._memory.read(tensor) for tensor in tensors)

    @contextmanager
    def _unwatched(self) -> Iterator[None]:
        before = getattr(self._aside, "value", False)
        self._aside.value = True
        try:
            yield
        finally:
            self._aside.value = before

    def _name(self, tensor: torch.Tensor, what: Any, name: str) -> None:
        number = self._memory.number(tensor)
        if number is not None:
            self._recording.named[number] = (what, name)


class _How:
    """How an operation uses an argument: whether it writes it, and whether it heeds what was in it."""

    def __init__(self, written: bool, overwritten: bool) -> None:
        self.written = written
        self.overwritten = overwritten


_READ = _How(False, False)


def _given(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, _How, Any]]:
    """The arguments of a call with their names and how they are used."""
    known = _arguments(func)
    for place, value in enumerate(args):
        name, how = known[place] if place < len(known) else ("", _READ)
        yield name, how, value
    hows = dict(known)
    for name, value in kwargs.items():
        yield name, hows.get(name, _READ), value


@cache
def _arguments(func: Any) -> list[tuple[str, _How]]:
    schema = getattr(func, "_schema", None)  # operations that take functions have none
    if schema is None:
        return []
    overwrites = schema.name in _OVERWRITES
    found = []
    for argument in schema.arguments:
        written = argument.alias_info is not None and argument.alias_info.is_write
        found.append((argument.name, _How(written, written and (overwrites or argument.kwarg_only))))
    return found


def _schema_name(func: Any) -> str:
    schema = getattr(func, "_schema", None)
    return str(func) if schema is None else str(schema.name)


def _name_of(func: Any) -> str:
    return str(func)


def _real_tensors(value: Any) -> list[torch.Tensor]:
    """The tensors of real or complex numbers in an argument or a result."""
    if isinstance(value, torch.Tensor):
        return [value] if value.is_floating_point() or value.is_complex() else []
    if isinstance(value, list | tuple):
        return [tensor for part in value for tensor in _real_tensors(part)]
    return []
