"""overview: the same answers as its parts, and a reason for each that cannot be given."""

from __future__ import annotations

import numpy as np
import pytest

from camapp.errors import UsageError
from camapp.features.analysis import near_duplicates, nearest, pca
from camapp.features.analysis.overview import overview


def test_it_gives_what_its_parts_give() -> None:
    features = np.random.default_rng(0).normal(size=(20, 6)).astype(np.float32)
    features[3] = features[7]
    seen = overview(features, neighbours=4)
    assert seen.projection is not None
    assert seen.neighbours is not None
    assert seen.duplicates is not None
    np.testing.assert_array_equal(seen.projection.coordinates, pca(features).coordinates)
    np.testing.assert_array_equal(seen.neighbours.indices, nearest(features, k=4).indices)
    assert seen.duplicates.groups == near_duplicates(features).groups == ((3, 7),)
    assert not seen.reasons


def test_norms_by_hand() -> None:
    seen = overview(np.array([[3.0, 4.0], [0.0, 1.0], [0.0, 3.0]]))
    assert (seen.rows, seen.values, seen.mean_norm) == (3, 2, 3.0)
    assert seen.norm_deviation == pytest.approx(np.sqrt(8 / 3))


@pytest.mark.parametrize(
    ("features", "missing", "said"),
    [
        (np.ones((1, 3)), {"projection", "neighbours", "duplicates"}, "only one picture"),
        (np.eye(2, 3), {"projection"}, "three pictures"),
        (np.arange(1.0, 5.0)[:, None], {"projection"}, "two values"),
        (np.ones((4, 3)), {"projection"}, "the same"),
        (np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), {"neighbours", "duplicates"}, "all zero"),
    ],
)
def test_what_cannot_be_told_has_a_reason(features: np.ndarray, missing: set[str], said: str) -> None:
    seen = overview(features)
    assert set(seen.reasons) == missing == {name for name in missing if getattr(seen, name) is None}
    assert any(said in reason for reason in seen.reasons.values())


def test_more_neighbours_than_there_are_others_are_all_of_them() -> None:
    seen = overview(np.eye(3), neighbours=8)
    assert seen.neighbours is not None
    assert seen.neighbours.indices.tolist() == [[1, 2], [0, 2], [0, 1]]


def test_broken_features_are_an_error() -> None:
    with pytest.raises(UsageError, match="NaN or infinity"):
        overview(np.array([[np.nan, 1.0], [1.0, 1.0]]))
