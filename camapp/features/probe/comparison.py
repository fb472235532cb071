"""Which features tell the classes best: one probe for each candidate, on the same pictures."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from camapp.errors import UsageError
from camapp.features.probe.fitting import fit_probe
from camapp.features.probe.markdown import TITLES, percent, table
from camapp.features.probe.reading import Features, feature_matrix, label_names
from camapp.features.probe.report import evaluate_probe


@dataclass(frozen=True)
class Compared:
    """How well one candidate's features tell the classes.

    Args:
        name: of the candidate.
        size: D, numbers a picture.
        accuracy: the share of test pictures told right.
        balanced_accuracy: the mean recall of the classes.
        seconds: to fit the probe, the choice of its setting included.
    """

    name: str
    size: int
    accuracy: float
    balanced_accuracy: float
    seconds: float


@dataclass(frozen=True)
class Comparison:
    """The candidates in the order given.

    Args:
        rows: one a candidate.
        kind: of the probes.
        trained: how many pictures the probes were fitted on.
        tested: how many they were tried on.
    """

    rows: tuple[Compared, ...]
    kind: str
    trained: int
    tested: int

    def _repr_markdown_(self) -> str:
        return self.to_markdown()

    @property
    def best(self) -> Compared:
        """The candidate of greatest accuracy; of those alike the one with the smallest features."""
        return min(self.rows, key=lambda row: (-row.accuracy, row.size))

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return asdict(self)

    def to_markdown(self) -> str:
        """A table, the best first, and what it was measured on."""
        cells = [
            [row.name, row.size, percent(row.accuracy), percent(row.balanced_accuracy), f"{row.seconds:.2f}"]
            for row in sorted(self.rows, key=lambda row: (-row.accuracy, row.size))
        ]
        header = ["features", "size", "accuracy", "balanced accuracy", "seconds to fit"]
        return (
            f"{table(header, cells)}\n"
            f"{TITLES[self.kind]}, fitted on {self.trained} pictures and tried on {self.tested}. One picture "
            f"is {percent(1 / self.tested)} of the accuracy.\n"
        )


def compare(
    candidates: Mapping[str, Features],
    labels: Sequence[str],
    train: Sequence[int] | np.ndarray,
    test: Sequence[int] | np.ndarray,
    *,
    kind: str = "linear",
    folds: int = 5,
    seed: int = 0,
) -> Comparison:
    """Fit a probe on each candidate's features of the same pictures, and try it on others.

    Args:
        candidates: features (N, D) by name, such as of several models or layers; D may differ.
        labels: N names of classes.
        train: rows to fit on, as ``split`` gives them.
        test: rows to try on, none of them in ``train``.
        kind: of the probes, as for ``fit_probe``. Each chooses its own setting, on the training rows only.
        folds: of the cross-validation.
        seed: of the folds.

    Raises:
        UsageError: no candidates, rows that there are not or that are in both sets, and what ``fit_probe`` and
            ``evaluate_probe`` refuse.

    Example:
        >>> train, test = split(labels)
        >>> print(compare({"resnet50": a, "vit_b_16": b}, labels, train, test).to_markdown())
    """
    if not candidates:
        raise UsageError("No candidates to compare. Give features by name: {'resnet50': features, ...}.")
    matrices = {name: feature_matrix(features, f'The features "{name}"') for name, features in candidates.items()}
    for name, matrix in matrices.items():
        label_names(labels, len(matrix), f'labels (candidate "{name}")')
    train, test = _rows(train, len(labels), "train"), _rows(test, len(labels), "test")
    both = np.intersect1d(train, test)
    if len(both):
        raise UsageError(
            f"{len(both)} rows are in train and in test, such as {both[0]}: a probe knows the pictures it was fitted "
            "on. Part them: train, test = split(labels)."
        )
    known, asked = [labels[row] for row in train], [labels[row] for row in test]
    rows = []
    for name, matrix in matrices.items():
        began = time.perf_counter()
        probe = fit_probe(matrix[train], known, kind=kind, folds=folds, seed=seed)
        seconds = time.perf_counter() - began
        report = evaluate_probe(probe, matrix[test], asked)
        rows.append(Compared(name, matrix.shape[1], report.accuracy, report.balanced_accuracy, seconds))
    return Comparison(tuple(rows), kind, len(train), len(test))


def _rows(rows: Sequence[int] | np.ndarray, count: int, what: str) -> np.ndarray:
    array = np.asarray(rows)
    if array.ndim != 1 or not array.size or array.dtype.kind not in "iu":
        raise UsageError(f"{what} holds no rows: give their numbers, 0 to {count - 1}, as split(labels) does.")
    outside = array[(array < 0) | (array >= count)]
    if len(outside):
        raise UsageError(f"{what} holds row {outside[0]}; there are {count} pictures, rows 0 to {count - 1}.")
    return array
