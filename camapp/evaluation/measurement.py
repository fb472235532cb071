"""The pass over the pictures: decode, prepare, explain, and give each metric its share."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from inspect import signature

import numpy as np
import torch

from camapp.backbones.load import LoadedModel
from camapp.cam.methods import find_method
from camapp.cam.metrics import Metric, Sample, baseline_maps, class_probability
from camapp.cam.targets.output import class_logits
from camapp.errors import CamappError
from camapp.evaluation.boxes import Box, ObjectBoxes, PictureBoxes, fit_to_picture, object_boxes
from camapp.evaluation.cells import Cell
from camapp.evaluation.explaining import Explained, Explainer
from camapp.evaluation.records import Example, Failure, Value
from camapp.hooks.as_found import as_found
from camapp.images.decode import decode
from camapp.images.geometry import Fit, Geometry
from camapp.sources.pictures import PictureFile

# How many pictures a report shows with their maps.
EXAMPLES = 4

Progress = Callable[[list[str]], Iterable[str]]


@dataclass(frozen=True)
class _Ready:
    """A picture prepared for the model."""

    file: PictureFile
    inputs: torch.Tensor
    geometry: Geometry
    boxes: list[Box] | None


@dataclass(frozen=True)
class _Batch:
    """Pictures that are measured together; ``bare`` has everything but maps."""

    names: list[str]
    labels: list[str]
    bare: Sample
    shown: list[Example]

    def rows(self, rows: list[int]) -> _Batch:
        """Some of them."""
        if len(rows) == len(self.names):
            return self
        return _Batch([self.names[row] for row in rows], [self.labels[row] for row in rows], self.bare.rows(rows), [])


class Measurement:
    """What is gathered on the way through the pictures.

    Args:
        loaded: the model.
        target: the class to explain in every picture; None for each one's likeliest.
        fit: how pictures are fitted to the model's input; None for its own way.
        annotated: the boxes by the picture's name; None where there are no boxes at all.
        seed: for all that is random.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        target: int | None,
        fit: Fit | None,
        annotated: dict[str, PictureBoxes] | None,
        seed: int,
    ) -> None:
        self.loaded, self.target, self.fit, self.annotated, self.seed = loaded, target, fit, annotated, seed
        self.cells: list[Cell] = []
        self.measured: list[str] = []
        self.failures: list[Failure] = []
        self.values: list[Value] = []
        self.examples: list[Example] = []
        self._explainer = Explainer(loaded, seed)
        self._score = class_probability(loaded.module)
        self._done: Counter[str] = Counter()

    def add_cells(
        self, methods: list[str], layers: list[str | None], baselines: list[str], kinds: list[type[Metric]]
    ) -> None:
        """A cell a method and layer, once a method that looks at no layer, then one a baseline."""
        pairs = [
            ("method", method, layer if find_method(method).takes_layer else None)
            for layer in layers
            for method in methods
            if find_method(method).takes_layer or layer == layers[0]
        ]
        for kind, name, layer in [*pairs, *(("baseline", name, None) for name in baselines)]:
            self.cells.append(Cell(kind, name, layer, [_seeded_metric(one, self.seed) for one in kinds]))

    def measure(self, pictures: list[PictureFile], batch_size: int, progress: Progress) -> None:
        """Go through the pictures, a batch at a time."""
        files = iter(pictures)
        batch: list[_Ready] = []
        for _ in progress([picture.name for picture in pictures]):
            file = next(files)
            try:
                batch.append(self._ready(file))
            except CamappError as error:
                self.failures.append(Failure(file.name, str(error)))
            if len(batch) == batch_size:
                self._measure_batch(batch)
                batch = []
        if batch:
            self._measure_batch(batch)

    def notes(self) -> list[str]:
        """What was done, and to how many pictures."""
        return [f"{count} picture(s): {what}" for what, count in sorted(self._done.items())]

    def _ready(self, file: PictureFile) -> _Ready:
        picture = decode(file.path)
        inputs, geometry, notes = self.loaded.prepare(picture, self.fit)
        annotated = (self.annotated or {}).get(file.name)
        boxes, more = fit_to_picture(annotated, picture) if annotated else (None, [])
        self._done.update([*picture.notes, *notes, *more])
        return _Ready(file, inputs, geometry, boxes)

    def _measure_batch(self, ready: list[_Ready]) -> None:
        batch = self._batch(ready)
        for cell in self.cells:
            if cell.kind == "baseline":
                self._measure_baseline(cell, batch)
        for layer in dict.fromkeys(cell.asked for cell in self.cells if cell.kind == "method"):
            cells = {cell.method: cell for cell in self.cells if cell.kind == "method" and cell.asked == layer}
            inputs, targets = batch.bare.inputs, batch.bare.targets
            found = self._explainer.explain(inputs, targets, list(cells), layer, timed=not self.measured)
            for method, explained in found.items():
                self._measure_method(cells[method], batch, explained)
        self.examples += batch.shown
        self.measured += batch.names

    def _batch(self, ready: list[_Ready]) -> _Batch:
        inputs = torch.cat([one.inputs for one in ready])
        targets = self._targets(inputs)
        labels = [self.loaded.label(target) for target in targets.tolist()]
        boxes = self._boxes(ready, targets.tolist(), labels)
        bare = Sample(self._score, inputs, targets, torch.zeros(len(ready), *inputs.shape[-2:]), boxes)
        _ = bare.confidence  # known from here on to every sample that is made of this one
        return _Batch([one.file.name for one in ready], labels, bare, self._examples(ready, labels, boxes))

    def _measure_method(self, cell: Cell, batch: _Batch, explained: Explained) -> None:
        cell.layer = cell.layer or explained.layer or ""
        if explained.seconds and math.isnan(cell.seconds_per_picture):
            cell.seconds_per_picture = explained.seconds / len(explained.rows)
        for row, reason in explained.refused.items():
            target = int(batch.bare.targets[row])
            self.values += cell.refuse(batch.names[row], target, batch.labels[row], reason)
        if not explained.rows:
            return
        explain = partial(self._explainer.maps_again, cell.method, cell.asked)
        rows, part = explained.rows, batch.rows(explained.rows)
        sample = part.bare.with_maps(explained.maps, explain)
        self.values += cell.measure(sample, part.names, part.labels, explained.reasons)
        for row, heat in zip(rows, explained.maps, strict=True):
            if row < len(batch.shown):
                batch.shown[row].maps[cell.method, cell.layer] = heat.cpu().numpy()

    def _measure_baseline(self, cell: Cell, batch: _Batch) -> None:
        size = (batch.bare.inputs.shape[-2], batch.bare.inputs.shape[-1])
        drawn = first = len(self.measured)
        maps = baseline_maps(cell.method, len(batch.names), size, seed=self.seed, first=first)

        def explain(again: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
            nonlocal drawn  # a random map that is asked for again is another one
            drawn += len(again)
            return baseline_maps(cell.method, len(again), size, seed=self.seed + 1, first=drawn).to(again.device)

        sample = batch.bare.with_maps(maps, explain)
        self.values += cell.measure(sample, batch.names, batch.labels, [None] * len(batch.names))

    @torch.no_grad()
    def _targets(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.target is not None:
            return torch.full((len(inputs),), self.target, device=inputs.device)
        module = self.loaded.module
        dtype = next((one.dtype for one in module.parameters() if one.is_floating_point()), inputs.dtype)
        with self.loaded.named_failures(), as_found(module):
            logits = class_logits(module(inputs.to(dtype, copy=True)), len(inputs))
        return logits.sort(dim=1, descending=True, stable=True).indices[:, 0]

    def _boxes(self, batch: list[_Ready], targets: list[int], labels: list[str]) -> list[torch.Tensor] | None:
        if self.annotated is None:
            return None
        found = []
        for ready, target, label in zip(batch, targets, labels, strict=True):
            if not ready.boxes:
                self._done["no boxes, so no value of the metrics that need them"] += 1
                found.append(torch.zeros(0, 4))
                continue
            one = object_boxes(ready.boxes, ready.geometry, label, target)
            self._done[_about(one)] += 1
            found.append(one.boxes)
        return found

    def _examples(self, batch: list[_Ready], labels: list[str], boxes: list[torch.Tensor] | None) -> list[Example]:
        """The first pictures, as the model sees them, waiting for their maps."""
        room = max(0, EXAMPLES - len(self.examples))
        how = self.loaded.card.preprocessing
        mean, std = (np.array(part, np.float32).reshape(3, 1, 1) for part in (how.mean, how.std))
        shown = []
        for row, ready in enumerate(batch[:room]):
            pixels = np.rint((ready.inputs[0].cpu().numpy() * std + mean) * 255).clip(0, 255).astype(np.uint8)
            drawn = [] if boxes is None else boxes[row].tolist()
            shown.append(Example(ready.file.name, labels[row], pixels.transpose(1, 2, 0).copy(), drawn, {}))
        return shown


def _seeded_metric(kind: type[Metric], seed: int) -> Metric:
    """A metric; one that draws numbers takes the run's seed."""
    make: Callable[..., Metric] = kind
    return make(seed=seed) if "seed" in signature(kind).parameters else make()


def _about(one: ObjectBoxes) -> str:
    if not len(one.boxes):
        return "its boxes lie outside of what the model sees, so no value of the metrics that need them"
    if one.matched:
        return "boxes of the explained class taken as the object"
    return "no box of the explained class: all its boxes taken as the object"
