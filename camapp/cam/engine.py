"""The engine: inputs and targets in, maps out. Methods add only how activation and gradient become a map."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import nn

from camapp.backbones.layers import find_layout, recommended_layer
from camapp.backbones.load import LoadedModel
from camapp.cam.passes import Passes, Read, Shot, mixes_rows
from camapp.cam.result import CamResult, blank_reasons, normalised_maps
from camapp.cam.targets import Plan, Targets, plan_targets
from camapp.errors import UsageError
from camapp.hooks.as_found import as_found
from camapp.hooks.layers import find_layer, unwrap


class GradientMethod(ABC):
    """A method that turns a layer's activation and its gradient into a map.

    Args:
        model: any ``nn.Module`` that returns class scores (B, classes), or a ``LoadedModel``.
        layer: the target layer: a dotted name, ``name@call`` for one call of a layer that runs several times, the
            module itself, or None for the recommended one.

    Raises:
        LayerError: the model has no such layer.
        ModelError: the model cannot be hooked (a scripted one, say).
    """

    name: ClassVar[str]

    def __init__(self, model: nn.Module | LoadedModel, layer: str | nn.Module | None = None) -> None:
        self._loaded = model if isinstance(model, LoadedModel) else None
        self._model = unwrap(model.module if isinstance(model, LoadedModel) else model)
        if layer is None and self._loaded is not None:
            layer = self._loaded.card.layer
        self.layer = None if layer is None else find_layer(self._model, layer).key
        self._passes = Passes(self._model)
        self._warned = False

    @staticmethod
    @abstractmethod
    def combine(activation: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """The raw map (N, h, w) of an activation and its gradient, both (N, C, h, w) float32."""

    def __call__(self, inputs: torch.Tensor, targets: Targets | None = None) -> CamResult:
        """Explain the scores of a batch.

        The model is explained as it would predict (eval mode), is left as it was found, and may be frozen, in train
        mode, or called under ``no_grad`` or ``inference_mode``. Calls on one model from several threads take turns.

        Args:
            inputs: (B, C, H, W), normalised as the model wants it. Moved to the model's device and dtype.
            targets: None for each row's top class; one class for all rows; one class a row; a list of B lists of K
                classes, all K of a row explained in one pass; or ``TopClasses(k)``. A class is an index, or a name
                where the model is a ``LoadedModel``.

        Returns:
            The maps, on the model's device.

        Raises:
            UsageError: inputs that are no such batch.
            TargetError: targets that do not fit the batch or the model.
            LayerError: the layer does not run, is not on the way to the scores, or does not map onto the picture.
            OutputError: the model returns no class scores.
        """
        _check_inputs(inputs)
        plan = plan_targets(targets, len(inputs), self._loaded.class_index if self._loaded else None)
        with as_found(self._model):
            batch = _like_parameters(inputs, self._model)
            layer = self.layer or recommended_layer(self._model, batch)
            shot = self._passes.shoot(batch, layer, plan, self._read(layer, batch))
            with torch.no_grad(), torch.autocast(batch.device.type, enabled=False):
                return self._result(shot, layer, plan, (batch.shape[-2], batch.shape[-1]))

    def _read(self, layer: str, inputs: torch.Tensor) -> Read:
        """How the passes turn what they captured into raw maps."""

        @torch.no_grad()
        @torch.autocast(inputs.device.type, enabled=False)
        def read(activation: torch.Tensor, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            layout = find_layout(self._model, layer, activation.shape, inputs.shape)
            gradients = layout.to_maps(gradient).float()
            activations = layout.to_maps(activation).float()
            copies = len(gradients) // len(activations)
            if copies > 1:
                activations = activations.repeat_interleave(copies, dim=0)
            # No gradient on the map, though perhaps on a class token: no path from the map to the score.
            reached = (gradients != 0).flatten(1).any(1)
            return self.combine(activations, gradients), reached

        return read

    def _result(self, shot: Shot, layer: str, plan: Plan, size: tuple[int, int]) -> CamResult:
        maps, shows = normalised_maps(shot.raw, size)
        reasons = blank_reasons(shot.raw, shows, shot.reached, layer)
        logits = shot.logits.float()
        rows, per_row = shot.targets.shape

        def shaped(values: torch.Tensor) -> torch.Tensor:
            return values if plan.single else values.view(rows, per_row, *values.shape[1:])

        return CamResult(
            maps=shaped(maps),
            raw=shaped(shot.raw),
            scores=shaped(logits.gather(1, shot.targets).flatten()),
            targets=shaped(shot.targets.flatten()),
            reasons=reasons if plan.single else [reasons[i : i + per_row] for i in range(0, rows * per_row, per_row)],
            logits=logits,
            layer=layer,
            method=self.name,
            notes=(*self._repeated(layer, shot.calls), *self._mixed(rows)),
        )

    def _mixed(self, rows: int) -> tuple[str, ...]:
        if rows == 1 or not mixes_rows(self._model):
            return ()
        return ("a BatchNorm without running statistics: each map depends on the other pictures of the batch",)

    def _repeated(self, layer: str, calls: int) -> tuple[str, ...]:
        """Say that a layer which ran several times, and of which no call was named, is explained at its last."""
        if calls < 2 or "@" in layer:
            return ()
        note = f'"{layer}" runs {calls} times in one forward; its last call is explained. "{layer}@0" names the first.'
        if not self._warned:
            warnings.warn(note, stacklevel=4)
            self._warned = True
        return (note,)


def _check_inputs(inputs: torch.Tensor) -> None:
    if not isinstance(inputs, torch.Tensor):
        raise UsageError(
            f"inputs is a {type(inputs).__name__}, not a tensor. For a picture use camapp.explain(model, picture)."
        )
    if inputs.dim() != 4 or len(inputs) == 0:
        raise UsageError(
            f"inputs has the shape {tuple(inputs.shape)}; needed is a batch (B, C, H, W) of one picture or more. "
            "A single picture becomes one by inputs.unsqueeze(0)."
        )
    if not inputs.is_floating_point():
        raise UsageError(f"inputs are {inputs.dtype}, not floats. Scale pixels to 0-1 and normalise them first.")


def _like_parameters(inputs: torch.Tensor, model: nn.Module) -> torch.Tensor:
    """The inputs as the model's parameters are placed and typed; a normal tensor, also when made in inference mode."""
    inputs = inputs.clone() if inputs.is_inference() else inputs.detach()
    parameter = next((p for p in model.parameters() if p.is_floating_point()), None)
    return inputs if parameter is None else inputs.to(parameter.device, parameter.dtype)
