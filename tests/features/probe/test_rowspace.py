"""The space that the training rows span: fewer coordinates, the same optimum."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from camapp.features.probe import fit_probe
from camapp.features.probe.rowspace import RowSpace
from tests.features.probe.clouds import clouds


def test_the_optimum_in_the_row_space_is_that_of_all_features() -> None:
    features, labels = clouds(3, 5, 40)
    features = features.astype(np.float64)
    space = RowSpace.of(features)
    rows = space.coordinates(features)
    assert rows.shape == (15, 15)
    inside = LogisticRegression(C=0.5, tol=1e-12, max_iter=10_000).fit(rows, labels)
    standardised = StandardScaler().fit_transform(features)
    outside = LogisticRegression(C=0.5, tol=1e-12, max_iter=10_000).fit(standardised, labels)
    np.testing.assert_allclose(inside.coef_ @ space.basis.T, outside.coef_, atol=1e-6)


@given(st.integers(2, 12), st.integers(1, 30), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=60)
def test_coordinates_keep_lengths_and_angles_of_training_rows(count: int, size: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    features = random.normal(size=(count, size)) * random.choice([0.0, 1e-1, 1.0, 1e2], size)
    standardised = StandardScaler().fit_transform(features)
    rows = RowSpace.of(features).coordinates(features)
    assert rows.shape[1] == min(count, size)
    np.testing.assert_allclose(rows @ rows.T, standardised @ standardised.T, atol=1e-8 * size)


@given(st.integers(2, 12), st.integers(1, 30), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=60)
def test_folded_weights_give_the_scores_of_the_coordinates_for_any_picture(count: int, size: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    features, others = random.normal(3, 2, (2, count, size))
    space = RowSpace.of(features)
    weight, bias = random.normal(size=(4, min(count, size))), random.normal(size=4)
    folded, shift = space.folded(weight, bias)
    wanted = space.coordinates(others) @ weight.T + bias
    scale = 1 + np.abs(folded).sum(1).max() * np.abs(others).max()
    np.testing.assert_allclose(others @ folded.T.astype(np.float64) + shift, wanted, atol=1e-6 * scale)


def test_a_feature_that_is_all_but_dead_in_training_decides_nothing() -> None:
    features, labels = clouds(2, 9, 40)
    dead = np.zeros((18, 1), np.float32)
    dead[0] = 3e-6
    probe = fit_probe(np.hstack([features, dead]), labels, C=1.0)
    alone = fit_probe(features, labels, C=1.0)
    alive = np.hstack([features, np.full((18, 1), 0.5, np.float32)])
    np.testing.assert_allclose(probe.scores(alive), alone.scores(features), rtol=1e-4, atol=1e-4)
