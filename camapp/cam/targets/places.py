"""Targets that have a place in the picture: a region of a segmentation, a box of a detector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from camapp.cam.targets.classes import checked_class
from camapp.cam.targets.target import ClassIndex, ClassName, ClassTarget, Target, described
from camapp.errors import TargetError

# Below this overlap a detection of an altered picture is another thing's.
LEAST_OVERLAP = 0.5


@dataclass(frozen=True, eq=False)
class SegmentationRegion(ClassTarget):
    """The mean score of a class over a region of a segmentation.

    Args:
        target: the class.
        mask: (H, W) bool at the output's size, the region; by default where the model predicts the class, or the whole
            picture where it does so nowhere.

    Source: Vinogradova et al., "Towards Interpretable Semantic Segmentation via Gradient-weighted Class Activation
    Mapping", AAAI 2020 (there the sum; the mean gives the same map but for its scale).
    """

    target: ClassName
    mask: torch.Tensor | None = None

    def settled(self, row: Any) -> Target:
        """With the region as the unaltered picture has it."""
        if self.mask is not None:
            return self
        scores = self._scores(row)
        mask = scores.argmax(0) == checked_class(self.target, scores)
        return replace(self, mask=mask if bool(mask.any()) else torch.ones_like(mask))

    def score(self, row: Any) -> torch.Tensor:
        """The mean score."""
        scores = self._scores(row)
        one = scores[checked_class(self.target, scores)]
        if self.mask is None:
            return one.mean()
        if self.mask.shape != one.shape or not self.mask.any():
            raise TargetError(
                f"The mask is {tuple(self.mask.shape)} with {int(self.mask.sum())} places set; needed is one of the "
                f"output's size {tuple(one.shape)} with a place set or more."
            )
        return one[self.mask.to(one.device).bool()].mean()

    @staticmethod
    def _scores(row: Any) -> torch.Tensor:
        if not isinstance(row, torch.Tensor) or row.dim() < 2:
            raise TargetError(
                f"SegmentationRegion reads scores (classes, H, W) of one picture; the model returned {described(row)}."
            )
        return row

    def __repr__(self) -> str:
        return f"region of class {self.target}"


@dataclass(frozen=True)
class DetectedBox(Target):
    """The score of one detected object, followed by the overlap of its box when the picture is altered.

    For detectors that return a dict a picture with ``boxes`` (N, 4) xyxy, ``scores`` (N,) and ``labels`` (N,), as
    torchvision's do.

    Args:
        box: x0, y0, x1, y1 in input pixels; by default that of the detection ``rank``.
        label: only detections of this label.
        rank: which of the detections by score, from 0, where no box is given.
    """

    box: Sequence[float] | None = None
    label: ClassName | None = None
    rank: int = 0

    @property
    def index(self) -> int | None:  # type: ignore[override]
        """The label, where one is given."""
        return self.label if isinstance(self.label, int) else None

    def named(self, class_index: ClassIndex) -> Target:
        """With the index of its label."""
        return self if self.label is None else replace(self, label=class_index(self.label))

    def settled(self, row: Any) -> Target:
        """With the box and the label of the detection that is meant.

        Raises:
            TargetError: there is no such detection.
        """
        if self.box is not None:
            return self
        boxes, scores, labels = _detections(row)
        found = self._of_label(labels)
        if self.rank >= len(found):
            what = "objects" if self.label is None else f"objects of label {self.label}"
            raise TargetError(f"The detector found {len(found)} {what}; there is no number {self.rank}, from 0.")
        best = found[scores[found].detach().argsort(descending=True, stable=True)[self.rank]]
        return replace(self, box=tuple(boxes[best].tolist()), label=int(labels[best]))

    def score(self, row: Any) -> torch.Tensor:
        """The score of the detection that overlaps the box most, by half or more; 0 where none does."""
        boxes, scores, labels = _detections(row)
        found = self._of_label(labels)
        if len(found) == 0:
            return scores.sum() * 0
        overlaps = _overlaps(boxes[found].detach(), torch.tensor(self.box, device=boxes.device))
        best = int(overlaps.argmax())
        return scores[found[best]] if overlaps[best] >= LEAST_OVERLAP else scores.sum() * 0

    def _of_label(self, labels: torch.Tensor) -> torch.Tensor:
        """The numbers of the detections of the label."""
        numbers = torch.arange(len(labels), device=labels.device)
        return numbers if self.label is None else numbers[labels == self.label]

    def __repr__(self) -> str:
        label = "" if self.label is None else f" of label {self.label}"
        where = f"number {self.rank}" if self.box is None else f"at {', '.join(f'{edge:.0f}' for edge in self.box)}"
        return f"detection{label} {where}"


def is_detection(row: Any) -> bool:
    """Whether one picture's output is a dict of detections."""
    return isinstance(row, dict) and {"boxes", "scores", "labels"} <= row.keys()


def _detections(row: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    if not is_detection(row):
        raise TargetError(
            f"DetectedBox reads a dict of boxes, scores and labels a picture; the model returned {described(row)}."
        )
    return row["boxes"], row["scores"], row["labels"]


def _overlaps(boxes: torch.Tensor, box: torch.Tensor) -> torch.Tensor:
    """Intersection over union of boxes (N, 4) xyxy with one box, (N,)."""
    low = torch.maximum(boxes[:, :2], box[:2])
    high = torch.minimum(boxes[:, 2:], box[2:])
    common = (high - low).clamp(min=0).prod(1)
    either = (boxes[:, 2:] - boxes[:, :2]).prod(1) + (box[2:] - box[:2]).prod() - common
    return common / either.clamp(min=1e-12)
