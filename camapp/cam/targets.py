"""What is explained: which classes of which rows."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch

from camapp.errors import OutputError, TargetError


@dataclass(frozen=True)
class TopClasses:
    """The ``k`` classes of the highest score, best first, of each row.

    Raises:
        TargetError: ``k`` is no positive whole number.
    """

    k: int = 1

    def __post_init__(self) -> None:
        k = whole_number(self.k)
        if k is None or k < 1:
            raise TargetError(f"top k = {self.k!r} is not a positive whole number of classes.")
        object.__setattr__(self, "k", k)


ClassName: TypeAlias = int | str
Targets: TypeAlias = (
    TopClasses | ClassName | Sequence[ClassName] | Sequence[Sequence[ClassName]] | torch.Tensor | np.ndarray
)
ClassIndex: TypeAlias = Callable[[ClassName], int]


@dataclass(frozen=True)
class Plan:
    """Which classes to explain, before the scores are known.

    Args:
        per_row: K, how many classes each row has.
        single: whether the result has no axis of K.
        classes: (B, K) class indices; None for the top classes.
    """

    per_row: int
    single: bool
    classes: tuple[tuple[int, ...], ...] | None

    def choose(self, logits: torch.Tensor) -> torch.Tensor:
        """The class indices (B, K) for logits of shape (B, classes).

        Raises:
            TargetError: a class out of range, or more top classes than there are.
        """
        count = logits.shape[1]
        if self.classes is None:
            if self.per_row > count:
                raise TargetError(f"Cannot explain the top {self.per_row} classes: the model has only {count}.")
            # A stable sort: of equal scores the lower class comes first, on every device.
            return logits.sort(dim=1, descending=True, stable=True).indices[:, : self.per_row]
        for classes in self.classes:
            for index in classes:
                if not 0 <= index < count:
                    raise TargetError(
                        f"Class {index} is out of range: the model has {count} classes, 0 to {count - 1}."
                    )
        return torch.tensor(self.classes, device=logits.device)


def plan_targets(targets: Targets | None, rows: int, class_index: ClassIndex | None = None) -> Plan:
    """Read what a user gave as targets.

    Args:
        targets: None for the top class; one class for all rows; one class a row; K classes a row as a list of lists; or
            ``TopClasses(k)``.
        rows: the batch size B.
        class_index: turns a class name into its index, where the model has names.

    Raises:
        TargetError: the number of targets does not fit the rows, a name where there are none, or no class at all.
    """
    if targets is None:
        return Plan(1, True, None)
    if isinstance(targets, TopClasses):
        return Plan(targets.k, False, None)
    given: Any = targets.tolist() if isinstance(targets, torch.Tensor | np.ndarray) else targets
    read = class_index or _plain_index
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


def whole_number(given: Any) -> int | None:
    """A whole number of any library (int, NumPy, torch) as an int; None for anything else, booleans too."""
    if isinstance(given, bool | np.bool_) or (isinstance(given, torch.Tensor) and given.dtype == torch.bool):
        return None
    try:
        return operator.index(given)
    except (TypeError, ValueError):
        return None


def _plain_index(given: Any) -> int:
    index = whole_number(given)
    if index is None:
        what = f'"{given}"' if isinstance(given, str) else repr(given)
        raise TargetError(
            f"{what} is not a class index. A plain nn.Module has no class names: give whole numbers from 0."
        )
    return index


def class_logits(output: Any, rows: int) -> torch.Tensor:
    """The class scores (B, classes) in what a model returned.

    Taken are a tensor; the first tensor of a tuple or list; and the field or key ``logits``.

    Raises:
        OutputError: there is no such tensor; the message says what there is.
    """
    logits = _find_logits(output)
    if logits is None:
        raise OutputError(
            f"The model returned {_describe(output)}, which contains no class scores. Wrap it in a module that "
            "returns a tensor of shape (batch, classes)."
        )
    if logits.dim() != 2 or len(logits) != rows:
        raise OutputError(
            f"The model returned scores of shape {tuple(logits.shape)} for a batch of {rows}; needed: (batch, classes)."
        )
    return logits


def _find_logits(output: Any) -> torch.Tensor | None:
    if isinstance(output, torch.Tensor):
        return output
    if isinstance(output, dict):
        return _find_logits(output.get("logits"))
    if hasattr(output, "logits"):
        return _find_logits(output.logits)
    if isinstance(output, tuple | list):
        return next((item for item in output if isinstance(item, torch.Tensor)), None)
    return None


def _describe(output: Any) -> str:
    if isinstance(output, dict):
        return f"a dict with the keys {', '.join(map(str, output))}"
    return f"a {type(output).__name__}"
