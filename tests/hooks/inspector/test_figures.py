"""Figures of a tensor are those that numpy finds in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from camapp.hooks.inspector.figures import Bounds, Figures, measurable, measure, read

MOST = 64


def figures(tensor: torch.Tensor, most: int = MOST, **options: object) -> Figures:
    return read([measure(tensor, most, **options)])[0][0]


def same(found: float, expected: float, tolerance: float = 2e-6, slack: float = 0.0) -> bool:
    if math.isnan(expected) or math.isinf(expected):
        return (math.isnan(found) and math.isnan(expected)) or found == expected
    return abs(found - expected) <= tolerance * abs(expected) + slack


ODD = st.sampled_from([0.0, -0.0, 1.0, -3.5, 1e30, -2e30, 1e-30, 3e38, 1e-42, math.nan, math.inf, -math.inf])
ELEMENTS = st.one_of(ODD, st.floats(width=32, allow_nan=False))
SHAPES = arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)


@settings(max_examples=300, deadline=None)
@given(arrays.arrays(np.float32, SHAPES, elements=ELEMENTS))
def test_figures_of_any_float32_tensor_are_those_of_numpy(values: np.ndarray) -> None:
    found = figures(torch.from_numpy(values.copy()), most=1000)
    wide = values.astype(np.float64)
    with np.errstate(all="ignore"):
        size = np.abs(wide)
        assert found.nonfinite == np.count_nonzero(~np.isfinite(wide))
        assert found.zero_share == pytest.approx(np.mean(wide == 0) if wide.size else 0.0, rel=1e-12)
        assert same(found.abs_max, size.max() if wide.size else 0.0, 0.0)
        norm = math.nan if np.isnan(wide).any() else float(np.sqrt((wide**2).sum()))
        assert same(found.norm, norm)
        # A mean may cancel: it is as exact as float32 sums are, against the size of what is added up.
        slack = 1e-6 * size[np.isfinite(size)].mean() if np.isfinite(size).any() else 0.0
        assert same(found.mean, float(wide.mean()) if wide.size else math.nan, 0.0, slack)
        kept = size[np.isfinite(size)]
        for percent, quantile in ((50, found.p50), (95, found.p95), (99, found.p99)):
            assert same(quantile, float(np.percentile(kept, percent)) if kept.size else math.nan)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_dtypes_are_measured_in_float32_or_better(dtype: torch.dtype) -> None:
    values = (torch.randn(7, 33, dtype=torch.float64) * 3000).to(dtype)
    wide = values.double().numpy()
    found = figures(values, most=1000)
    assert same(found.norm, float(np.sqrt((wide**2).sum())))  # of float16 the squares, and this norm, would overflow
    assert same(found.mean, wide.mean(), 0.0, 1e-6 * np.abs(wide).mean())
    assert found.abs_max == np.abs(wide).max()
    assert same(found.p95, float(np.percentile(np.abs(wide), 95)))


def test_a_norm_of_many_elements_does_not_drift() -> None:
    """The norm of torch 2.14 is off by 3e-4 for as many."""
    values = torch.rand(20_000_000) + 0.5
    assert same(figures(values).norm, float(values.double().norm()), 1e-6)


@pytest.mark.parametrize("size", [1e-42, 1e-30, 1e-20, 1e20, 1e38])
def test_sizes_far_from_one_neither_vanish_nor_overflow(size: float) -> None:
    values = torch.full((10, 10), size)
    found = figures(values)
    assert same(found.norm, 10 * float(values.double()[0, 0]))
    assert same(found.mean, float(values.double()[0, 0]))
    assert found.nonfinite == 0
    assert found.zero_share == 0


def test_zeros_are_counted_beside_huge_numbers_and_infinities() -> None:
    values = torch.tensor([0.0, 1e-44, 3e38, 0.0])
    assert figures(values).zero_share == 0.5
    found = figures(torch.tensor([0.0, math.inf, math.nan, 2.0]))
    assert (found.zero_share, found.nonfinite) == (0.25, 2)


@pytest.mark.parametrize(
    "layout",
    [
        lambda t: t.to(memory_format=torch.channels_last),
        lambda t: t.transpose(1, 3),
        lambda t: t[:, ::2],
        lambda t: t[:, :1].expand(-1, 5, -1, -1),
        lambda t: t.flip(0),
    ],
)
def test_the_layout_in_memory_changes_nothing(layout) -> None:  # type: ignore[no-untyped-def]
    values = layout(torch.randn(3, 4, 5, 6))
    assert not values.is_contiguous() or values.stride() == values.contiguous().stride()
    found, plain = figures(values, most=10_000), figures(values.contiguous().clone(), most=10_000)
    assert same(found.norm, plain.norm)
    assert (found.abs_max, found.zero_share, found.p99) == (plain.abs_max, plain.zero_share, plain.p99)


def test_a_sample_is_of_the_same_places_each_time_and_spread_over_all() -> None:
    ramp = torch.arange(100_000, dtype=torch.float32)
    found = figures(ramp, most=1000)
    assert figures(ramp, most=1000) == found
    assert found.p50 == pytest.approx(50_000, rel=0.01)
    assert found.p99 == pytest.approx(99_000, rel=0.01)
    columns = torch.zeros(1000, 100)
    columns[:, 0] = 1.0  # one column of a map: a sample at equal distances would be blind to it, or see nothing else
    drawn = measure(columns, 1000).sample
    assert 0.002 < float(drawn.mean()) < 0.03


def test_what_is_measured_may_be_changed_at_once() -> None:
    values = torch.ones(4, 4)
    reading = measure(values, MOST)
    values.fill_(7.0)
    assert read([reading])[0][0].abs_max == 1.0
    assert read([reading])[0][0].p50 == 1.0


def test_dead_units_are_those_without_any_other_value() -> None:
    maps = torch.rand(4, 6, 3, 3) + 0.1
    maps[:, 2] = 0
    maps[:, 5] = 0
    maps[3, 5, 2, 2] = -1.0  # once not 0 is alive
    maps[0, 4] = 0  # dead in one picture only
    assert figures(maps, unit_axis=1).dead_units == pytest.approx(1 / 6)
    tokens = torch.rand(2, 5, 4)
    tokens[..., 1] = 0
    assert figures(tokens, unit_axis=-1).dead_units == 0.25
    tokens[0, 0, 1] = math.nan
    assert figures(tokens, unit_axis=-1).dead_units == 0


def test_saturation_counts_what_is_within_a_hundredth_of_the_range() -> None:
    values = torch.tensor([-1.0, -0.99, -0.979, 0.0, 0.5, 0.979, 0.981, 1.0])
    assert figures(values, bounds=Bounds(-1.0, 1.0, 2.0)).saturated == 4 / 8
    assert figures(values, bounds=Bounds(None, 1.0, 2.0)).saturated == 2 / 8
    assert figures(values).saturated is None


def test_a_sparse_gradient_is_measured_with_its_zeros() -> None:
    dense = torch.zeros(10, 4)
    dense[2], dense[7] = 3.0, -1.0
    indices = torch.tensor([[2, 7, 2]])
    sparse = torch.sparse_coo_tensor(indices, torch.tensor([[1.0] * 4, [-1.0] * 4, [2.0] * 4]), (10, 4))
    found, plain = figures(sparse), figures(dense)
    assert (found.norm, found.mean, found.abs_max, found.zero_share) == pytest.approx(
        (plain.norm, plain.mean, plain.abs_max, plain.zero_share)
    )


def test_many_readings_and_scalars_come_back_in_order() -> None:
    tensors = [torch.full((size,), float(size), dtype=dtype) for size in (0, 1, 200, 3) for dtype in _DTYPES]
    found, numbers = read([measure(one, MOST) for one in tensors], [torch.tensor(5), torch.tensor(0.25)])
    assert [one.abs_max for one in found] == [float(len(one)) for one in tensors]
    assert [one.p50 for one in found[3:]] == [float(len(one)) for one in tensors[3:]]
    assert numbers == [5.0, 0.25]


_DTYPES = (torch.float32, torch.float64, torch.float16)


def test_what_holds_no_real_numbers_is_not_measured() -> None:
    assert measurable(torch.ones(2))
    assert not measurable(torch.ones(2, dtype=torch.long))
    assert not measurable(torch.ones(2, dtype=torch.complex64))
    assert not measurable(torch.ones(2, device="meta"))
    seen = []
    torch.func.vmap(lambda row: seen.append(measurable(row)) or row)(torch.ones(2, 2))
    assert seen == [False]
