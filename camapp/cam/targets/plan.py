"""Plan: what a user gave as targets, read before the model runs; Aims: the same once its output is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch

from camapp.cam.targets.classes import ClassScore, checked_class
from camapp.cam.targets.output import Output
from camapp.cam.targets.places import DetectedBox, SegmentationRegion, is_detection
from camapp.cam.targets.target import (
    CallableTarget,
    ClassIndex,
    ClassName,
    Target,
    described,
    plain_index,
    whole_number,
)
from camapp.errors import OutputError, TargetError


@dataclass(frozen=True)
class TopClasses:
    """The ``k`` classes of the highest score, best first, of each row.

    Of a segmentation they are the ``k`` classes of largest area, of a detection the ``k`` best boxes.

    Raises:
        TargetError: ``k`` is no positive whole number.
    """

    k: int = 1

    def __post_init__(self) -> None:
        k = whole_number(self.k)
        if k is None or k < 1:
            raise TargetError(f"top k = {self.k!r} is not a positive whole number of classes.")
        object.__setattr__(self, "k", k)


One: TypeAlias = ClassName | Target | Callable[[Any], torch.Tensor]
Targets: TypeAlias = TopClasses | One | Sequence[One] | Sequence[Sequence[One]] | torch.Tensor | np.ndarray


@dataclass(frozen=True)
class Aims:
    """What each of B rows is explained for, K targets a row, all settled.

    Args:
        targets: B rows of K.
    """

    targets: tuple[tuple[Target, ...], ...]

    @property
    def indices(self) -> torch.Tensor:
        """The class indices (B, K) int64; -1 for a target that is no class."""
        indices = [[-1 if one.index is None else one.index for one in row] for row in self.targets]
        return torch.tensor(indices, device="cpu")  # whatever the default device is

    @property
    def names(self) -> list[list[str]]:
        """What the targets are, in words."""
        return [[repr(one) for one in row] for row in self.targets]

    def scores(self, output: Output) -> torch.Tensor:
        """The scores (B, K) of an output of B rows."""
        each = [score_rows(output, [row[k] for row in self.targets]) for k in range(len(self.targets[0]))]
        return torch.stack(each, dim=1)

    def scores_of_repeated(self, output: Output) -> torch.Tensor:
        """The scores (B * K,) of an output of B * K rows, those of one picture together, one row a target."""
        return score_rows(output, [one for row in self.targets for one in row])

    def scores_of_row(self, output: Output, row: int) -> torch.Tensor:
        """The scores (N, K) of N altered copies of the picture ``row``."""
        return torch.stack([score_rows(output, [one] * len(output)) for one in self.targets[row]], dim=1)


@dataclass(frozen=True)
class Plan:
    """What to explain, before the model has run.

    Args:
        per_row: K, how many targets each row has.
        single: whether the result has no axis of K.
        targets: B rows of K; None for the top classes.
    """

    per_row: int
    single: bool
    targets: tuple[tuple[Target, ...], ...] | None

    def settle(self, output: Output) -> Aims:
        """The targets of each row, given the model's output.

        Raises:
            TargetError: a class out of range, or more top classes than there are.
            OutputError: no targets were given, and the output says none of itself.
        """
        rows = self.targets or top_targets(output, self.per_row)
        return Aims(
            tuple(
                tuple(_suited(one, output[row]).settled(output[row]) for one in targets)
                for row, targets in enumerate(rows)
            )
        )


def plan_targets(targets: Targets | None, rows: int, class_index: ClassIndex | None = None) -> Plan:
    """Read what a user gave as targets.

    Args:
        targets: None for the top class; one target for all rows; one a row; K a row as a list of lists; a bool tensor
            (B, classes) with K classes set in every row; or ``TopClasses(k)``. A target is a class index, a class
            name, a ``Target``, or a function of one row's output.
        rows: the batch size B.
        class_index: turns a class name into its index, where the model has names.

    Raises:
        TargetError: the number of targets does not fit the rows, a name where there are none, or no class at all.
    """
    if targets is None:
        return Plan(1, True, None)
    if isinstance(targets, TopClasses):
        return Plan(targets.k, False, None)
    given: Any = targets
    if isinstance(given, torch.Tensor | np.ndarray):
        given = _set_classes(given) if given.ndim == 2 and given.dtype in (torch.bool, np.bool_) else given.tolist()

    def read(one: Any) -> Target:
        return _read(one, class_index or plain_index)

    if not isinstance(given, list | tuple):
        return Plan(1, True, ((read(given),),) * rows)
    if len(given) != rows:
        hint = f" For several classes of one picture nest them: targets=[{list(given)}]." if rows == 1 and given else ""
        raise TargetError(
            f"{len(given)} target(s) for a batch of {rows}: give one class for all, or one per row.{hint}"
        )
    nested = [isinstance(row, list | tuple) for row in given]
    if not any(nested):
        return Plan(1, True, tuple((read(one),) for one in given))
    if not all(nested) or len({len(row) for row in given}) != 1 or not given[0]:
        raise TargetError("Lists of targets need the same number of classes, one or more, in every row.")
    return Plan(len(given[0]), False, tuple(tuple(read(one) for one in row) for row in given))


def top_targets(output: Output, k: int) -> list[list[Target]]:
    """The ``k`` best things that each row of an output holds: classes, regions or boxes.

    Raises:
        TargetError: there are fewer.
        OutputError: the output is none of scores, segmentation or detections.
    """
    if isinstance(output, torch.Tensor) and output.dim() == 2:
        return [[ClassScore(index) for index in row] for row in _best(output.detach(), k)]
    if isinstance(output, torch.Tensor) and output.dim() > 3:
        classes = output.shape[1]
        areas = [torch.bincount(row.argmax(0).flatten(), minlength=classes) for row in output.detach()]
        return [[SegmentationRegion(index) for index in row] for row in _best(torch.stack(areas), k)]
    if all(is_detection(row) for row in output):
        return [[DetectedBox(rank=rank) for rank in range(k)] for _ in output]
    raise OutputError(
        f"The model returned {described(output[0])} for each picture; which number of it is explained? Give targets: "
        "a target of camapp.cam.targets or a function of one picture's output, or say by output=... where its class "
        "scores are."
    )


def score_rows(output: Output, targets: Sequence[Target]) -> torch.Tensor:
    """The scores (N,) of N rows, one target each.

    Raises:
        TargetError: a target that does not fit.
    """
    if isinstance(output, torch.Tensor) and output.dim() == 2 and all(type(one) is ClassScore for one in targets):
        indices = [checked_class(one.target, output[0]) for one in targets if isinstance(one, ClassScore)]
        return output.gather(1, torch.tensor(indices, device=output.device)[:, None])[:, 0]
    return torch.stack([one.score(output[row]) for row, one in enumerate(targets)])


def _best(scores: torch.Tensor, k: int) -> list[list[int]]:
    count = scores.shape[1]
    if k > count:
        raise TargetError(f"Cannot explain the top {k} classes: the model has only {count}.")
    # A stable sort: of equal scores the lower class comes first, on every device.
    return scores.sort(dim=1, descending=True, stable=True).indices[:, :k].tolist()


def _read(one: Any, class_index: ClassIndex) -> Target:
    if isinstance(one, Target):
        return one.named(class_index)
    if callable(one) and not isinstance(one, torch.Tensor):
        return CallableTarget(one)
    return ClassScore(class_index(one))


def _suited(target: Target, row: Any) -> Target:
    """A class alone means its region where the output is a segmentation, its best box where it is a detection."""
    if type(target) is not ClassScore:
        return target
    if isinstance(row, torch.Tensor) and row.dim() > 2:
        return SegmentationRegion(target.target)
    return DetectedBox(label=target.target) if is_detection(row) else target


def _set_classes(given: torch.Tensor | np.ndarray) -> list[list[int]]:
    """The classes that each row of a multi-hot matrix sets."""
    rows: list[list[bool]] = given.tolist()
    classes = [[index for index, is_set in enumerate(row) if is_set] for row in rows]
    if len({len(row) for row in classes}) != 1 or not classes[0]:
        raise TargetError(
            f"The rows of the multi-hot targets set {', '.join(str(len(row)) for row in classes)} classes; needed is "
            "the same number, one or more, in every row. Explain the pictures one by one, or give SeveralClasses."
        )
    return classes
