"""Sample: pictures with their maps, ready to be judged, and the score that judges them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from camapp.backbones.inputs import run_channels_last
from camapp.backbones.load import LoadedModel
from camapp.cam.targets.output import class_logits
from camapp.errors import TargetError, UsageError
from camapp.hooks.as_found import as_found
from camapp.hooks.layers import unwrap

Score: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""(inputs (N, C, H, W), targets (N,) int64) -> (N,) float32 without gradient: the probability of each row's class."""

Explain: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""(inputs (N, C, H, W), targets (N,) int64) -> maps (N, H, W) in [0, 1]: the method that made the maps, once more."""


@dataclass(frozen=True, eq=False)
class Sample:
    """B pictures with their maps. Everything is placed where the inputs are.

    What several metrics need (the score of the pictures, score and maps of the masked ones) is computed once.

    Args:
        score: the probability of a class; ``class_probability`` makes one of a model.
        inputs: (B, C, H, W), normalised as the model wants it.
        targets: (B,) int64, the class that each map explains.
        maps: (B, H, W) in [0, 1], at the input's size.
        boxes: for each picture (n, 4) x0, y0, x1, y1 in input pixels, x1 and y1 being the far edges, of the objects of
            its class. Without a box, (0, 4), the localisation metrics give NaN.
        explain: the method that made the maps, for changed inputs.
        masks: for each picture (H, W) bool, the pixels of its class; or uint8 with 1 for these, 0 for the others and
            255 for those to be left out.

    Raises:
        UsageError: shapes that do not fit each other, maps that are not finite or not in [0, 1].
    """

    score: Score
    inputs: Tensor
    targets: Tensor
    maps: Tensor
    boxes: list[Tensor] | None = None
    explain: Explain | None = None
    masks: list[Tensor] | None = None
    _confidences: dict[float, Tensor] = field(default_factory=dict, init=False, repr=False)
    _maps_again: dict[float, Tensor] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        _check_inputs(self.inputs)
        rows, size, device = len(self.inputs), tuple(self.inputs.shape[-2:]), self.inputs.device
        _check_targets(self.targets, rows)
        _check_maps(self.maps, rows, size)
        object.__setattr__(self, "targets", self.targets.to(device, torch.int64))
        object.__setattr__(self, "maps", self.maps.detach().to(device, torch.float32))
        if self.boxes is not None:
            object.__setattr__(self, "boxes", _checked_boxes(self.boxes, rows))
        if self.masks is not None:
            _check_masks(self.masks, rows, size)

    def __len__(self) -> int:
        return len(self.inputs)

    def with_maps(self, maps: Tensor, explain: Explain | None = None) -> Sample:
        """The same pictures with another method's maps; what is known of the pictures alone is not computed again."""
        other = replace(self, maps=maps, explain=explain)
        if "confidence" in self.__dict__:
            other.__dict__["confidence"] = self.confidence
        return other

    def rows(self, rows: Sequence[int]) -> Sample:
        """Some of the pictures, in the order given; their confidence is not computed again where it is known."""
        index = torch.tensor(rows, dtype=torch.int64, device=self.inputs.device)
        some = replace(
            self,
            inputs=self.inputs[index],
            targets=self.targets[index],
            maps=self.maps[index],
            boxes=None if self.boxes is None else [self.boxes[row] for row in rows],
            masks=None if self.masks is None else [self.masks[row] for row in rows],
        )
        if "confidence" in self.__dict__:
            some.__dict__["confidence"] = self.confidence[index.to(self.confidence.device)]
        return some

    @cached_property
    def confidence(self) -> Tensor:
        """f_c(x): the probability of each picture's class, (B,) float32."""
        return self.scored(self.inputs, self.targets)

    def scored(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """``score``, checked: (N,) for N inputs.

        Raises:
            UsageError: it gives something else.
        """
        scores = self.score(inputs, targets)
        if not isinstance(scores, Tensor) or scores.shape != (len(inputs),):
            what = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
            raise UsageError(f"score gave {what} for {len(inputs)} inputs; needed is one probability each, (N,).")
        return scores

    def masked(self, fill: float = 0.0) -> Tensor:
        """E = L * x + (1 - L) * fill: the pictures as far as their maps show them, (B, C, H, W).

        Args:
            fill: what lies where the map is 0, in normalised space; 0 is the data set's mean colour.
        """
        maps = self.maps[:, None].to(self.inputs.dtype)
        return maps * self.inputs + (1 - maps) * fill if fill else maps * self.inputs

    def masked_confidence(self, fill: float = 0.0) -> Tensor:
        """f_c(E): the probability of each picture's class after ``masked(fill)``, (B,) float32."""
        if fill not in self._confidences:
            self._confidences[fill] = self.scored(self.masked(fill), self.targets)
        return self._confidences[fill]

    def masked_maps(self, fill: float = 0.0, batch_size: int = 16) -> Tensor:
        """L(E): the maps that the method gives for ``masked(fill)``, (B, H, W).

        Raises:
            UsageError: the sample has no ``explain``, or that gives something else.
        """
        if self.explain is None:
            raise UsageError("The sample cannot explain its masked pictures: give Sample(explain=...).")
        if fill not in self._maps_again:
            self._maps_again[fill] = explain_in_chunks(self.explain, self.masked(fill), self.targets, batch_size)
        return self._maps_again[fill]


def class_probability(
    model: nn.Module | LoadedModel, batch_size: int | None = None, *, channels_last: bool | None = None
) -> Score:
    """The softmax probability of a class, as a ``Score``.

    The model predicts (eval mode), without gradients, and is left as it was found.

    Args:
        model: any ``nn.Module`` that returns class scores (B, classes), or a ``LoadedModel``.
        batch_size: most pictures in one forward. None: 64, but 8 on a CPU, where small batches stay in its caches.
        channels_last: whether the pictures are laid out channels last, which makes convolutions on a CPU faster and
            moves scores by rounding errors only. None: on a CPU, unless the model cannot take them.

    Raises:
        UsageError: a batch size below 1.
        ModelError: a model that cannot be put back as it was found (a scripted one).

    The score raises TargetError for a class that the model does not have, OutputError where it returns no class scores.
    """
    check_positive("batch_size", 64 if batch_size is None else batch_size)
    module = unwrap(model.module if isinstance(model, LoadedModel) else model)
    parameter = next((p for p in module.parameters() if p.is_floating_point()), None)

    def predict(inputs: Tensor) -> Tensor:
        if channels_last is None:
            return run_channels_last(module, partial(_logits, module), inputs.contiguous())
        layout = torch.channels_last if channels_last else torch.contiguous_format
        return _logits(module, inputs.contiguous(memory_format=layout))

    def score(inputs: Tensor, targets: Tensor) -> Tensor:
        inputs = inputs.detach() if parameter is None else inputs.detach().to(parameter.device, parameter.dtype)
        targets = targets.to(inputs.device)
        size = batch_size or (8 if inputs.device.type == "cpu" else 64)
        with as_found(module), torch.no_grad():
            return torch.cat(
                [
                    _probability(predict(inputs[i : i + size]), targets[i : i + size])
                    for i in range(0, len(inputs), size)
                ]
            )

    return score


def explain_in_chunks(explain: Explain, inputs: Tensor, targets: Tensor, batch_size: int) -> Tensor:
    """The maps of changed inputs, (N, H, W), where the inputs are.

    Raises:
        UsageError: ``explain`` gives something else.
    """
    chunks = []
    for start in range(0, len(inputs), batch_size):
        some = inputs[start : start + batch_size]
        maps = explain(some, targets[start : start + batch_size])
        if not isinstance(maps, Tensor) or maps.shape != (len(some), *inputs.shape[-2:]):
            what = tuple(maps.shape) if isinstance(maps, Tensor) else type(maps).__name__
            raise UsageError(f"explain gave {what} for inputs {tuple(some.shape)}; needed is one map a picture.")
        chunks.append(maps.detach().to(inputs.device, torch.float32))
    return torch.cat(chunks)


def check_positive(name: str, value: int) -> None:
    """Refuse a count below 1.

    Raises:
        UsageError: it is.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UsageError(f"{name} = {value!r} is not a positive whole number.")


def _logits(model: nn.Module, inputs: Tensor) -> Tensor:
    return class_logits(model(inputs), len(inputs))


def _probability(logits: Tensor, targets: Tensor) -> Tensor:
    lowest, highest = int(targets.min()), int(targets.max())
    if lowest < 0 or highest >= logits.shape[1]:
        wrong = lowest if lowest < 0 else highest
        raise TargetError(f"Class {wrong} is out of range: the model has {logits.shape[1]} classes, from 0.")
    return logits.float().softmax(1).gather(1, targets[:, None])[:, 0]


def _check_inputs(inputs: Tensor) -> None:
    if not isinstance(inputs, Tensor) or inputs.dim() != 4 or len(inputs) == 0 or not inputs.is_floating_point():
        what = f"{tuple(inputs.shape)} {inputs.dtype}" if isinstance(inputs, Tensor) else type(inputs).__name__
        raise UsageError(
            f"inputs: {what}; needed are pictures (B, C, H, W) of floats: metrics judge maps of pictures. A single "
            "picture becomes a batch by inputs.unsqueeze(0)."
        )


def _check_targets(targets: Tensor, rows: int) -> None:
    if not isinstance(targets, Tensor) or targets.shape != (rows,) or targets.is_floating_point():
        what = f"{tuple(targets.shape)} {targets.dtype}" if isinstance(targets, Tensor) else repr(targets)
        raise UsageError(f"targets: {what}; needed is a tensor of one class for each of the {rows} pictures.")


def _check_maps(maps: Tensor, rows: int, size: tuple[int, ...]) -> None:
    if not isinstance(maps, Tensor) or tuple(maps.shape) != (rows, *size):
        what = tuple(maps.shape) if isinstance(maps, Tensor) else type(maps).__name__
        raise UsageError(f"maps: {what}; needed is one map at the input's size for each picture, {(rows, *size)}.")
    if not bool(((maps >= 0) & (maps <= 1)).all()):
        raise UsageError(
            f"maps reach from {float(maps.min()):g} to {float(maps.max()):g}; metrics want finite values from 0 to 1, "
            "as CamResult.maps are."
        )


def _checked_boxes(boxes: Sequence[Any], rows: int) -> list[Tensor]:
    """Boxes of any array kind as tensors without a graph."""
    if len(boxes) != rows:
        raise UsageError(f"boxes: {len(boxes)} entries for {rows} pictures; give (0, 4) for a picture without a box.")
    checked = []
    for index, one in enumerate(boxes):
        given = torch.as_tensor(one, dtype=torch.float32).detach()
        if given.dim() != 2 or given.shape[1] != 4:
            raise UsageError(f"boxes[{index}]: {tuple(given.shape)}; needed is (n, 4) of x0, y0, x1, y1 in pixels.")
        if not given.isfinite().all():
            raise UsageError(f"boxes[{index}] = {given.tolist()} is not finite: leave out boxes that are not known.")
        if bool((given[:, :2] >= given[:, 2:]).any()):
            raise UsageError(f"boxes[{index}] = {given.tolist()} has a box without area; needed: x0 < x1 and y0 < y1.")
        checked.append(given)
    return checked


def _check_masks(masks: Sequence[Tensor], rows: int, size: tuple[int, ...]) -> None:
    if len(masks) != rows:
        raise UsageError(f"masks: {len(masks)} entries for {rows} pictures.")
    for index, given in enumerate(masks):
        if tuple(given.shape) != size or given.dtype not in (torch.bool, torch.uint8):
            raise UsageError(
                f"masks[{index}]: {tuple(given.shape)} {given.dtype}; needed is {size}, bool, or uint8 of 0, 1 and 255."
            )
