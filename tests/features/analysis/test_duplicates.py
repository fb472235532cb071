"""Near-duplicates: against all pairs, groups by hand, exactness at the threshold, memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from camapp.errors import UsageError
from camapp.features.analysis import duplicates
from camapp.features.analysis.duplicates import near_duplicates


def on_circle(*degrees: float) -> np.ndarray:
    angles = np.deg2rad(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def test_groups_by_hand() -> None:
    """Angles 0, 90, 3, 6, 93, 45: 0-3 and 3-6 are pairs at 4 degrees, 0-6 is not, but they are one group."""
    found = near_duplicates(on_circle(0, 90, 3, 6, 93, 45), threshold=float(np.cos(np.deg2rad(4))))
    assert found.groups == ((0, 2, 3), (1, 4))
    assert found.pairs.tolist() == [[0, 2], [1, 4], [2, 3]]
    np.testing.assert_allclose(found.similarities, np.cos(np.deg2rad(3)), rtol=1e-12)
    assert found.spare.tolist() == [2, 3, 4]


@given(seed=st.integers(0, 1000), count=st.integers(2, 40), side=st.integers(1, 17), threshold=st.floats(0.05, 1.0))
@settings(max_examples=60, deadline=None)
def test_all_pairs_are_found_whatever_the_blocks(seed: int, count: int, side: int, threshold: float) -> None:
    rng = np.random.default_rng(seed)
    some = rng.normal(size=(count, 3))
    unit = some / np.linalg.norm(some, axis=1, keepdims=True)
    cosines = 1 - np.square(unit[:, None] - unit[None]).sum(2) / 2
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(duplicates, "SIDE", side)
        found = near_duplicates(some, threshold)
    wanted = np.argwhere(np.triu(cosines >= threshold, 1))
    np.testing.assert_array_equal(found.pairs, wanted)
    np.testing.assert_allclose(found.similarities, cosines[tuple(wanted.T)], rtol=0, atol=1e-15)
    assert found.groups == connected(wanted, count)


def connected(pairs: np.ndarray, count: int) -> tuple[tuple[int, ...], ...]:
    """Groups by spreading the smallest number until nothing changes."""
    smallest = list(range(count))
    for _ in range(count):
        for i, j in pairs:
            smallest[i] = smallest[j] = min(smallest[i], smallest[j])
    groups = [tuple(i for i in range(count) if smallest[i] == first) for first in range(count)]
    return tuple(group for group in groups if len(group) > 1)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_same_up_to_scale_is_found_at_a_threshold_of_one(dtype: type) -> None:
    some = np.random.default_rng(0).normal(size=(50, 700)).astype(dtype)
    some[31] = some[7] * 2
    found = near_duplicates(some, threshold=1)
    assert found.groups == ((7, 31),)
    assert found.similarities.tolist() == [1.0]


def test_the_threshold_is_judged_finer_than_float32() -> None:
    """Two pairs whose cosines differ by 1e-9, which float32 does not tell apart."""
    first, second = np.arccos(0.95 + 1e-9), np.arccos(0.95 - 1e-9)
    some = np.zeros((4, 4))
    some[0, 0] = some[2, 2] = 1
    some[1, :2] = np.cos(first), np.sin(first)
    some[3, 2:] = np.cos(second), np.sin(second)
    assert near_duplicates(some, 0.95).groups == ((0, 1),)


def test_different_pictures_have_no_groups() -> None:
    found = near_duplicates(on_circle(0, 90))
    assert found.groups == ()
    assert found.pairs.shape == (0, 2)
    assert found.spare.tolist() == []


def test_memory_stays_far_below_all_pairs() -> None:
    """6,000 rows are 144 MB of similarities in float32."""
    some = np.random.default_rng(0).normal(size=(6000, 16)).astype(np.float32)
    some[4000] = some[17]
    tracemalloc.start()
    found = near_duplicates(some, 0.999)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (17, 4000) in found.groups
    assert peak < 60e6


@pytest.mark.parametrize(
    ("some", "arguments", "message"),
    [
        (on_circle(0, 1), {"threshold": 0}, "threshold = 0 is no cosine"),
        (on_circle(0, 1), {"threshold": 1.01}, "threshold = 1.01"),
        (on_circle(0, 1), {"threshold": float("nan")}, "threshold = nan"),
        (on_circle(0), {}, r"1 row\(s\); at least 2"),
        (np.ones((40, 3)), {"most_pairs": 700}, "More than 700 of the pairs of 40 rows have a cosine of 0.95"),
        (np.array([[0, 0], [1, 1]]), {}, "all zero"),
        (np.array([[0, np.nan], [1, 1]]), {}, "NaN"),
    ],
)
def test_what_cannot_be_judged_is_refused(some: np.ndarray, arguments: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        near_duplicates(some, **arguments)  # type: ignore[arg-type]


def test_as_many_pairs_as_are_allowed_are_returned() -> None:
    found = near_duplicates(np.ones((40, 3)), most_pairs=780)
    assert len(found.pairs) == 780
    assert found.groups == (tuple(range(40)),)
