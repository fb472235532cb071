"""Parts of a set of pictures in which every class has its share: a test set, and folds for cross-validation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real

import numpy as np

from camapp.errors import UsageError
from camapp.features.probe.reading import check_seed, class_names, indices, label_names, quoted


def split(labels: Sequence[str], test_share: float = 0.25, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Part pictures into a training and a test set, drawn at random within each class.

    Every class has at least one picture on either side, and else its share, rounded up or down such that the shares of
    all classes together add up as well as they can.

    Args:
        labels: the class of each picture.
        test_share: of the pictures that are kept for testing, between 0 and 1.
        seed: of the draw; the same seed gives the same parts.

    Returns:
        The rows of the training set and those of the test set, (N,) int64 each, in ascending order.

    Raises:
        UsageError: a share that leaves a side empty, one class only, or a class of one picture.
    """
    if not isinstance(test_share, Real) or not 0 < test_share < 1:
        raise UsageError(f"test_share = {test_share!r}; it is a share of the pictures between 0 and 1, such as 0.25.")
    names = label_names(labels)
    classes = class_names(names)
    targets = indices(names, classes)
    counts = np.bincount(targets)
    if counts.min() < 2:
        single = [classes[place] for place in np.flatnonzero(counts == 1).tolist()]
        raise UsageError(
            f"One picture only of {quoted(single)}: a class needs one for training and one for testing. Add pictures, "
            "or leave the class out."
        )
    order = np.random.default_rng(check_seed(seed))
    test: list[int] = []
    owed = 0.0
    for place, count in enumerate(counts):
        owed += count * test_share
        least, most = math.floor(count * test_share), math.ceil(count * test_share)
        taken = min(max(round(owed), least, 1), most, count - 1)
        owed -= taken
        test.extend(order.permutation(np.flatnonzero(targets == place))[:taken])
    chosen = np.zeros(len(names), dtype=bool)
    chosen[test] = True
    return np.flatnonzero(~chosen), np.flatnonzero(chosen)


def stratified_folds(targets: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """Deal the pictures of each class in turn to folds, in an order drawn at random.

    A class of one picture stays out: in every round it is in the training set, which so holds every class.

    Args:
        targets: (N,) the class of each picture, from 0 up.
        folds: how many.
        seed: of the draw.

    Returns:
        (N,) the fold in which a picture is held out, from 0 up; -1 for never.
    """
    order = np.random.default_rng(seed)
    fold = np.full(len(targets), -1)
    dealt = 0
    for place, count in enumerate(np.bincount(targets)):
        if count < 2:
            continue
        fold[order.permutation(np.flatnonzero(targets == place))] = (dealt + np.arange(count)) % folds
        dealt += count
    return fold
