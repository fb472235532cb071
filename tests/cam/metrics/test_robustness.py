"""Infidelity and Max-Sensitivity against captum on the same perturbations."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from captum.metrics import infidelity, sensitivity_max

from camapp.cam.metrics import Infidelity, MaxSensitivity, class_probability
from camapp.cam.metrics.robustness import remove_square
from tests.cam.metrics.scenes import Tiny, input_gradient_map, sample

ROWS, SAMPLES = 3, 6


def scene() -> tuple[Tiny, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """A model, pictures, classes, their maps, and perturbations of each picture (rows, samples, C, H, W)."""
    model, inputs, targets = Tiny().eval(), torch.randn(ROWS, 3, 8, 9), torch.tensor([0, 3, 1])
    with torch.no_grad():
        model.head.weight *= 8  # so that the scores differ
    maps = input_gradient_map(model)(inputs, targets)
    return model, inputs, targets, maps, torch.randn(ROWS, SAMPLES, 3, 8, 9) * 0.3


@pytest.mark.parametrize("normalize", [False, True])
def test_infidelity_is_captums(normalize: bool) -> None:
    model, inputs, targets, maps, changes = scene()
    queue = iter(changes.flatten(0, 1))

    def for_captum(pictures: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return changes.flatten(0, 1).double(), pictures - changes.flatten(0, 1)

    theirs = infidelity(
        lambda pictures: model(pictures).softmax(1),
        for_captum,
        inputs,
        maps[:, None].expand(-1, 3, -1, -1).double(),
        target=targets,
        n_perturb_samples=SAMPLES,
        normalize=normalize,
    )
    ours = Infidelity(lambda picture, generator: next(queue), samples=SAMPLES, normalize=normalize)
    values = ours.update(sample(maps, inputs, class_probability(model), targets=targets))
    torch.testing.assert_close(values, theirs.float(), rtol=1e-4, atol=1e-7)


def test_infidelity_of_a_linear_model_and_its_exact_map_is_zero() -> None:
    """f(x) = sum of L * x changes by exactly the sum of L * I."""
    maps = torch.rand(1, 8, 8)
    given = sample(maps.expand(2, 8, 8), torch.randn(2, 3, 8, 8), lambda x, targets: (x * maps).sum((1, 2, 3)))
    assert Infidelity(normalize=False).update(given).tolist() == pytest.approx([0, 0], abs=1e-8)
    # At another scale only the scaled one is faithful.
    half = given.with_maps(given.maps / 2)
    assert Infidelity().update(half).tolist() == pytest.approx([0, 0], abs=1e-8)
    assert (Infidelity(normalize=False).update(half) > 1e-3).all()
    # A blank map predicts no change at all.
    blank = Infidelity().update(given.with_maps(torch.zeros(2, 8, 8)))
    assert (blank > 0).all()


def test_max_sensitivity_is_captums() -> None:
    model, inputs, targets, maps, changes = scene()
    explain = input_gradient_map(model)
    counts = [0] * ROWS

    def for_captum(pictures: torch.Tensor) -> torch.Tensor:
        return pictures + changes.flatten(0, 1)

    def for_us(picture: torch.Tensor, generator: np.random.Generator) -> torch.Tensor:
        row = next(row for row in range(ROWS) if torch.equal(picture, inputs[row]))
        counts[row] += 1
        return changes[row, counts[row] - 1]

    def captums_explain(pictures: tuple[torch.Tensor, ...] | torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor]:
        return (explain(pictures[0] if isinstance(pictures, tuple) else pictures, target),)

    theirs = sensitivity_max(captums_explain, inputs, for_captum, n_perturb_samples=SAMPLES, target=targets)
    given = sample(maps, inputs, class_probability(model), targets=targets, explain=explain)
    ours = MaxSensitivity(for_us, samples=SAMPLES).update(given)
    torch.testing.assert_close(ours, theirs.float(), rtol=1e-5, atol=1e-6)
    assert counts == [SAMPLES] * ROWS


def test_max_sensitivity_perturbs_within_the_radius_and_of_a_steady_map_is_zero() -> None:
    seen: list[torch.Tensor] = []

    def steady(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        seen.append(inputs)
        return maps

    maps, inputs = torch.rand(2, 8, 8), torch.randn(2, 3, 8, 8)
    assert MaxSensitivity(samples=4).update(sample(maps, inputs, explain=steady)).tolist() == [0, 0]
    changes = torch.stack(seen) - inputs
    assert 0.0195 < float(changes.abs().max()) <= 0.02 + 1e-6
    assert len({float(change[0, 0, 0, 0]) for change in changes}) == 4  # each another one


def test_the_default_perturbation_of_infidelity_removes_one_square() -> None:
    picture = torch.rand(3, 16, 24) + 1
    corners = set()
    for number in range(200):
        change = remove_square(picture, np.random.default_rng(number))
        gone = (picture - change == 0).all(0)
        rows, columns = torch.nonzero(gone, as_tuple=True)
        assert int(gone.sum()) == 16  # a quarter of 16, squared
        assert (int(rows.max() - rows.min()), int(columns.max() - columns.min())) == (3, 3)
        assert torch.equal(change[:, ~gone], torch.zeros(3, 16 * 24 - 16))
        corners.add((int(rows.min()), int(columns.min())))
    assert {y for y, _ in corners} == set(range(13))
    assert {x for _, x in corners} >= {0, 20}
