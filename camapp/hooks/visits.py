"""Visits: hands what layers give (or are given) to a function while a model runs, and the model what it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeAlias

import torch
from torch import nn

from camapp.errors import LayerError
from camapp.hooks.as_found import here
from camapp.hooks.handles import Handles
from camapp.hooks.layers import Layer
from camapp.hooks.structures import tensors_in, with_tensors

# Takes the layer, the number of this call and what it gave; returns what the model goes on with, None for the same.
Visit: TypeAlias = Callable[[Layer, int, torch.Tensor], torch.Tensor | None]


class Visits:
    """Calls a function with what each of several layers gives, at each call of them that is meant.

    The hooks live only inside the ``with`` block, heed only forwards of the thread that opened it (and no forward of
    another explanation nested in that one), and are removed on errors too.

    Args:
        layers: the places; a layer without a named call is visited at every call.
        visit: the function. It may raise, which ends the model's forward.
    """

    def __init__(self, layers: Sequence[Layer], visit: Visit) -> None:
        self.calls = {
            layer.key: 0 for layer in layers
        }  #: how often each place was reached since the block began, or was told to count anew
        self._layers = layers
        self._visit = visit
        self._hooks = Handles()
        self._here = (0, 0)

    def __enter__(self) -> Visits:
        self.calls = dict.fromkeys(self.calls, 0)  # may be used again
        self._here = here()
        for layer in self._layers:
            if layer.input:
                self._hooks.forward_pre(layer.module, self._on_input(layer))
            else:
                self._hooks.forward(layer.module, self._on_forward(layer))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hooks.remove()

    def count_anew(self) -> None:
        """Count the calls from 0 again, for another forward within the same block."""
        self.calls.update(dict.fromkeys(self.calls, 0))

    def _on_forward(self, layer: Layer) -> Callable[..., Any]:
        """The forward hook that visits what comes out of ``layer``."""

        def on_forward(module: nn.Module, args: Any, output: Any) -> Any:
            call = self._counted(layer)
            if call is None:
                return None
            tensor, put_back = _output_of(output, layer)
            changed = self._visit(layer, call, tensor)
            return None if changed is None else put_back(changed)

        return on_forward

    def _on_input(self, layer: Layer) -> Callable[..., Any]:
        """The forward pre-hook that visits what goes into ``layer``: its part named, or its first real tensor."""

        def on_input(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            call = self._counted(layer)
            if call is None:
                return None
            given = {**tensors_in(args), **tensors_in(kwargs)}
            place = layer.output or next((place for place, value in given.items() if _is_real(value)), None)
            if place is None:
                raise LayerError(f'"{layer.name}" is given no tensor of real numbers. Choose another layer.')
            if place not in given:
                raise LayerError(f'"{layer.name}" is given the tensors {", ".join(given)}; "#{place}" is none of them.')
            changed = self._visit(layer, call, _checked(given[place], layer))
            if changed is None:
                return None
            if place in tensors_in(args):
                return with_tensors(args, {place: changed}), kwargs
            return args, with_tensors(kwargs, {place: changed})

        return on_input

    def _counted(self, layer: Layer) -> int | None:
        """The number of this call of ``layer``; None where it is not to be visited."""
        if here() != self._here:
            return None
        call = self.calls[layer.key]
        self.calls[layer.key] += 1
        return call if layer.call in (None, call) else None


def _output_of(output: Any, layer: Layer) -> tuple[torch.Tensor, Callable[[torch.Tensor], Any]]:
    """The tensor that is meant in a layer's output, and how to put a new one in its place."""
    if isinstance(output, Mapping):
        return _part_of_mapping(output, layer)
    if not isinstance(output, tuple | list) or not output:
        if layer.output is not None:
            raise LayerError(
                f'"{layer.name}" gives one {type(output).__name__}, no parts: leave "#{layer.output}" out.'
            )
        return _checked(output, layer), lambda tensor: tensor
    place = 0 if layer.output is None else _place(layer.output, output, layer)
    kind = type(output)

    def put_back(tensor: torch.Tensor) -> Any:
        parts = [*output[:place], tensor, *output[place + 1 :]]
        return kind(*parts) if hasattr(output, "_replace") else kind(parts)  # a named tuple takes its parts one by one

    return _checked(output[place], layer), put_back


def _part_of_mapping(output: Mapping[str, Any], layer: Layer) -> tuple[torch.Tensor, Callable[[torch.Tensor], Any]]:
    tensors = [name for name, value in output.items() if _is_real(value)]
    name = layer.output if layer.output is not None else next(iter(tensors), None)
    if name is None or name not in output:
        what = "none of them a tensor of real numbers" if name is None else f'none of them "{name}"'
        raise LayerError(
            f'"{layer.name}" gives a mapping with the parts {", ".join(map(str, output))}, {what}. '
            f'Name one as "{layer.name}#PART", or choose another layer.'
        )
    chosen: str = name

    def put_back(tensor: torch.Tensor) -> Any:
        try:
            changed = type(output)(**{**output, chosen: tensor})  # of transformers' outputs the class must stay
        except TypeError:
            changed = type(output)({**output, chosen: tensor})  # type: ignore[call-arg]
        return changed

    return _checked(output[chosen], layer), put_back


def _place(part: str, output: Sequence[Any], layer: Layer) -> int:
    named = getattr(output, "_fields", ())
    place = named.index(part) if part in named else int(part) if part.isdigit() else len(output)
    if place >= len(output):
        raise LayerError(f'"{layer.name}" gives {len(output)} parts, counted from #0; "#{part}" is none of them.')
    return place


def _checked(value: Any, layer: Layer) -> torch.Tensor:
    if _is_real(value):
        tensor: torch.Tensor = value
        return tensor
    given = f"a {value.dtype} tensor" if isinstance(value, torch.Tensor) else type(value).__name__
    raise LayerError(f'"{layer.name}" gives {given}, not a tensor of real numbers. Choose another layer.')


def _is_real(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()
