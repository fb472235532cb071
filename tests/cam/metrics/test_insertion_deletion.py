"""Insertion, Deletion and the order of pixels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import gaussian_filter

from camapp.cam.metrics import Deletion, Insertion
from camapp.cam.metrics.variants import pixel_ranks
from camapp.errors import UsageError
from tests.cam.metrics.scenes import Tiny, sample


def test_the_areas_of_a_curve_that_is_known() -> None:
    """A picture of 1, 0.5, 0.25, 0.25 with the map in the same order, and a model that takes the mean."""
    inputs = torch.tensor([1.0, 0.5, 0.25, 0.25]).view(1, 1, 2, 2)
    maps = torch.tensor([[[1.0, 0.6], [0.3, 0.1]]])
    deletion = Deletion(pixels_per_step=1)
    # 2, 1, 0.5, 0.25, 0 over four: sum 0.9375, minus half of 0.5 and 0, over 4 steps.
    assert deletion.update(sample(maps, inputs)).tolist() == pytest.approx([(0.9375 - 0.25) / 4])
    assert deletion.curve() == ([0, 0.25, 0.5, 0.75, 1], [0.5, 0.25, 0.125, 0.0625, 0])
    # Two pixels a step, and a row by default: 0.5, 0.125, 0.
    for metric in (Deletion(pixels_per_step=2), Deletion()):
        assert metric.update(sample(maps, inputs)).tolist() == pytest.approx([0.1875])
    # A blur so narrow that it is none starts from the picture itself: the curve is flat.
    flat = Insertion(1, kernel=1).update(sample(maps, inputs))
    assert flat.tolist() == pytest.approx([0.5])
    # A fill of 1 where the pixels are 0.5 more on average: 0.5, 0.5, 0.625, 0.8125, 1.
    filled = Deletion(1, fill=1.0).update(sample(maps, inputs))
    assert filled.tolist() == pytest.approx([(0.25 + 0.5 + 0.625 + 0.8125 + 0.5) / 4])


def test_a_last_step_that_is_shorter_weighs_less() -> None:
    inputs = torch.tensor([1.0, 0, 0, 0]).view(1, 1, 1, 4)
    maps = torch.tensor([[[0.1, 1.0, 0.9, 0.8]]])
    # Three pixels, then one: 0.25 at 0 and at 3/4, 0 at 1.
    assert Deletion(3).update(sample(maps, inputs)).tolist() == pytest.approx([0.25 * 0.75 + 0.125 * 0.25])


def one_by_one(picture: np.ndarray, start: np.ndarray, end: np.ndarray, order: list[int], step: int) -> float:
    """RISE's loop: change some pixels, score, sum up."""
    now, scores = start.copy(), []
    for first in range(0, len(order) + 1, step):
        scores.append(now[0].mean())
        for pixel in order[first : first + step]:
            y, x = divmod(pixel, picture.shape[2])
            now[:, y, x] = end[:, y, x]
    scores = np.array(scores)
    return float((scores.sum() - scores[0] / 2 - scores[-1] / 2) / (len(scores) - 1))


def test_both_follow_the_authors_loop_with_their_blur() -> None:
    generator = np.random.default_rng(3)
    picture, heat = generator.normal(size=(3, 16, 16)), generator.permutation(256).reshape(16, 16) / 255
    impulse = np.zeros((11, 11))
    impulse[5, 5] = 1
    kernel = gaussian_filter(impulse, 5)  # reflects at the edges of the 11 x 11
    padded = np.pad(picture, ((0, 0), (5, 5), (5, 5)))
    blurred = np.zeros_like(picture)
    for y in range(16):
        for x in range(16):
            blurred[:, y, x] = (padded[:, y : y + 11, x : x + 11] * kernel).sum((1, 2))
    order = np.argsort(-heat.ravel()).tolist()
    given = sample(torch.from_numpy(heat)[None].float(), torch.from_numpy(picture)[None].float())
    expected = one_by_one(picture, blurred, picture, order, 16)
    assert Insertion().update(given).tolist() == pytest.approx([expected], abs=1e-6)
    expected = one_by_one(picture, picture, np.zeros_like(picture), order, 16)
    assert Deletion().update(given).tolist() == pytest.approx([expected], abs=1e-6)


def test_the_curve_is_the_mean_over_all_pictures_and_its_area_the_value() -> None:
    metric = Insertion()
    for _ in range(2):
        metric.update(sample(torch.rand(2, 12, 12), torch.randn(2, 1, 12, 12)))
    x, y = metric.curve()
    assert np.trapezoid(y, x) == pytest.approx(metric.value(), abs=1e-6)
    with pytest.raises(UsageError, match="12 x 13"):
        metric.update(sample(torch.rand(1, 13, 12)))


def test_a_map_without_information_is_judged_alike_wherever_the_object_lies() -> None:
    """In the order of memory a constant map would seem to know that objects lie at the top."""
    top, bottom = torch.zeros(1, 1, 32, 32), torch.zeros(1, 1, 32, 32)
    top[..., :8, :], bottom[..., 24:, :] = 1, 1
    for flat in (torch.zeros(1, 32, 32), torch.ones(1, 32, 32)):
        above, below = (float(Deletion().update(sample(flat, picture))) for picture in (top, bottom))
        assert above == pytest.approx(0.125, abs=0.01)  # the chance level: half of 0.25
        assert below == pytest.approx(0.125, abs=0.01)


@settings(max_examples=30, deadline=None)
@given(levels=st.integers(1, 6), seed=st.integers(0, 99))
def test_ranks_are_a_permutation_that_never_puts_less_before_more(levels: int, seed: int) -> None:
    heat = torch.randint(levels, (2, 5, 7), generator=torch.Generator().manual_seed(seed)) / 6
    ranks = pixel_ranks(heat, seed)
    for one, places in zip(heat, ranks, strict=True):
        assert sorted(places.flatten().tolist()) == list(range(35))
        assert (one.flatten()[places.flatten().argsort()].diff() <= 0).all()
    assert torch.equal(pixel_ranks(heat[1:], seed)[0], ranks[1])


def test_a_score_that_returns_a_view_of_its_input_does_no_harm() -> None:
    """The memory of the pictures is used again for the next chunk."""
    given = sample(torch.rand(1, 6, 6), torch.rand(1, 1, 6, 6), lambda inputs, targets: inputs[:, 0, 0, 0])
    scores = [Deletion(1, batch_size=size).update(given) for size in (1, 100)]
    assert torch.equal(*scores)


def test_a_real_model_is_scored_at_the_class_of_each_picture() -> None:
    from camapp.cam.metrics import class_probability

    model, inputs = Tiny().eval(), torch.randn(2, 3, 8, 8)
    targets = torch.tensor([1, 3])
    metric = Deletion(16)
    given = sample(torch.rand(2, 8, 8), inputs, class_probability(model), targets=targets)
    metric.update(given)
    exact = torch.stack([inputs, torch.zeros_like(inputs)])
    first, last = (float(model(x).softmax(1)[[0, 1], targets].mean().detach()) for x in exact)
    assert metric.curve()[1][0] == pytest.approx(first, abs=1e-6)
    assert metric.curve()[1][-1] == pytest.approx(last, abs=1e-6)


def test_options_that_cannot_be_meant_are_refused() -> None:
    for make in (lambda: Insertion(kernel=10), lambda: Deletion(0), lambda: Deletion(batch_size=0)):
        with pytest.raises(UsageError):
            make()
