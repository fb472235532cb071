"""Targets of a classifier: scores, probabilities and differences of classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from camapp.cam.targets.target import ClassIndex, ClassName, ClassTarget, Target, described
from camapp.errors import TargetError


@dataclass(frozen=True)
class ClassScore(ClassTarget):
    """The raw score (logit) of a class: what a class index or name alone means.

    Of a segmentation it is the class's region, of a detection its best box.

    Args:
        target: class index, or a name where the model has names.
    """

    target: ClassName

    def score(self, row: Any) -> torch.Tensor:
        """The logit."""
        return class_scores(row)[checked_class(self.target, row)]

    def __repr__(self) -> str:
        return f"class {self.target}"


@dataclass(frozen=True)
class ClassProbability(ClassTarget):
    """The softmax probability of a class.

    Its gradient also holds what speaks against the other classes, and vanishes where the model is certain.
    """

    target: ClassName

    def score(self, row: Any) -> torch.Tensor:
        """The probability, 0 to 1."""
        return class_scores(row).float().softmax(0)[checked_class(self.target, row)]

    def __repr__(self) -> str:
        return f"probability of class {self.target}"


@dataclass(frozen=True)
class ResidualScore(ClassTarget):
    r"""The logit of a class plus its log-probability, :math:`z_c + \log p_c`.

    As the logit, but it still has a second derivative where the head is linear, and as the probability, but it does not
    vanish where the model is certain.

    Source: Cai, "CAMs as Shapley Value-based Explainers", 2025, the ReST utility.
    """

    target: ClassName

    def score(self, row: Any) -> torch.Tensor:
        """The sum of logit and log-probability."""
        scores, index = class_scores(row), checked_class(self.target, row)
        return scores[index] + scores.float().log_softmax(0)[index]

    def __repr__(self) -> str:
        return f"residual score of class {self.target}"


@dataclass(frozen=True)
class ClassDifference(ClassTarget):
    r"""What speaks for a class rather than for others: :math:`y^c - \gamma \frac{1}{T} \sum_{t=1}^{T} y^{d_t}`.

    Args:
        target: the class :math:`c`.
        others: the class or classes :math:`d_t` to tell it from; by default the ``nearest`` ones, those whose scores
            differ least from the target's on the unaltered picture.
        gamma: the weight of the others' mean score, 0 and up.
        nearest: how many others to take when none are named; all, where the model has fewer.

    Source: Zhang et al., "Finer-CAM: Spotting the Difference Reveals Finer Details for Visual Explanation", CVPR 2025,
    section 3.
    """

    target: ClassName
    others: ClassName | Sequence[ClassName] | None = None
    gamma: float = 0.6
    nearest: int = 3

    def __post_init__(self) -> None:
        if isinstance(self.nearest, bool) or not isinstance(self.nearest, int) or self.nearest < 1:
            raise TargetError(f"nearest = {self.nearest!r} is no positive whole number of classes to compare with.")
        if isinstance(self.gamma, bool) or not isinstance(self.gamma, int | float) or not 0 <= self.gamma < math.inf:
            raise TargetError(f"gamma = {self.gamma!r} is no weight for the other classes: give a number, 0 or more.")
        if self.others is not None and not self.compared:
            raise TargetError("others is empty: name the classes to compare with, or leave it out for the nearest.")

    @property
    def compared(self) -> tuple[ClassName, ...]:
        """The classes to tell it from, as far as they are known."""
        if self.others is None:
            return ()
        alone = isinstance(self.others, str) or not isinstance(self.others, Sequence)
        return (self.others,) if alone else tuple(self.others)  # type: ignore[return-value, arg-type]

    def named(self, class_index: ClassIndex) -> Target:
        """With the indices of all its classes."""
        target = class_index(self.target)
        others = None if self.others is None else tuple(class_index(other) for other in self.compared)
        if others and target in others:
            raise TargetError(f"Class {target} is compared with itself: name other classes, or leave them out.")
        return replace(self, target=target, others=others)

    def settled(self, row: Any) -> Target:
        """With the classes nearest in score, as the unaltered picture has them."""
        if self.others is not None:
            return self
        scores, index = class_scores(row).detach(), checked_class(self.target, row)
        if len(scores) < 2:
            raise TargetError("A difference of classes needs a model of two classes or more; this one has one score.")
        near = (scores - scores[index]).abs().argsort(stable=True).tolist()
        near.remove(index)
        return replace(self, others=tuple(near[: self.nearest]))

    def score(self, row: Any) -> torch.Tensor:
        """The difference of the logits."""
        scores = class_scores(row)
        others = [checked_class(other, row) for other in self.compared]
        return scores[checked_class(self.target, row)] - self.gamma * scores[others].mean()

    def __repr__(self) -> str:
        others = ", ".join(map(str, self.compared)) or f"the {self.nearest} nearest"
        return f"class {self.target} against {others}"


@dataclass(frozen=True)
class SeveralClasses(Target):
    """The sum of several classes' logits: what supports any of the labels of a multi-label model, or of a group.

    Args:
        targets: the classes.
    """

    targets: Sequence[ClassName]

    def __post_init__(self) -> None:
        if isinstance(self.targets, str) or not self.targets:
            raise TargetError(f"targets = {self.targets!r}: SeveralClasses wants a list of classes, one or more.")

    def named(self, class_index: ClassIndex) -> Target:
        """With the indices of all its classes."""
        return replace(self, targets=tuple(class_index(one) for one in self.targets))

    def score(self, row: Any) -> torch.Tensor:
        """The sum of the logits."""
        return class_scores(row)[[checked_class(one, row) for one in self.targets]].sum()

    def __repr__(self) -> str:
        return f"classes {', '.join(map(str, self.targets))}"


@dataclass(frozen=True)
class BinaryScore(Target):
    """The one logit of a binary classifier, or its negative to explain the negative class.

    Args:
        positive: whether the positive class is explained.
    """

    positive: bool = True

    def score(self, row: Any) -> torch.Tensor:
        """The logit, signed."""
        scores = class_scores(row)
        if len(scores) != 1:
            raise TargetError(f"BinaryScore wants a model of one score; this one has {len(scores)}: name a class.")
        return scores[0] if self.positive else -scores[0]

    def __repr__(self) -> str:
        return "the positive class" if self.positive else "the negative class"


def class_scores(row: Any) -> torch.Tensor:
    """The class scores (classes,) that one picture's output is.

    Raises:
        TargetError: it is something else.
    """
    if isinstance(row, torch.Tensor) and row.dim() == 1:
        return row
    raise TargetError(
        f"The model returned {described(row)} for one picture, no vector of class scores. Give a target that reads it: "
        "SegmentationRegion, DetectedBox, EmbeddingSimilarity or OutputValue of camapp.cam.targets, a function of one "
        "picture's output, or say by output=... which part of the output holds the scores."
    )


def checked_class(index: Any, row: torch.Tensor) -> int:
    """``index`` as an index of the first axis of ``row``, one entry a class.

    Raises:
        TargetError: the model has no such class.
    """
    count = len(row)
    if isinstance(index, int) and 0 <= index < count:
        return index
    hint = " BinaryScore(False) explains the negative class." if count == 1 and index == 1 else ""
    raise TargetError(f"Class {index} is out of range: the model has {count} classes, 0 to {count - 1}.{hint}")
