"""Pointing game, energy in the box, and IoU at a fixed share of the maximum: is the map where the object is?"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torchvision.ops import box_iou

from camapp.cam.metrics.boxes import covered, largest_component_box, squared_distance
from camapp.cam.metrics.metric import Metric, mean_of_defined
from camapp.cam.metrics.sample import Sample
from camapp.errors import UsageError


class Pointing(Metric):
    """Pointing game: whether the map's maximum lies less than 15 pixels from an object of its class.

    The distance is Euclidean, from the maximum's pixel to the nearest pixel of a box, and must be less than the
    tolerance: 15 pixels of the input, whatever its size. Where several pixels share the maximum, the value is the share
    of them that hit, so that no order of pixels decides.

    The paper's accuracy is the mean over classes of each class's accuracy; by default here all pictures count the same.

    Source: Zhang et al., "Top-down Neural Attention by Excitation Backprop", IJCV 2018, section 4.1; the strict
    comparison as in TorchRay.

    Args:
        tolerance: in pixels.
        per_class: average over the classes, each class's accuracy counting the same.
    """

    name = "pointing"
    title = "Pointing game"
    direction = "higher"
    needs = frozenset({"boxes"})
    cheap = True
    scale = "%"

    def __init__(self, tolerance: float = 15.0, *, per_class: bool = False) -> None:
        super().__init__()
        if tolerance <= 0:
            raise UsageError(f"tolerance = {tolerance} pixels: no pixel is nearer than that, not even within a box.")
        self._tolerance = tolerance
        self._per_class = per_class
        self.is_mean = not per_class
        self._targets: list[Tensor] = []

    def value(self) -> float:
        """The accuracy in percent over all pictures that have a box, or the mean of the classes' accuracies."""
        if not self._per_class or not self._values:
            return super().value()
        values, targets = torch.cat(self._values), torch.cat(self._targets)
        classes = [mean_of_defined(values[targets == target]) for target in targets.unique()]
        return mean_of_defined(torch.tensor(classes, dtype=torch.float64))

    def _judge(self, sample: Sample) -> Tensor:
        values = 100 * _per_picture(sample, self._hit)
        self._targets.append(sample.targets.cpu())
        return values

    def _hit(self, heat: Tensor, boxes: Tensor) -> Tensor:
        near = squared_distance(boxes, (heat.shape[0], heat.shape[1])) < self._tolerance**2
        return near[heat == heat.max()].double().mean()


class Energy(Metric):
    """Energy-based pointing game: the share of the map's sum that lies in the boxes, counted once where they overlap.

    A map that is the same everywhere scores the boxes' share of the picture, so look at the ``uniform`` baseline beside
    it. A blank map has nothing in the box: 0.

    Source: Wang et al., "Score-CAM", CVPR workshops 2020, section 4.3.
    """

    name = "energy"
    title = "Energy-based pointing game"
    direction = "higher"
    needs = frozenset({"boxes"})
    cheap = True
    scale = "%"

    def _judge(self, sample: Sample) -> Tensor:
        return 100 * _per_picture(sample, _energy)


class IoU(Metric):
    """IoU: of the box around the map's largest part above 15 % of its maximum with the nearest true box.

    The largest part is the connected component of the most pixels, diagonal neighbours joined; of several true boxes
    the one that overlaps most counts. Areas are plain ones, far edge less near edge. A blank map scores 0.

    Source: Selvaraju et al., "Grad-CAM", ICCV 2017, section 4.1, which counts an IoU of 0.5 or more as right (and asks
    for the right prediction too): ``at_least=0.5`` counts so, with the class known.

    Args:
        threshold: share of the maximum that a pixel of the part exceeds or equals.
        at_least: None for the mean IoU; else each picture counts 1 where its IoU is this or more, else 0.
    """

    name = "iou"
    title = "IoU at 15 % of the maximum"
    direction = "higher"
    needs = frozenset({"boxes"})
    cheap = True

    def __init__(self, threshold: float = 0.15, *, at_least: float | None = None) -> None:
        super().__init__()
        if not 0 < threshold <= 1:
            raise UsageError(f"threshold = {threshold} is no share of the maximum; give one above 0, at most 1.")
        self._threshold = threshold
        self._at_least = at_least

    def _judge(self, sample: Sample) -> Tensor:
        values = _per_picture(sample, self._overlap)
        if self._at_least is None:
            return values
        return torch.where(values.isnan(), values, (values >= self._at_least).double())

    def _overlap(self, heat: Tensor, boxes: Tensor) -> Tensor:
        values = heat.cpu().numpy()
        highest = values.max()
        if highest <= 0:
            return torch.zeros(())
        box = largest_component_box(values >= np.float32(self._threshold) * highest)
        return box_iou(torch.from_numpy(box)[None], boxes.double()).max()


def _energy(heat: Tensor, boxes: Tensor) -> Tensor:
    inside = covered(boxes, (heat.shape[0], heat.shape[1]))
    total = heat.double().sum()
    return torch.where(total > 0, heat[inside].double().sum() / total, 0.0)


def _per_picture(sample: Sample, measure: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """``measure(map, boxes)`` of each picture, (B,) float64; NaN without a box."""
    assert sample.boxes is not None, "Metric.update has looked"
    heats = sample.maps.cpu()
    return torch.stack(
        [
            measure(heat, boxes.detach().cpu()).double() if len(boxes) else torch.tensor(torch.nan).double()
            for heat, boxes in zip(heats, sample.boxes, strict=True)
        ]
    )
