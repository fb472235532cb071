"""Calls the methods on a batch: the one place where maps to be measured are made."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from inspect import signature
from typing import Any, TypeAlias

import torch

from camapp.backbones.load import LoadedModel
from camapp.cam.compare import compare
from camapp.cam.engine import Method
from camapp.cam.methods import find_method
from camapp.cam.methods.gradcam import GradCAM
from camapp.cam.result import CamResult
from camapp.errors import CamappError

# A method's name and the layer asked for.
_Key: TypeAlias = tuple[str, str | None]


@dataclass(frozen=True)
class Explained:
    """What one method gave for a batch.

    Args:
        rows: which pictures of the batch it explained.
        maps: (len(rows), H, W) in [0, 1], on the model's device.
        reasons: why a map is blank, or None, for each of ``rows``.
        refused: why there is no map, by row of the batch.
        layer: the layer explained, "" for a method that looks at none; None where nothing was explained.
        seconds: time for all of ``rows``; 0 where it was not taken.
    """

    rows: list[int]
    maps: torch.Tensor
    reasons: list[str | None]
    refused: dict[int, str]
    layer: str | None
    seconds: float


class Explainer:
    """Calls methods on one model, batch after batch, and remembers what each of them refuses.

    A method that refuses the model as a whole (one for transformers, say, where the model is a convolutional network)
    is not run again. One that refuses a picture or a batch is run by itself from then on, so that the others can go on
    sharing passes.

    Args:
        model: the model.
        seed: for the methods that draw numbers.
    """

    def __init__(self, model: LoadedModel, seed: int) -> None:
        self._model = model
        self._seed = seed
        self._methods: dict[_Key, Method] = {}
        self._refused: dict[_Key, str] = {}
        self._alone: set[_Key] = set()
        self._probed: set[_Key] = set()

    def explain(
        self, inputs: torch.Tensor, targets: torch.Tensor, methods: Sequence[str], layer: str | None, *, timed: bool
    ) -> dict[str, Explained]:
        """The maps of several methods.

        Args:
            inputs: (B, 3, h, w), normalised.
            targets: (B,) class indices.
            methods: names of methods.
            layer: the target layer; None for the recommended one.
            timed: run each method by itself and take its time. Otherwise methods share what passes they can.

        Returns:
            What each method gave, in their order. One that refuses the batch has got its pictures one by one.
        """
        if timed:
            self._warm_up(inputs, targets, layer)
            return {method: self._by_itself(method, layer, inputs, targets) for method in methods}
        apart = self._refused.keys() | self._alone
        found = self._together([name for name in methods if (name, layer) not in apart], layer, inputs, targets)
        return {
            method: found[method] if method in found else self._by_itself(method, layer, inputs, targets)
            for method in methods
        }

    def maps_again(self, method: str, layer: str | None, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The maps (N, H, W) of other inputs by the same method, for metrics that explain anew."""
        return self._method(method, layer)(inputs, targets).maps

    def _method(self, name: str, layer: str | None) -> Method:
        if (name, layer) not in self._methods:
            kind = find_method(name)
            options: dict[str, Any] = {"seed": self._seed} if "seed" in signature(kind).parameters else {}
            self._methods[name, layer] = kind(self._model, layer if kind.takes_layer else None, **options)
        return self._methods[name, layer]

    def _warm_up(self, inputs: torch.Tensor, targets: torch.Tensor, layer: str | None) -> None:
        """One forward and backward before the clock runs: a process's first takes several times as long."""
        with suppress(CamappError), self._model.named_failures():
            self._method(GradCAM.name, layer)(inputs, targets)

    def _together(
        self, methods: list[str], layer: str | None, inputs: torch.Tensor, targets: torch.Tensor
    ) -> dict[str, Explained]:
        """What methods give that share passes; nothing where one of them refuses."""
        if not methods:
            return {}
        try:
            with self._model.named_failures():
                engines = [self._method(method, layer) for method in methods]
                results = compare(engines[0].model, inputs, targets, methods=engines)
        except CamappError:
            return {}
        return {method: _explained(result, 0.0) for method, result in zip(methods, results.values(), strict=True)}

    def _by_itself(self, method: str, layer: str | None, inputs: torch.Tensor, targets: torch.Tensor) -> Explained:
        """One method, timed; picture by picture where it refuses the batch."""
        key = (method, layer)
        if key not in self._refused:
            whole = self._once(method, layer, inputs, targets)
            if not whole.refused:
                self._probed.add(key)
                return whole
            self._alone.add(key)
            first = whole if len(inputs) == 1 else self._once(method, layer, inputs[:1], targets[:1])
            if key in self._probed or not self._refuses_model(key, first, inputs, targets):
                rows = range(1, len(inputs))
                rest = [self._once(method, layer, inputs[row : row + 1], targets[row : row + 1]) for row in rows]
                return _joined([first, *rest])
        return _nothing(inputs, dict.fromkeys(range(len(inputs)), self._refused[key]))

    def _refuses_model(self, key: _Key, first: Explained, inputs: torch.Tensor, targets: torch.Tensor) -> bool:
        """Whether a method that refuses the first picture refuses a plain grey one for the same reason."""
        self._probed.add(key)
        if first.refused and self._once(*key, torch.zeros_like(inputs[:1]), targets[:1]).refused == first.refused:
            self._refused[key] = first.refused[0]
        return key in self._refused

    def _once(self, method: str, layer: str | None, inputs: torch.Tensor, targets: torch.Tensor) -> Explained:
        """One method, timed; a batch that it refuses is refused in its first row."""
        try:
            _wait(self._model)
            start = time.perf_counter()
            with self._model.named_failures():
                result = self._method(method, layer)(inputs, targets)
            _wait(self._model)
            return _explained(result, time.perf_counter() - start)
        except CamappError as error:
            return _nothing(inputs, {0: str(error)})


def _nothing(inputs: torch.Tensor, refused: dict[int, str]) -> Explained:
    return Explained([], torch.empty(0, *inputs.shape[-2:], device=inputs.device), [], refused, None, 0.0)


def _explained(result: CamResult, seconds: float) -> Explained:
    reasons = [reason if isinstance(reason, str) else None for reason in result.reasons]
    return Explained(list(range(len(result))), result.maps, reasons, {}, result.layer, seconds)


def _wait(model: LoadedModel) -> None:
    """Let a GPU finish what it was given, or its work is timed with whoever asks for a result first."""
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)


def _joined(parts: list[Explained]) -> Explained:
    """The answers for single rows as that for their batch."""
    return Explained(
        rows=[row for row, part in enumerate(parts) if part.rows],
        maps=torch.cat([part.maps for part in parts]),
        reasons=[reason for part in parts for reason in part.reasons],
        refused={row: part.refused[0] for row, part in enumerate(parts) if part.refused},
        layer=next((part.layer for part in parts if part.layer), None),
        seconds=sum(part.seconds for part in parts),
    )
