"""Average Drop, Increase, Coherency, Complexity, ADCC: formulas worked out by hand."""

from __future__ import annotations

import pytest
import torch

from camapp.cam.metrics import ADCC, AverageDrop, Coherency, Complexity, Increase
from tests.cam.metrics.scenes import sample


def halves(left: float, right: float, rows: int = 2, columns: int = 4) -> torch.Tensor:
    return torch.tensor([left] * (columns // 2) + [right] * (columns // 2)).expand(rows, columns)


def test_the_drop_is_divided_by_the_score_and_never_negative() -> None:
    # f = mean. Left half 0.8, right half 0.4: f(x) = 0.6. Showing the left half only: 0.4, a drop of a third.
    # A picture of -0.5 (left) and 0.9: f = 0.2; its right half alone scores 0.45: no drop, an increase.
    inputs = torch.stack([halves(0.8, 0.4), halves(-0.5, 0.9)])[:, None]
    maps = torch.stack([halves(1, 0), halves(0, 1)])
    drop, increase = AverageDrop(), Increase()
    torch.testing.assert_close(drop.update(sample(maps, inputs)), torch.tensor([100 / 3, 0.0]))
    assert increase.update(sample(maps, inputs)).tolist() == [0.0, 100.0]
    assert drop.value() == pytest.approx(50 / 3)
    assert increase.value() == 50.0


def test_maps_fade_smoothly_to_the_fill() -> None:
    # E = 0.5 * 0.8 + 0.5 * (-0.4) = 0.2 everywhere: a drop of 0.6 / 0.8.
    given = sample(torch.full((1, 2, 4), 0.5), torch.full((1, 1, 2, 4), 0.8))
    assert AverageDrop(fill=-0.4).update(given).tolist() == pytest.approx([75.0])
    assert AverageDrop().update(given).tolist() == pytest.approx([50.0])


def test_an_equal_score_is_no_increase_and_a_score_of_zero_no_drop() -> None:
    given = sample(torch.ones(1, 2, 4), torch.zeros(1, 1, 2, 4))
    assert Increase().update(given).tolist() == [0.0]
    assert AverageDrop().update(given).tolist() == [0.0]


def test_complexity_is_the_mean_of_the_map() -> None:
    assert Complexity().update(sample(halves(1, 0.5)[None])).tolist() == [0.75]


def test_coherency_is_half_of_one_plus_the_correlation() -> None:
    maps = torch.tensor([[[0.0, 0.25, 0.5, 1.0]]]).expand(4, 1, 4)
    again = torch.tensor([[[0.0, 0.25, 0.5, 1.0]], [[1.0, 0.75, 0.5, 0.0]], [[0.0, 1.0, 0.0, 0.0]], [[0.5] * 4]])
    values = Coherency().update(sample(maps, explain=lambda inputs, targets: again))
    # Third: deviations (-7, -3, 1, 9)/16 and (-1, 3, -1, -1)/4: r = -12 / sqrt(140 * 12).
    third = (1 - 12 / (140 * 12) ** 0.5) / 2
    torch.testing.assert_close(values, torch.tensor([1.0, 0.0, third, 0.5]))  # a constant map correlates with nothing


def test_coherency_explains_the_masked_picture_and_the_same_class() -> None:
    seen = {}

    def explain(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        seen["inputs"], seen["targets"] = inputs, targets
        return torch.rand(len(inputs), 2, 4)

    maps, inputs = torch.rand(2, 2, 4), torch.randn(2, 3, 2, 4)
    Coherency(fill=0.5).update(sample(maps, inputs, explain=explain, targets=torch.tensor([7, 2])))
    torch.testing.assert_close(seen["inputs"], maps[:, None] * inputs + (1 - maps[:, None]) * 0.5)
    assert seen["targets"].tolist() == [7, 2]


def test_adcc_is_the_harmonic_mean_of_each_picture() -> None:
    # Coherency 1, complexity 0.25, and of 0.6 the shown quarter keeps 0.2: a drop of 2 / 3.
    inputs = torch.tensor([[0.8, 0.4, 0.6, 0.6]]).view(1, 1, 1, 4)
    maps = torch.tensor([[[1.0, 0, 0, 0]]])
    given = sample(maps, inputs, explain=lambda changed, targets: maps)
    assert ADCC().update(given).tolist() == pytest.approx([3 / (1 + 1 / 0.75 + 3)])
    # A map that is 1 everywhere has complexity 1: the harmonic mean is 0, not a division by zero.
    flat = sample(torch.ones(1, 1, 4), inputs, explain=lambda changed, targets: torch.ones(1, 1, 4))
    assert ADCC().update(flat).tolist() == [0.0]
