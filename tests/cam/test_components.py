"""The first principal component: against numpy's decomposition in float64, its sign, its derivative, its speed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from camapp.cam.components import first_component, first_eigenvector


def decomposed(channels: torch.Tensor, centre: bool) -> np.ndarray:
    """The first component (places,) of one picture's channels (C, *grid), by the full decomposition in float64."""
    places = channels.double().flatten(1).T.numpy()
    places = places - places.mean(0) if centre else places
    return places @ np.linalg.svd(places)[2][0]


@pytest.mark.parametrize("centre", [True, False])
@pytest.mark.parametrize("shape", [(64, 3, 4), (5, 6, 7), (12, 3, 4), (1, 4, 4), (8, 1, 1), (6, 20), (4, 2, 3, 4)])
def test_it_is_the_projection_on_the_first_singular_vector(shape: tuple[int, ...], centre: bool) -> None:
    batch = torch.randn(3, *shape).relu() + 0.1
    found = first_component(batch, centre=centre)
    assert found.shape == (3, *shape[1:])
    for channels, component in zip(batch, found, strict=True):
        wanted = decomposed(channels, centre)
        component = component.flatten().double().numpy()
        sign = np.sign(wanted @ component)
        np.testing.assert_allclose(component, sign * wanted, rtol=0, atol=1e-6 * max(1.0, np.abs(wanted).max()))


def test_close_singular_values_do_not_cost_accuracy() -> None:
    """Rectified noise: the first two of 2048 channels' singular values differ by half a percent."""
    channels = torch.randn(1, 2048, 7, 7).relu()
    wanted, found = decomposed(channels[0], True), first_component(channels)[0].flatten().double().numpy()
    assert np.abs(found - np.sign(wanted @ found) * wanted).max() <= 1e-6 * np.abs(wanted).max()


@given(seed=st.integers(0, 1000), flips=st.integers(0, 2**6 - 1))
@settings(max_examples=25, deadline=None)
def test_the_sign_agrees_with_what_it_is_given(seed: int, flips: int) -> None:
    channels = torch.randn(1, 6, 3, 4, generator=torch.Generator().manual_seed(seed))
    towards = torch.randn(1, 3, 4, generator=torch.Generator().manual_seed(seed + 1))
    signs = torch.tensor([1.0 - 2 * (flips >> k & 1) for k in range(6)])
    found = first_component(channels, towards=towards)
    assert (found * towards).sum() >= 0
    # Signs of channels turn the first singular vector, never the projection on it.
    turned = first_component(channels * signs[:, None, None], towards=towards)
    torch.testing.assert_close(turned, found, rtol=1e-4, atol=1e-4)


def test_the_default_sign_agrees_with_the_sum_of_the_channels() -> None:
    channels = torch.randn(1, 6, 3, 4)
    found = first_component(channels)
    assert (found * channels.sum(1)).sum() > 0
    torch.testing.assert_close(first_component(-channels), -found)


def test_a_sign_that_nothing_decides_makes_the_largest_value_positive() -> None:
    channels = torch.tensor([[[[1.0, 2.0, 6.0]], [[-1.0, -2.0, -6.0]]]])  # the sum is zero everywhere
    found = first_component(channels, centre=False)
    torch.testing.assert_close(found, 2**0.5 * torch.tensor([[[1.0, 2.0, 6.0]]]))


@pytest.mark.parametrize("value", [0.0, 0.1, -3.7e4])
def test_flat_channels_give_zero_and_no_rounding_errors(value: float) -> None:
    channels = torch.full((2, 5, 3, 7), value) * torch.arange(5.0)[:, None, None]
    assert not first_component(channels).any()
    rounded = torch.where(torch.rand(2, 5, 3, 7) > 0.5, channels, channels * (1 + 1.2e-7))
    assert value == 0 or not torch.equal(rounded, channels)
    assert not first_component(rounded).any()


def test_one_broken_picture_does_not_touch_the_others() -> None:
    channels = torch.randn(3, 5, 4, 4)
    wanted = first_component(channels)
    channels[1, 2, 0, 3] = float("nan")
    found = first_component(channels)
    assert found[1].isnan().all()
    torch.testing.assert_close(found[[0, 2]], wanted[[0, 2]])


def test_it_can_be_differentiated_where_other_singular_values_are_double() -> None:
    """Rank 3 of 12 places: nine eigenvalues are zero, for which the derivative of torch's own eigh is NaN."""
    torch.manual_seed(3)
    channels = torch.randn(1, 3, 3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(first_component, (channels,))
    wide = torch.randn(1, 20, 2, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: first_component(x, centre=False), (wide,))


def test_the_eigenvector_is_that_of_the_largest_eigenvalue() -> None:
    matrix = torch.tensor([[[2.0, 1.0], [1.0, 2.0]], [[-5.0, 0.0], [0.0, 1.0]]], dtype=torch.float64)
    vectors, values = first_eigenvector(matrix)
    assert values.tolist() == pytest.approx([3.0, 1.0])  # not the one of largest magnitude
    torch.testing.assert_close(vectors.abs(), torch.tensor([[0.5**0.5, 0.5**0.5], [0.0, 1.0]], dtype=torch.float64))
