"""How alike maps are, against scipy and formulas written out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from camapp.cam.metrics.similarity import (
    gradient_histograms,
    hog_pearson,
    overlap_matrix,
    pearson,
    spearman,
    spearman_matrix,
    ssim,
)


@settings(max_examples=50, deadline=None)
@given(levels=st.integers(2, 40), seed=st.integers(0, 999))
def test_correlations_are_scipys_ties_included(levels: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    one, other = generator.integers(0, levels, (2, 1, 5, 6)).astype(np.float64)
    pair = torch.from_numpy(one), torch.from_numpy(other)
    if one.min() == one.max() or other.min() == other.max():
        assert spearman(*pair).isnan().all()
        return
    assert float(spearman(*pair)) == pytest.approx(stats.spearmanr(one.ravel(), other.ravel()).statistic, abs=1e-12)
    assert float(pearson(*pair)) == pytest.approx(stats.pearsonr(one.ravel(), other.ravel()).statistic, abs=1e-12)


def test_a_constant_map_correlates_with_nothing() -> None:
    flat, other = torch.full((1, 5, 5), 0.1), torch.rand(1, 5, 5)
    for measure in (pearson, spearman):
        assert measure(flat, other).isnan().all()
        assert measure(other, flat).isnan().all()


def naive_ssim(one: np.ndarray, other: np.ndarray) -> float:
    """Wang et al.'s equation 13 in every window of 11 x 11."""
    places = np.arange(11) - 5
    window = np.exp(-(places[:, None] ** 2 + places**2) / (2 * 1.5**2))
    window /= window.sum()
    values = []
    for y in range(one.shape[0] - 10):
        for x in range(one.shape[1] - 10):
            a, b = one[y : y + 11, x : x + 11], other[y : y + 11, x : x + 11]
            mean_a, mean_b = (window * a).sum(), (window * b).sum()
            var_a, var_b = (window * (a - mean_a) ** 2).sum(), (window * (b - mean_b) ** 2).sum()
            shared = (window * (a - mean_a) * (b - mean_b)).sum()
            values.append(
                (2 * mean_a * mean_b + 1e-4)
                * (2 * shared + 9e-4)
                / ((mean_a**2 + mean_b**2 + 1e-4) * (var_a + var_b + 9e-4))
            )
    return float(np.mean(values))


def test_ssim_is_the_formula_in_every_window() -> None:
    one, other = np.random.default_rng(0).random((2, 14, 17))
    pair = torch.from_numpy(one)[None], torch.from_numpy(other)[None]
    assert float(ssim(*pair)) == pytest.approx(naive_ssim(one, other), abs=1e-10)
    assert float(ssim(pair[0], pair[0])) == pytest.approx(1)
    assert float(ssim(pair[0][:, :4, :4], pair[0][:, :4, :4])) == pytest.approx(1)  # smaller than the window


def test_gradient_histograms_tell_directions_but_not_signs() -> None:
    ramp = torch.arange(48.0).expand(1, 48, 48) / 48
    across, down = gradient_histograms(ramp), gradient_histograms(ramp.mT)
    # One block of 3 x 3 cells; all length in the bin of 0 degrees, or of 90 (the fifth of nine; 4.5 rounds to even, 4).
    expected = torch.zeros(9, 3, 3, dtype=torch.float64)
    expected[0] = 1 / 3
    torch.testing.assert_close(across.view(9, 3, 3), expected)
    assert torch.equal(down.view(9, 3, 3).sum((1, 2)).nonzero().flatten(), torch.tensor([4]))
    torch.testing.assert_close(gradient_histograms(1 - ramp), across)
    assert float(hog_pearson(ramp, 1 - ramp)) == pytest.approx(1)
    assert float(hog_pearson(ramp, ramp.mT)) < 0
    assert hog_pearson(ramp, torch.zeros(1, 48, 48)).isnan().all()


def test_a_matrix_of_rank_correlations_is_that_of_each_pair() -> None:
    maps = torch.randint(0, 5, (4, 6, 7)).float()
    matrix = spearman_matrix(maps)
    for row in range(4):
        for column in range(4):
            assert float(matrix[row, column]) == pytest.approx(
                float(spearman(maps[row : row + 1], maps[column : column + 1]))
            )


def test_the_overlap_of_the_hottest_fifth_is_counted_by_hand() -> None:
    ranks = torch.arange(10.0)  # the two hottest of ten: 9 and 8
    maps = torch.stack([ranks, ranks.roll(1), ranks.roll(5)]).view(3, 2, 5)
    expected = torch.tensor([[1, 1 / 3, 0], [1 / 3, 1, 0], [0, 0, 1]], dtype=torch.float64)
    torch.testing.assert_close(overlap_matrix(maps, 0.2), expected)


def test_zeros_are_never_hot_and_equal_values_are_hot_together() -> None:
    point = torch.zeros(2, 5)
    point[0, 0] = 1
    ties = torch.zeros(2, 5)
    ties[0, :4] = 1  # the two hottest of ten are four
    matrix = overlap_matrix(torch.stack([point, ties]), 0.2)
    assert float(matrix[0, 1]) == pytest.approx(1 / 4)


def test_a_blank_or_constant_map_overlaps_with_nothing() -> None:
    other = torch.rand(5, 5)
    for flat in (torch.zeros(5, 5), torch.full((5, 5), 0.7)):
        matrix = overlap_matrix(torch.stack([flat, other]))
        assert matrix[0].isnan().all()
        assert float(matrix[1, 1]) == 1
