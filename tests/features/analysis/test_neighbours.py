"""Nearest neighbours: against all pairs in float64 and scikit-learn, ties, blocks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import NearestNeighbors

from camapp.errors import UsageError
from camapp.features.analysis import neighbours, rows
from camapp.features.analysis.neighbours import nearest


def features(rows: int, size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, size)).astype(np.float32)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("within", [True, False])
def test_they_are_those_that_scikit_learn_finds(metric: str, within: bool) -> None:
    some, asked = features(60, 9), features(13, 9, 1)
    oracle = NearestNeighbors(n_neighbors=4, metric=metric, algorithm="brute").fit(some.astype(np.float64))
    distances, indices = oracle.kneighbors(None if within else asked.astype(np.float64))
    found = nearest(some, None if within else asked, 4, metric=metric)
    np.testing.assert_array_equal(found.indices, indices)
    wanted = 1 - distances if metric == "cosine" else -distances
    np.testing.assert_allclose(found.similarities, wanted, atol=1e-6)


def test_inner_products_by_hand() -> None:
    found = nearest([[1, 0], [0, 3], [2, 2]], [[1.0, 2.0]], 3, metric="dot")
    assert found.indices.tolist() == [[1, 2, 0]]
    assert found.similarities.tolist() == [[6, 6, 1]]


def test_one_row_may_be_asked_for_as_a_vector() -> None:
    some = features(8, 3)
    for query in (some[5], torch.tensor(some[5])):
        found = nearest(torch.tensor(some), query, 1)
        assert found.indices.tolist() == [[5]]
        assert found.similarities.tolist() == [[1.0]]


@given(
    seed=st.integers(0, 1000),
    count=st.integers(2, 25),
    values=st.integers(1, 40),
    k=st.integers(1, 24),
    metric=st.sampled_from(["cosine", "euclidean", "dot"]),
    within=st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_equals_come_in_their_order_whatever_the_blocks(
    seed: int, count: int, values: int, k: int, metric: str, within: bool
) -> None:
    """Few different rows, hence many ties; blocks of a few rows."""
    rng = np.random.default_rng(seed)
    some = rng.normal(size=(3, 4))[rng.integers(0, 3, count)]
    asked = some if within else some[:2]
    k = min(k, count - within)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(neighbours, "BLOCK_VALUES", values)
        patched.setattr(rows.blocks, "__defaults__", (values,))
        found = nearest(some, None if within else asked, k, metric=metric)
    for number, row in enumerate(asked):
        if metric == "euclidean":
            near = -np.linalg.norm(some - row, axis=1)
        else:
            near = some @ row
            near = near / np.linalg.norm(some, axis=1) / np.linalg.norm(row) if metric == "cosine" else near
        near = np.round(near, 9)
        order = [i for i in np.argsort(-near, kind="stable") if not (within and i == number)]
        assert found.indices[number].tolist() == order[:k]
        np.testing.assert_allclose(found.similarities[number], near[order[:k]], atol=1e-6)


def test_within_the_set_a_row_is_not_its_own_neighbour_but_its_equal_is() -> None:
    some = features(5, 3)[[0, 1, 2, 1, 4]]
    found = nearest(some, k=1)
    assert found.indices[1].tolist() == [3]
    assert found.indices[3].tolist() == [1]
    assert (found.indices[:, 0] != np.arange(5)).all()


def test_half_precision_is_searched_as_it_is() -> None:
    some = features(30, 64).astype(np.float16)
    wanted = nearest(some.astype(np.float64), k=5)
    found = nearest(some, k=5)
    np.testing.assert_array_equal(found.indices, wanted.indices)
    np.testing.assert_array_equal(found.similarities, wanted.similarities)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"metric": "cosin"}, 'No metric "cosin". Did you mean cosine'),
        ({"k": 0}, "k = 0; of 6 rows each has 1 to 5 others"),
        ({"k": 6}, "k = 6"),
        ({"k": 2.0}, "k = 2.0"),
        ({"query": features(2, 4)}, "query has 4 values a row and features have 3"),
        ({"query": np.zeros((1, 3))}, r"1 of the 1 rows of query are all zero \(rows 0\)"),
        ({"query": np.full(3, np.nan)}, "1 of the 1 rows of query hold NaN"),
    ],
)
def test_what_cannot_be_searched_is_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        nearest(features(6, 3), **arguments)  # type: ignore[arg-type]


def test_a_row_of_zeros_has_no_cosine_but_a_distance() -> None:
    some = features(4, 3)
    some[2] = 0
    with pytest.raises(UsageError, match=r"1 of the 4 rows of features are all zero \(rows 2\)"):
        nearest(some, k=1)
    assert nearest(some, np.zeros(3), 1, metric="euclidean").indices.tolist() == [[2]]
