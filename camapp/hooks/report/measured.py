"""What an inspection measured, as data: statistics of tensors, verdicts on them, and all of one step together."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

Of: TypeAlias = Literal["activation", "gradient", "parameter gradient"]
What: TypeAlias = Literal["non-finite", "vanishing", "exploding", "dead", "saturated"]


@dataclass(frozen=True)
class TensorStatistics:
    """Figures of one tensor at one step: a layer's output, the gradient of a layer's output, or a parameter's gradient.

    Gradients are those of the loss itself: a scale that a GradScaler put on is divided out.

    Args:
        name: the layer (``layer1.0.relu``; ``layer1.0.relu@1`` for its second call) or parameter (``fc.weight``).
        of: what the figures are of.
        kind: the class of the layer, or of the layer that owns the parameter.
        shape: the tensor's shape.
        norm: the Euclidean norm, from 0; NaN or infinite where elements are.
        mean: the mean of the elements.
        abs_max: the largest absolute value, from 0.
        zero_share: the share of elements that are exactly 0, from 0 to 1.
        nonfinite: how many elements are NaN or infinite.
        p50: the median absolute value, of the finite elements of a fixed sample; NaN where there are none.
        p95: the 95th percentile of the same.
        p99: the 99th percentile of the same.
        dead_units: of an activation with channels, the share of channels that are 0 for the whole batch; else None.
        saturated: of the output of a bounded activation function, the share within a hundredth of its range from a
            limit; None elsewhere.
        update_ratio: of a parameter, the norm of its last update over its own norm; None where no update was seen.
    """

    name: str
    of: Of
    kind: str
    shape: tuple[int, ...]
    norm: float
    mean: float
    abs_max: float
    zero_share: float
    nonfinite: int
    p50: float
    p95: float
    p99: float
    dead_units: float | None = None
    saturated: float | None = None
    update_ratio: float | None = None


@dataclass(frozen=True)
class Verdict:
    """One thing that is wrong, and the numbers it rests on.

    Args:
        name: the layer or parameter, as in its statistics.
        of: what it was seen in.
        what: what is wrong.
        why: one sentence with the numbers and what they were held against.
    """

    name: str
    of: Of
    what: What
    why: str


@dataclass(frozen=True)
class Measured:
    """All that was measured at one step; ``camapp.hooks.report.records.Snapshot`` shows and saves it.

    Args:
        step: the number of the step, from 0.
        loss: the loss; None where it was not given.
        statistics: layers in the order in which they ran, their activations before their gradients; then parameters in
            the model's order.
        verdicts: what is wrong, worst first; empty where nothing is.
        without_gradient: layers and parameters that were watched and got no gradient.
    """

    step: int
    loss: float | None
    statistics: tuple[TensorStatistics, ...]
    verdicts: tuple[Verdict, ...] = ()
    without_gradient: tuple[str, ...] = ()

    def of(self, kind: Of) -> Iterator[TensorStatistics]:
        """The statistics of one kind, in order."""
        return (one for one in self.statistics if one.of == kind)

    @property
    def has_nonfinite(self) -> bool:
        """Whether anything measured, the loss included, is NaN or infinite."""
        lost = self.loss is not None and not math.isfinite(self.loss)
        return lost or any(one.nonfinite or not math.isfinite(one.norm) for one in self.statistics)
