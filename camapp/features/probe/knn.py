"""The probe of nearest neighbours: training pictures vote for their classes by cosine similarity."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from camapp.errors import UsageError
from camapp.features.probe.choosing import Choice, Trial
from camapp.features.probe.fitted import Fitted

K_GRID = (1, 3, 5, 10, 20, 50, 100)
# Similarities are computed for so many pictures at a time.
_ROWS = 1024


class Neighbours(nn.Module):
    r"""Votes of the nearest training pictures, weighted by cosine similarity.

    With :math:`s_i = \hat x \cdot \hat x_i`, hats for unit length, and :math:`N_k(x)` the k training pictures of
    greatest :math:`s_i`, the score of class c is

    .. math:: \frac1k \sum_{i \in N_k(x),\, y_i = c} \max(s_i, 0),

    a number from 0 to 1. A neighbour at more than a right angle has no vote; features that are all zero are similar to
    nothing. Over their sum, the scores are the probabilities of scikit-learn's ``KNeighborsClassifier`` with
    ``metric="cosine"`` and ``weights=lambda distance: 1 - distance`` wherever no similarity is negative.

    **What the gradient means.** Which pictures are nearest jumps, and the gradient does not see that: it is that of
    the votes of the neighbours found, :math:`\frac1k \sum (\hat x_i - s_i \hat x) / \lVert x \rVert` over those of
    class c, and points to where they lie. A class without a neighbour has none. Cosine similarity does not heed
    length, so the gradient is orthogonal to :math:`x`: in a class activation map of it, evidence for and against
    balance each other before negative values are dropped.

    Args:
        features: (N, D) of the training pictures, of unit length or zero.
        targets: (N,) int64 their classes.
        classes: how many there are.
        k: how many neighbours vote, 1 to N.
    """

    features: Tensor
    targets: Tensor

    def __init__(self, features: Tensor, targets: Tensor, classes: int, k: int) -> None:
        super().__init__()
        self.register_buffer("features", features)
        self.register_buffer("targets", targets)
        self.classes, self.k = classes, k

    def forward(self, features: Tensor) -> Tensor:
        """Features (B, D) to scores (B, classes)."""
        similarities, places = (unit(features) @ self.features.T).topk(self.k, dim=1)
        return votes(similarities, self.targets[places], self.classes)

    def extra_repr(self) -> str:
        """What ``print`` shows."""
        return f"{len(self.features)} pictures, {self.classes} classes, k={self.k}"


def fit_knn(features: np.ndarray, targets: np.ndarray, k: int | None) -> Fitted:
    """Keep the features at unit length; find k by leaving out each picture in turn.

    Args:
        features: (N, D) float64.
        targets: (N,) the class of each row, from 0 up, all there.
        k: how many neighbours vote, 1 to N; None has it chosen.

    Raises:
        UsageError: a k that cannot be meant.
    """
    kept, classes = unit(torch.from_numpy(features)).float(), torch.from_numpy(targets)
    choice = _given(k, len(kept)) or _leave_one_out(kept, classes) or Choice("k", 1, "default")
    zero = int((~kept.any(1)).sum())
    notes = (
        (f"{zero} of {len(kept)} training pictures have features that are all zero, which are similar to nothing",)
        if zero
        else ()
    )
    return Fitted({"features": kept, "targets": classes}, choice.facts(), choice.notes() + notes)


def unit(features: Tensor) -> Tensor:
    """Rows (B, D) of unit length; zero stays zero, and has a finite gradient."""
    # Squares of small or large numbers leave float32. A row's length does not matter here, nor to the gradient.
    peak = features.detach().abs().amax(dim=1, keepdim=True)
    rows = features / torch.where(peak > 0, peak, 1.0)
    length = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows / torch.where(length > 0, length, 1.0)


def votes(similarities: Tensor, targets: Tensor, classes: int) -> Tensor:
    """Scores (B, classes) of the similarities of k neighbours (B, k) and their classes (B, k)."""
    scores = similarities.new_zeros(len(similarities), classes)
    return scores.scatter_add(1, targets, similarities.clamp(min=0)) / similarities.shape[1]


def _given(k: int | None, count: int) -> Choice | None:
    if k is None:
        return None
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or not 1 <= k <= count:
        raise UsageError(
            f"k = {k!r}; there are {count} training pictures, so k is a whole number from 1 to {count}. Leave it out "
            "to have it chosen."
        )
    return Choice("k", int(k), "given")


def _leave_one_out(features: Tensor, targets: Tensor) -> Choice | None:
    """The k of greatest accuracy when each picture is told by all others; None where every class has one picture."""
    counts = targets.bincount()
    told = (counts[targets] > 1).nonzero().flatten()  # nothing tells a picture that is alone in its class
    if not len(told):
        return None
    grid = [k for k in K_GRID if k < len(features)]
    correct = torch.zeros(len(grid), dtype=torch.int64)
    for rows in told.split(_ROWS):
        similarities = features[rows] @ features.T
        similarities[torch.arange(len(rows)), rows] = -torch.inf
        nearest, places = similarities.topk(grid[-1], dim=1)
        for place, k in enumerate(grid):
            scores = votes(nearest[:, :k], targets[places[:, :k]], len(counts))
            correct[place] += (scores.argmax(1) == targets[rows]).sum()
    trials = [Trial(k, int(right) / len(told)) for k, right in zip(grid, correct, strict=True)]
    return Choice.best("k", "leave-one-out", trials)
