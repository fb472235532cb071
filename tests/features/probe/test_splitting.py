"""Parts of a set of pictures in which every class has its share."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from camapp.errors import UsageError
from camapp.features.probe import split
from camapp.features.probe.splitting import stratified_folds

SIZES = st.lists(st.integers(2, 40), min_size=2, max_size=8)


@given(SIZES, st.floats(0.01, 0.99), st.integers(0, 1000))
@settings(deadline=None)
def test_every_class_has_its_share_on_both_sides(sizes: list[int], share: float, seed: int) -> None:
    labels = [f"class {place}" for place, size in enumerate(sizes) for _ in range(size)]
    train, test = split(labels, share, seed)
    assert sorted([*train, *test]) == list(range(len(labels)))
    assert (np.diff(train) > 0).all()
    assert (np.diff(test) > 0).all()
    tested = Counter(labels[row] for row in test)
    for place, size in enumerate(sizes):
        taken = tested[f"class {place}"]
        assert 1 <= taken <= size - 1
        assert math.floor(size * share) <= max(taken, 1)
        assert taken <= max(math.ceil(size * share), 1)


def test_the_shares_add_up_over_many_small_classes() -> None:
    labels = [f"class {row % 40}" for row in range(400)]  # a quarter of ten is two or three
    train, test = split(labels, 0.25)
    assert (len(train), len(test)) == (300, 100)


def test_the_same_seed_gives_the_same_parts_and_another_seed_others() -> None:
    labels = ["a", "b"] * 30
    np.testing.assert_array_equal(split(labels, seed=3)[1], split(labels, seed=3)[1])
    assert split(labels, seed=3)[1].tolist() != split(labels, seed=4)[1].tolist()


@pytest.mark.parametrize("share", [0, 1, -0.2, 1.5, math.nan, "0.5", None])
def test_a_share_that_leaves_a_side_empty_is_refused(share: float) -> None:
    with pytest.raises(UsageError, match=r"test_share = .*between 0 and 1"):
        split(["a", "b"] * 3, share)


def test_a_class_of_one_picture_is_named() -> None:
    with pytest.raises(UsageError, match='One picture only of "b", "d"'):
        split(["a", "a", "b", "c", "c", "d"])


def test_nothing_to_split_is_refused() -> None:
    with pytest.raises(UsageError, match="There are no labels"):
        split([])
    with pytest.raises(UsageError, match='one class, "a"'):
        split(["a", "a"])


@given(st.lists(st.integers(1, 12), min_size=2, max_size=8), st.integers(2, 7), st.integers(0, 1000))
@settings(deadline=None)
def test_folds_hold_out_every_picture_once_and_train_on_every_class(sizes: list[int], folds: int, seed: int) -> None:
    targets = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    fold = stratified_folds(targets, folds, seed)
    assert (fold[np.isin(targets, np.flatnonzero(np.array(sizes) == 1))] == -1).all()
    held_out = np.bincount(fold[fold >= 0], minlength=folds)
    assert held_out.sum() == sum(size for size in sizes if size > 1)
    assert held_out.max() - held_out.min() <= 1
    for number in range(folds):
        assert set(targets[fold != number]) == set(range(len(sizes)))
    for place, size in enumerate(sizes):
        if size > 1:
            of_class = np.bincount(fold[targets == place], minlength=folds)
            assert of_class.max() - of_class.min() <= 1
