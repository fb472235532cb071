"""Calls the methods on a batch: the one place where maps to be measured are made."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import torch

from camapp.backbones.load import LoadedModel
from camapp.cam.compare import compare
from camapp.cam.methods import find_method
from camapp.cam.result import CamResult
from camapp.errors import CamappError


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


def explain_batch(
    model: LoadedModel,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    methods: Sequence[str],
    layer: str | None,
    *,
    timed: bool,
) -> dict[str, Explained]:
    """The maps of several methods.

    Args:
        model: the model.
        inputs: (B, 3, h, w), normalised.
        targets: (B,) class indices.
        methods: names of methods.
        layer: the target layer; None for the recommended one.
        timed: run each method by itself and take its time. Otherwise methods share what passes they can.

    Returns:
        What each method gave. One that refuses the batch has got its pictures one by one.
    """
    if timed:
        with suppress(
            CamappError
        ):  # once before the clock runs: the first call of a process takes several times as long
            compare(model, inputs[:1], targets[:1], methods=methods, layer=layer)
        return {method: _explain(model, inputs, targets, method, layer) for method in methods}
    try:
        with model.named_failures():
            results = compare(model, inputs, targets, methods=methods, layer=layer)
    except CamappError:
        return {method: _explain(model, inputs, targets, method, layer) for method in methods}
    return {method: _explained(result, 0.0) for method, result in results.items()}


def maps_of(
    model: LoadedModel, method: str, layer: str | None, inputs: torch.Tensor, targets: torch.Tensor
) -> torch.Tensor:
    """The maps (N, H, W) of other inputs by the same method, for metrics that explain anew."""
    return _call(model, method, layer, inputs, targets).maps


def takes_layer(method: str) -> bool:
    """Whether a method looks at a layer of the user's choice."""
    return find_method(method).takes_layer


def _call(model: LoadedModel, method: str, layer: str | None, inputs: torch.Tensor, targets: torch.Tensor) -> CamResult:
    return find_method(method)(model, layer if takes_layer(method) else None)(inputs, targets)


def _explain(
    model: LoadedModel, inputs: torch.Tensor, targets: torch.Tensor, method: str, layer: str | None
) -> Explained:
    """One method by itself, timed; picture by picture where it refuses the batch."""
    try:
        _wait(model)
        start = time.perf_counter()
        with model.named_failures():
            result = _call(model, method, layer, inputs, targets)
        _wait(model)
        return _explained(result, time.perf_counter() - start)
    except CamappError as error:
        if len(inputs) > 1:
            rows = range(len(inputs))
            return _joined([_explain(model, inputs[i : i + 1], targets[i : i + 1], method, layer) for i in rows])
        nothing = torch.empty(0, *inputs.shape[-2:], device=inputs.device)
        return Explained([], nothing, [], {0: str(error)}, None, 0.0)


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
