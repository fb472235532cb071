"""The engine: inputs and targets in, maps out. Methods add only how activation and gradient become a map."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from camapp.backbones.layers import find_layout, recommended_layer
from camapp.backbones.load import LoadedModel
from camapp.cam.result import CamResult, blank_reasons, normalised_maps
from camapp.cam.targets import Plan, Targets, class_logits, plan_targets
from camapp.errors import UsageError
from camapp.hooks.as_found import as_found
from camapp.hooks.capture import Capture, NoPath, NotExpandable
from camapp.hooks.layers import find_layer, unwrap


@dataclass(frozen=True)
class _Shot:
    """One pass over B pictures of K targets each: N = B * K rows, a picture's targets together."""

    activation: torch.Tensor  # of B rows
    gradient: torch.Tensor  # of N rows
    logits: torch.Tensor  # (B, classes)
    targets: torch.Tensor  # (B, K)
    calls: int  # how often the layer ran


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
        self._expands = True
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
            LayerError: the layer does not run, is not on the way to the scores, or has no place in the picture.
            OutputError: the model returns no class scores.
        """
        _check_inputs(inputs)
        plan = plan_targets(targets, len(inputs), self._loaded.class_index if self._loaded else None)
        with as_found(self._model):
            batch = _like_parameters(inputs, self._model)
            layer = self.layer or recommended_layer(self._model, batch)
            shot = self._shoot(batch, layer, plan)
            with torch.no_grad(), torch.autocast(batch.device.type, enabled=False):
                return self._result(shot, layer, plan, batch)

    def _shoot(self, inputs: torch.Tensor, layer: str, plan: Plan) -> _Shot:
        """One pass with the graph cut at the layer; where the model undoes that, one more with the whole graph."""
        try:
            return self._shoot_once(inputs, layer, plan, whole_graph=False)
        except NoPath:
            return self._shoot_once(inputs, layer, plan, whole_graph=True)

    def _shoot_once(self, inputs: torch.Tensor, layer: str, plan: Plan, *, whole_graph: bool) -> _Shot:
        """All targets in one pass where the network behind the layer can take more rows; else one backward a target."""
        if plan.per_row == 1 or not self._expands:
            return _one_by_one(self._model, layer, inputs, plan, whole_graph)
        shot = _expanded(self._model, layer, inputs, plan, whole_graph)
        if shot is None:
            shot = _one_by_one(self._model, layer, inputs, plan, whole_graph)
            self._expands = False  # remembered only once the model has run: the fault was the repetition
        return shot

    def _result(self, shot: _Shot, layer: str, plan: Plan, inputs: torch.Tensor) -> CamResult:
        layout = find_layout(self._model, layer, shot.activation.shape, inputs.shape)
        activation = layout.to_maps(shot.activation).float().repeat_interleave(plan.per_row, dim=0)
        gradient = layout.to_maps(shot.gradient).float()
        raw = self.combine(activation, gradient)
        maps = normalised_maps(raw, (inputs.shape[-2], inputs.shape[-1]))
        reasons = blank_reasons(raw, gradient, layer)
        logits = shot.logits.float()
        rows, per_row = len(inputs), plan.per_row

        def shaped(values: torch.Tensor) -> torch.Tensor:
            return values if plan.single else values.view(rows, per_row, *values.shape[1:])

        return CamResult(
            maps=shaped(maps),
            raw=shaped(raw),
            scores=shaped(logits.gather(1, shot.targets).flatten()),
            targets=shaped(shot.targets.flatten()),
            reasons=reasons if plan.single else [reasons[i : i + per_row] for i in range(0, rows * per_row, per_row)],
            logits=logits,
            layer=layer,
            method=self.name,
            notes=self._repeated(layer, shot.calls),
        )

    def _repeated(self, layer: str, calls: int) -> tuple[str, ...]:
        """Say that a layer which ran several times, and of which no call was named, is explained at its last."""
        if calls < 2 or "@" in layer:
            return ()
        note = f'"{layer}" runs {calls} times in one forward; its last call is explained. "{layer}@0" names the first.'
        if not self._warned:
            warnings.warn(note, stacklevel=4)
            self._warned = True
        return (note,)


def _expanded(model: nn.Module, layer: str, inputs: torch.Tensor, plan: Plan, whole_graph: bool) -> _Shot | None:
    """Repeat each picture K times at the layer, so that one pass behind it serves K targets.

    None where the network cannot take that: a branch around the layer still carries B rows, or rows get mixed.
    """
    rows, per_row = len(inputs), plan.per_row
    capture = Capture(model, [layer], rows=rows, expand=per_row, whole_graph=whole_graph)
    try:
        with capture:
            output = model(inputs)
        wide = class_logits(output, rows * per_row)
        tap = capture[layer]
    except (NotExpandable, RuntimeError, ValueError, IndexError, AssertionError, TypeError, LookupError):
        return None  # a fault that is not of the repetition shows again without it, and is raised there
    copies = wide.view(rows, per_row, -1).detach()
    logits = copies[:, 0]
    if not torch.allclose(copies, logits[:, None].expand_as(copies), rtol=1e-3, atol=1e-4, equal_nan=True):
        return None
    targets = plan.choose(logits)
    capture.backward(wide.gather(1, targets.reshape(-1, 1)))
    if tap.gradient is None or len(tap.gradient) != rows * per_row:
        return None
    return _Shot(tap.activation, tap.gradient, logits, targets, capture.calls[layer])


def _one_by_one(model: nn.Module, layer: str, inputs: torch.Tensor, plan: Plan, whole_graph: bool) -> _Shot:
    """One forward, then one backward for each of the K targets."""
    per_row = plan.per_row
    capture = Capture(model, [layer], whole_graph=whole_graph)
    with capture:
        output = model(inputs)
    tap = capture[layer]
    logits = class_logits(output, len(inputs))
    targets = plan.choose(logits.detach())
    gradients = []
    for index in range(per_row):
        capture.backward(logits.gather(1, targets[:, index : index + 1]), keep_graph=index + 1 < per_row)
        gradients.append(tap.gradient)
    gradient = torch.stack([one for one in gradients if one is not None], dim=1).flatten(0, 1)
    return _Shot(tap.activation, gradient, logits.detach(), targets, capture.calls[layer])


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
