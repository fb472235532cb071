"""How well predicted classes fit the labels, in numbers: accuracy, precision, recall, F1, log loss."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class ClassMeasures:
    """How well one class was told.

    Args:
        name: of the class.
        precision: of the pictures predicted as it, the share that are; NaN where there are none.
        recall: of the pictures that are of it, the share predicted as it; NaN where there are none.
        f1: the harmonic mean of the two, 2 TP / (2 TP + FP + FN); NaN where there are no pictures of either.
        support: how many pictures are of it.
    """

    name: str
    precision: float
    recall: float
    f1: float
    support: int


def confusion_matrix(targets: np.ndarray, predicted: np.ndarray, classes: int) -> np.ndarray:
    """Counts (classes, classes) int64: a row a class that pictures are of, a column a class predicted."""
    return np.bincount(targets * classes + predicted, minlength=classes**2).reshape(classes, classes)


def class_measures(confusion: np.ndarray, classes: tuple[str, ...]) -> tuple[ClassMeasures, ...]:
    """The measures of each class, from the confusion matrix."""
    right, support, told = confusion.diagonal(), confusion.sum(1), confusion.sum(0)
    return tuple(
        ClassMeasures(name, _share(hits, all_told), _share(hits, count), _share(2 * hits, all_told + count), count)
        for name, hits, all_told, count in zip(classes, right.tolist(), told.tolist(), support.tolist(), strict=True)
    )


def balanced_accuracy(measures: tuple[ClassMeasures, ...]) -> float:
    """The mean recall of the classes that have pictures."""
    recalls = [one.recall for one in measures if one.support]
    return math.fsum(recalls) / len(recalls)


def log_loss(probabilities: np.ndarray, targets: np.ndarray) -> float:
    """The mean of -log of the label's probability, where 0 counts as the least difference from 1, 2.2e-16."""
    given = probabilities[np.arange(len(targets)), targets]
    return float(-np.log(np.clip(given, np.finfo(np.float64).eps, 1)).mean())


def _share(part: int, whole: int) -> float:
    return part / whole if whole else math.nan
