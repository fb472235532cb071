"""Leave the model as it was found: flags, gradients, buffers and random state, whatever happens in between."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch._utils import _flatten_dense_tensors


@contextmanager
def as_found(model: nn.Module, *, predict: bool = True) -> Iterator[None]:
    """Hold ``model`` still for an explanation, and put everything back afterwards.

    Inside, every module predicts (``training`` is False) and runs eagerly, grad mode is on and inference mode off,
    whatever the caller's. Afterwards, also when the body raises or is interrupted, training flags per module, buffers,
    random state and grad mode are what they were. Parameters, their ``requires_grad`` and their ``.grad`` are not
    touched at all.

    Args:
        model: the network.
        predict: False for a look at the model as it runs by itself: modules keep their training flags, and attention
            its fused path.

    Models that share a module take turns, also across threads. (Threads that nest explanations of several models take
    them in one order, or they wait for each other for ever.)
    """
    modules = list(model.modules())
    with _in_turn(modules), _one_deeper():
        flags = [(module, module.training) for module in modules]
        buffers = _Buffers(modules)
        try:
            # The flags are set one by one: a model's own train() may do more (merge weights, say) than set flags.
            if predict:
                _set_training((module, False) for module in modules)
            with (
                running_eagerly(modules),
                torch.inference_mode(False),
                torch.enable_grad(),
                _random_state(model),
                unfused_attention() if predict else nullcontext(),
            ):
                yield
        finally:
            _set_training(flags)
            buffers.restore()


@contextmanager
def running_eagerly(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Suspend what ``module.compile()`` installed: it skips hooks added after its first call silently."""
    compiled = [(module, module._compiled_call_impl) for module in modules if module._compiled_call_impl is not None]
    try:
        for module, _ in compiled:
            module._compiled_call_impl = None
        yield
    finally:
        for module, implementation in compiled:
            module._compiled_call_impl = implementation


class _Depth(threading.local):
    """How many ``as_found`` this thread is inside of."""

    value = 0


_depth = _Depth()


def here() -> tuple[int, int]:
    """This thread, and how many ``as_found`` it is inside of: tells a forward from another's and from one within it."""
    return threading.get_ident(), _depth.value


def in_backward() -> bool:
    """Whether a backward runs in this thread: a forward within it is checkpointing's, the same once more."""
    return torch._C._current_graph_task_id() != -1  # private, and the same in torch 2.6 and 2.14


@contextmanager
def _one_deeper() -> Iterator[None]:
    _depth.value += 1
    try:
        yield
    finally:
        _depth.value -= 1


class _Lock:
    """A lock that one thread may take several times, with a number: all threads take several locks in its order."""

    _numbers = itertools.count()

    def __init__(self) -> None:
        self.number = next(self._numbers)
        self.lock = threading.RLock()


_locks: WeakKeyDictionary[nn.Module, _Lock] = WeakKeyDictionary()
_registry = threading.Lock()


@contextmanager
def _in_turn(modules: list[nn.Module]) -> Iterator[None]:
    """Hold the locks of all modules of a model. Each model has one lock, unless it shares modules with others."""
    with _registry:
        held = {lock.number: lock for module in modules if (lock := _locks.get(module)) is not None}
        own = held[min(held)] if held else _Lock()
        held[own.number] = own
        for module in modules:
            _locks.setdefault(module, own)
    with ExitStack() as stack:
        for number in sorted(held):
            stack.enter_context(held[number].lock)
        yield


def _set_training(flags: Iterable[tuple[nn.Module, bool]]) -> None:
    """Set only the flags that differ: nn.Module's attribute setter takes microseconds, times hundreds of modules."""
    for module, training in flags:
        if module.training is not training:
            module.training = training


class _Buffers:
    """The buffers of modules as they were: which tensors they are, and what is in them.

    Copied and compared in one piece for each dtype and device: a network has hundreds of small buffers, and each
    operation costs microseconds (on a GPU each comparison a wait).
    """

    def __init__(self, modules: list[nn.Module]) -> None:
        # A scripted module makes new objects of its buffers whenever it is asked, and takes no others.
        scripted = torch.jit.ScriptModule
        self._names = [(module, dict(module._buffers)) for module in modules if not isinstance(module, scripted)]
        self._groups: dict[tuple[torch.dtype, torch.device], list[torch.Tensor]] = {}
        for module in modules:
            for buffer in module._buffers.values():
                if buffer is not None:
                    self._groups.setdefault((buffer.dtype, buffer.device), []).append(buffer)
        self._shapes = {key: [buffer.shape for buffer in group] for key, group in self._groups.items()}
        self._values = {key: _joined(group) for key, group in self._groups.items()}

    def restore(self) -> None:
        """Write back only what changed: a needless write would spoil a graph of the caller's that saved the buffer."""
        for module, named in self._names:
            now = module._buffers
            if now.keys() != named.keys() or any(now[name] is not named[name] for name in named):
                module._buffers.clear()  # buffers that were None or not there at all go again
                module._buffers.update(named)
        for key, group in self._groups.items():
            if not torch.equal(_joined(group), self._values[key]):
                kept = self._values[key].split([shape.numel() for shape in self._shapes[key]])
                for buffer, shape, value in zip(group, self._shapes[key], kept, strict=True):
                    _put_back(buffer, value.view(shape))


def _joined(buffers: list[torch.Tensor]) -> torch.Tensor:
    with torch.no_grad():
        # one buffer alone would come back as a view of itself, which keeps nothing
        return _flatten_dense_tensors(buffers) if len(buffers) > 1 else buffers[0].detach().reshape(-1).clone()


def _put_back(buffer: torch.Tensor, value: torch.Tensor) -> None:
    """Write ``value`` into ``buffer`` where they differ; NaN does not differ from NaN."""
    if buffer.shape == value.shape and not ((buffer != value) & ~((buffer != buffer) & (value != value))).any():
        return
    with torch.no_grad(), torch.inference_mode(buffer.is_inference()):
        buffer.resize_(value.shape).copy_(value)


@contextmanager
def _random_state(model: nn.Module) -> Iterator[None]:
    """Rewind torch's generators where they moved.

    Who moved them cannot be told from their state: numbers that other threads drew meanwhile are drawn again.
    """
    used = {parameter.device for parameter in model.parameters()} if torch.cuda.is_initialized() else set()
    cuda = [device for device in used if device.type == "cuda"]
    cpu_state = torch.get_rng_state()
    cuda_states = [torch.cuda.get_rng_state(device) for device in cuda]
    try:
        yield
    finally:
        if not torch.equal(cpu_state, torch.get_rng_state()):
            torch.set_rng_state(cpu_state)
        for device, state in zip(cuda, cuda_states, strict=True):
            if not torch.equal(state, torch.cuda.get_rng_state(device)):
                torch.cuda.set_rng_state(state, device)


_unfused_count = 0
_fastpath_as_found = True


@contextmanager
def unfused_attention() -> Iterator[None]:
    """Keep transformers off their fused inference path, which skips inner hooks and rounds otherwise than autograd.

    torch 2.14 takes that path wherever no gradient is recorded. The switch is global: it goes back when the last of
    several threads leaves.
    """
    global _unfused_count, _fastpath_as_found
    with _registry:
        if _unfused_count == 0:
            _fastpath_as_found = torch.backends.mha.get_fastpath_enabled()
            torch.backends.mha.set_fastpath_enabled(False)
        _unfused_count += 1
    try:
        yield
    finally:
        with _registry:
            _unfused_count -= 1
            if _unfused_count == 0:
                torch.backends.mha.set_fastpath_enabled(_fastpath_as_found)
