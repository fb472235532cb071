"""Holds gradients and parameters of a model still while a step runs, and the random numbers that it draws."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class RandomState:
    """The state of torch's random generators at one time.

    Args:
        cpu: of the CPU's.
        cuda: of those of GPUs, by device.
    """

    cpu: torch.Tensor
    cuda: tuple[tuple[torch.device, torch.Tensor], ...] = ()

    @classmethod
    def capture(cls, model: nn.Module) -> RandomState:
        """The state now, of the CPU and of all GPUs that parameters of ``model`` are on."""
        devices = {parameter.device for parameter in model.parameters() if parameter.device.type == "cuda"}
        states = tuple((device, torch.cuda.get_rng_state(device)) for device in sorted(devices, key=str))
        return cls(torch.get_rng_state(), states)

    def restore(self) -> None:
        """Make the generators go on from this state."""
        torch.set_rng_state(self.cpu)
        for device, state in self.cuda:
            torch.cuda.set_rng_state(state, device)


class Held:
    """Gradients set aside, and copies of parameters, made only of those that a step is about to change in place."""

    def __init__(self, model: nn.Module) -> None:
        self._gradients: dict[torch.Tensor, torch.Tensor | None] = {}
        self._watched: dict[int, torch.Tensor] = {}
        self._copies: list[tuple[torch.Tensor, torch.Tensor]] = []
        for parameter in model.parameters():
            self._watch(parameter)
            self._set_aside(parameter)
            parameter.grad = None

    def leaf(self, leaf: torch.Tensor) -> None:
        """A leaf, perhaps not of the model, is about to get its gradient in this step."""
        if leaf not in self._gradients:
            self._set_aside(leaf)

    def gradients(self) -> Iterator[torch.Tensor]:
        """The gradients that the step has left, in the order in which their leaves became known."""
        return (leaf.grad for leaf in self._gradients if leaf.grad is not None)

    def about_to_change(self, address: int | None) -> None:
        """An operation is about to write into the memory at an address, as ``Memory.address`` gives it."""
        tensor = None if address is None else self._watched.pop(address, None)
        if tensor is not None:
            self._copies.append((tensor, tensor.detach().clone()))

    def put_back(self) -> None:
        """Give all leaves the gradients that they had, and the parameters the values."""
        with torch.no_grad():
            for tensor, value in self._copies:
                tensor.detach().copy_(value)
        for leaf, gradient in self._gradients.items():
            leaf.grad = gradient

    def _set_aside(self, leaf: torch.Tensor) -> None:
        gradient = leaf.grad
        self._gradients[leaf] = gradient
        if gradient is not None:
            self._watch(gradient)

    def _watch(self, tensor: torch.Tensor) -> None:
        if tensor.layout is torch.strided:
            self._watched[tensor.untyped_storage()._cdata] = tensor


@contextmanager
def held(model: nn.Module) -> Iterator[Held]:
    """Set the gradients of ``model`` aside, so that a step makes its own, and put them back with the parameters."""
    kept = Held(model)
    try:
        yield kept
    finally:
        kept.put_back()
