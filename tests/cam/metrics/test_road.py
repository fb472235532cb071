"""ROAD: imputation against systems solved by hand and by others, and the score."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pytorch_grad_cam.metrics.road import NoisyLinearImputer

from camapp.cam.metrics import ROAD
from camapp.cam.metrics.road import impute
from camapp.errors import UsageError
from tests.cam.metrics.scenes import sample


def test_one_pixel_becomes_the_weighted_mean_of_its_neighbours() -> None:
    picture = np.arange(1.0, 10).reshape(1, 3, 3) ** 2
    middle, corner = np.zeros((3, 3), bool), np.zeros((3, 3), bool)
    middle[1, 1], corner[0, 0] = True, True
    # Straight neighbours 4, 16, 36, 64 weigh 1/6, diagonal ones 1, 9, 49, 81 weigh 1/12.
    assert impute(picture, middle)[0, 1, 1] == pytest.approx(120 / 6 + 140 / 12)
    # In a corner 4 and 16 weigh 1/6, 25 weighs 1/12; together 5/12.
    assert impute(picture, corner)[0, 0, 0] == pytest.approx((20 / 6 + 25 / 12) * 12 / 5)


def test_two_removed_neighbours_are_solved_together() -> None:
    # A row a, ?, ?, d: each unknown is the mean of its two neighbours, so they lie on the line from a to d.
    picture = np.array([[[1.0, 9, 9, 7]]])
    removed = np.array([[False, True, True, False]])
    assert impute(picture, removed)[0, 0].tolist() == pytest.approx([1, 3, 5, 7])


def dense(picture: np.ndarray, removed: np.ndarray) -> np.ndarray:
    """Every pixel an unknown: a kept one equals itself, a removed one the weighted mean of its neighbours."""
    height, width = removed.shape
    system, right = np.eye(height * width), picture.reshape(len(picture), -1).T.copy()
    for y, x in zip(*np.nonzero(removed), strict=True):
        right[y * width + x] = 0
        weights = {}
        for dy in (-1, 0, 1):
            for dx in (-1, 0, 1):
                if (dy or dx) and 0 <= y + dy < height and 0 <= x + dx < width:
                    weights[(y + dy) * width + x + dx] = 1 / 12 if dy and dx else 1 / 6
        for pixel, weight in weights.items():
            system[y * width + x, pixel] = -weight / sum(weights.values())
    return np.linalg.solve(system, right).T.reshape(picture.shape)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_imputation_solves_the_naive_dense_system(share: float) -> None:
    generator = np.random.default_rng(1)
    picture, removed = generator.normal(size=(3, 9, 12)), generator.random((9, 12)) < share
    np.testing.assert_allclose(impute(picture, removed), dense(picture, removed), atol=1e-10)


@pytest.mark.parametrize("share", [0.2, 0.8])
def test_imputation_is_grad_cams_without_noise(share: float) -> None:
    generator = np.random.default_rng(2)
    picture, removed = generator.normal(size=(3, 16, 20)), generator.random((16, 20)) < share
    theirs = NoisyLinearImputer(noise=0)(torch.from_numpy(picture).float(), torch.from_numpy(~removed).float())
    np.testing.assert_allclose(impute(picture, removed), theirs.numpy(), atol=1e-5)


def test_nothing_removed_changes_nothing_and_nothing_kept_is_refused() -> None:
    picture = np.ones((1, 2, 2))
    assert np.array_equal(impute(picture, np.zeros((2, 2), bool)), picture)
    with pytest.raises(UsageError, match="nothing left"):
        impute(picture, np.ones((2, 2), bool))


def test_the_value_is_half_the_difference_of_least_and_most_relevant_first() -> None:
    """Scores of pictures imputed by the dense system, removed pixels chosen by a plain sort."""
    generator = np.random.default_rng(4)
    picture, heat = generator.normal(size=(2, 10, 10)), generator.permutation(100) / 99
    order = np.argsort(-heat)
    expected, least_first, most_first = [], [], []
    for count in (20, 70):
        most, least = np.zeros(100, bool), np.zeros(100, bool)
        most[order[:count]], least[order[100 - count :]] = True, True
        most_first.append(dense(picture, most.reshape(10, 10))[0].mean())
        least_first.append(dense(picture, least.reshape(10, 10))[0].mean())
        expected.append((least_first[-1] - most_first[-1]) / 2)
    road = ROAD([20, 70], noise=0)
    given = sample(torch.from_numpy(heat.reshape(1, 10, 10)).float(), torch.from_numpy(picture)[None].float())
    assert road.update(given).tolist() == pytest.approx([np.mean(expected)], abs=1e-6)
    assert road.curve()[0] == [20, 70]
    assert road.curve()[1] == pytest.approx(expected, abs=1e-6)
    assert road.both_curves()[1] == pytest.approx(most_first, abs=1e-6)
    assert road.both_curves()[2] == pytest.approx(least_first, abs=1e-6)


def test_noise_has_its_standard_deviation_lies_on_removed_pixels_only_and_repeats() -> None:
    pictures: list[torch.Tensor] = []

    def score(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        pictures.append(inputs.clone())
        return inputs[:, 0].mean((1, 2))

    given = sample(torch.rand(1, 40, 40), torch.ones(1, 3, 40, 40), score)  # imputed, a constant stays
    first = ROAD([50], noise=0.1).update(given)
    noise = pictures[0][0] - 1
    assert (noise != 0).float().mean() == 0.5
    assert float(noise[noise != 0].std()) == pytest.approx(0.1, rel=0.1)
    assert torch.equal(ROAD([50], noise=0.1).update(given), first)
    assert not torch.equal(ROAD([50], noise=0.1, seed=1).update(given), first)


@pytest.mark.parametrize("percentages", [[], [0], [50, 100]])
def test_percentages_that_remove_nothing_or_everything_are_refused(percentages: list[int]) -> None:
    with pytest.raises(UsageError, match="percentages"):
        ROAD(percentages)
