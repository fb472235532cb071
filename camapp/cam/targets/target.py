"""Target: one number of what a model returned for one picture; the interface of everything that can be explained."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import torch

from camapp.errors import TargetError

ClassName: TypeAlias = int | str
ClassIndex: TypeAlias = Callable[[Any], int]


class Target(ABC):
    """Something in a model's output that can be explained: one number a picture, with a gradient.

    A target sees the output *of one picture*: a row of a tensor without its batch axis, or one element of a list. It
    may be given wherever a class may: one for all pictures, one a picture, or a list of K for each picture.
    """

    #: The class that is meant, where it is one.
    index: int | None = None

    @abstractmethod
    def score(self, row: Any) -> torch.Tensor:
        """The number to explain, a tensor of no axes, from the output of one picture.

        Raises:
            TargetError: the output has no such class, box or region, or is of another kind.
        """

    def named(self, class_index: ClassIndex) -> Target:
        """This target with class names turned into indices."""
        return self

    def settled(self, row: Any) -> Target:
        """This target with all that is read off the unaltered output fixed: the likeliest rival, the box that matches.

        Methods that alter the picture or its activations ask the settled target, so that they follow one thing.
        """
        return self


class ClassTarget(Target):
    """A target of one class, given by name until ``named`` has turned it into an index."""

    target: ClassName

    @property
    def index(self) -> int | None:  # type: ignore[override]
        """The class index; None while it is a name."""
        return self.target if isinstance(self.target, int) else None

    def named(self, class_index: ClassIndex) -> Target:
        """With the index of the class."""
        return replace(self, target=class_index(self.target))  # type: ignore[type-var]


class CallableTarget(Target):
    """Any function of the output of one picture.

    Args:
        function: takes a row of the output and returns one number, a tensor of one element.
    """

    def __init__(self, function: Callable[[Any], torch.Tensor]) -> None:
        self.function = function

    def score(self, row: Any) -> torch.Tensor:
        """What the function returns."""
        value = self.function(row)
        if not isinstance(value, torch.Tensor) or value.numel() != 1:
            given = f"a tensor {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
            raise TargetError(
                f"The target {self} gave {given} for one picture; needed is one number as a tensor, such as row[3] or "
                "row.mean(). It is called with the output of one picture, without the batch axis."
            )
        return value.reshape(())

    def __repr__(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)


def whole_number(given: Any) -> int | None:
    """A whole number of any library (int, NumPy, torch) as an int; None for anything else, booleans too."""
    if isinstance(given, bool | np.bool_) or (isinstance(given, torch.Tensor) and given.dtype == torch.bool):
        return None
    try:
        return operator.index(given)
    except (TypeError, ValueError):
        return None


def plain_index(given: Any) -> int:
    """A class index of a model without class names.

    Raises:
        TargetError: it is none.
    """
    index = whole_number(given)
    if index is None:
        what = f'"{given}"' if isinstance(given, str) else repr(given)
        raise TargetError(
            f"{what} is not a class index. A plain nn.Module has no class names: give whole numbers from 0, or a "
            "target of camapp.cam.targets."
        )
    return index


def described(row: Any) -> str:
    """The output of one picture in a few words, for errors."""
    if isinstance(row, torch.Tensor):
        return f"a tensor {tuple(row.shape)}"
    if isinstance(row, dict):
        return f"a dict with the keys {', '.join(map(str, row))}"
    return f"a {type(row).__name__}"
