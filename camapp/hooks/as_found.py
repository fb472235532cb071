"""Leave the model as it was found: flags, gradients, buffers and random state, whatever happens in between."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

import torch
from torch import nn

_locks: WeakKeyDictionary[nn.Module, threading.RLock] = WeakKeyDictionary()
_locks_lock = threading.Lock()


def model_lock(model: nn.Module) -> threading.RLock:
    """The one lock of ``model``: engines on the same model take turns, also across threads."""
    with _locks_lock:
        return _locks.setdefault(model, threading.RLock())


@contextmanager
def as_found(model: nn.Module) -> Iterator[None]:
    """Hold ``model`` still for an explanation, and put everything back afterwards.

    Inside, every module predicts (``training`` is False), grad mode is on and inference mode off, whatever the
    caller's. Afterwards, also when the body raises or is interrupted, training flags per module, buffers, random state
    and grad mode are what they were. Parameters, their ``requires_grad`` and their ``.grad`` are not touched at all.
    """
    with model_lock(model):
        flags = [(module, module.training) for module in model.modules()]
        buffers = _Buffers(model)
        try:
            # The flags are set one by one: a model's own train() may do more (merge weights, say) than set flags.
            _set_training((module, False) for module, _ in flags)
            with torch.inference_mode(False), torch.enable_grad(), _random_state(model), _unfused_attention():
                yield
        finally:
            _set_training(flags)
            buffers.restore()


def _set_training(flags: Iterable[tuple[nn.Module, bool]]) -> None:
    """Set only the flags that differ: nn.Module's attribute setter takes microseconds, times hundreds of modules."""
    for module, training in flags:
        if module.training is not training:
            module.training = training


class _Buffers:
    """The buffers of a model as they were: which tensors they are, and what is in them."""

    def __init__(self, model: nn.Module) -> None:
        self._kept = [
            (module, name, buffer, buffer.detach().clone())
            for module in model.modules()
            for name, buffer in module._buffers.items()
            if buffer is not None
        ]

    def restore(self) -> None:
        """Write back only what changed: a needless write would spoil a graph of the caller's that saved the buffer."""
        for module, name, buffer, _ in self._kept:
            if module._buffers.get(name) is not buffer:
                module._buffers[name] = buffer
        changed = _differ([(buffer, value) for _, _, buffer, value in self._kept])
        for (_, _, buffer, value), differs in zip(self._kept, changed, strict=True):
            if differs:
                with torch.no_grad(), torch.inference_mode(buffer.is_inference()):
                    buffer.copy_(value)


def _differ(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> list[bool]:
    """Which pairs differ, with one wait for each device rather than one for each pair."""
    flags = [True] * len(pairs)
    waiting: dict[torch.device, list[int]] = {}
    for index, (buffer, value) in enumerate(pairs):
        if buffer.device.type == "cpu":
            flags[index] = not torch.equal(buffer, value)
        else:
            waiting.setdefault(buffer.device, []).append(index)
    for indices in waiting.values():
        answers = torch.stack([(pairs[index][0] != pairs[index][1]).any() for index in indices]).tolist()
        for index, answer in zip(indices, answers, strict=True):
            flags[index] = answer
    return flags


@contextmanager
def _random_state(model: nn.Module) -> Iterator[None]:
    """Rewind torch's generators, but only those that moved: other threads may be drawing from them too."""
    cuda = sorted({parameter.device for parameter in model.parameters() if parameter.is_cuda}, key=str)
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


_unfused_depth = 0
_fastpath_as_found = True


@contextmanager
def _unfused_attention() -> Iterator[None]:
    """Keep transformers off their fused inference path, which skips inner hooks and rounds otherwise than autograd.

    torch 2.14 takes that path wherever no gradient is recorded. The switch is global: it goes back when the last of
    several threads leaves.
    """
    global _unfused_depth, _fastpath_as_found
    with _locks_lock:
        if _unfused_depth == 0:
            _fastpath_as_found = torch.backends.mha.get_fastpath_enabled()
            torch.backends.mha.set_fastpath_enabled(False)
        _unfused_depth += 1
    try:
        yield
    finally:
        with _locks_lock:
            _unfused_depth -= 1
            if _unfused_depth == 0:
                torch.backends.mha.set_fastpath_enabled(_fastpath_as_found)
