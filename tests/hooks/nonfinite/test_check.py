"""The fast check agrees with numpy, element by element."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from camapp.hooks.nonfinite import nonfinite_flag

NAN, INF = float("nan"), float("inf")
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]

shapes = arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)
floating = st.sampled_from([np.float16, np.float32, np.float64]).flatmap(lambda dtype: arrays.arrays(dtype, shapes))
others = st.sampled_from([np.int64, np.uint8, np.bool_]).flatmap(lambda dtype: arrays.arrays(dtype, shapes))
complexes = st.sampled_from([np.complex64, np.complex128]).flatmap(lambda dtype: arrays.arrays(dtype, shapes))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(floating, others, complexes), max_size=5))
def test_the_flag_is_what_numpy_says_of_all_elements(values: list[np.ndarray]) -> None:
    flag = nonfinite_flag([torch.from_numpy(np.array(value)) for value in values])
    assert (flag.shape, flag.dtype) == ((), torch.bool)
    assert bool(flag) == (not all(np.isfinite(value).all() for value in values))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize("size", [1, 7, 33, 4097])
def test_one_element_anywhere_is_seen(dtype: torch.dtype, value: float, size: int) -> None:
    clean = torch.full((size,), torch.finfo(dtype).min, dtype=dtype)
    assert not nonfinite_flag([clean])
    for place in {0, size // 2, size - 1}:
        spoiled = clean.clone()
        spoiled[place] = value
        assert nonfinite_flag([clean, spoiled, None])


@pytest.mark.parametrize("dtype", FLOATS)
def test_sums_and_sums_of_squares_may_overflow(dtype: torch.dtype) -> None:
    values = torch.full((300,), torch.finfo(dtype).max, dtype=dtype)
    assert values.sum().isinf()
    assert values.square().sum().isinf()
    assert not nonfinite_flag([values, -values])


def test_complex_numbers_whose_magnitude_overflows_are_finite() -> None:
    values = torch.full((3,), complex(3e38, 3e38), dtype=torch.complex64)
    assert values.abs().isinf().all()
    assert not nonfinite_flag([values])
    values[1] = complex(0.0, NAN)
    assert nonfinite_flag([values.conj()])


def test_numbers_of_8_bits_are_read() -> None:
    values = torch.tensor([1.0, -448.0]).to(torch.float8_e4m3fn)
    assert not nonfinite_flag([values])
    assert nonfinite_flag([torch.tensor([1.0, NAN]).to(torch.float8_e4m3fn)])


def test_views_with_gaps_are_read_where_they_lie() -> None:
    values = torch.ones(6, 6)
    values[:, 1] = NAN
    assert not nonfinite_flag([values[:, ::2], values.t()[2:]])
    assert nonfinite_flag([values[::2]])


def test_the_stored_elements_of_sparse_tensors_are_read() -> None:
    clean = torch.tensor([[0.0, 2.0], [3.0, 0.0]])
    spoiled = torch.tensor([[0.0, NAN], [3.0, 0.0]])
    for convert in (torch.Tensor.to_sparse, torch.Tensor.to_sparse_csr):
        assert not nonfinite_flag([convert(clean)])
        assert nonfinite_flag([convert(spoiled)])


def test_tensors_that_want_gradients_get_no_graph() -> None:
    values = torch.ones(3, requires_grad=True)
    assert not nonfinite_flag([values]).requires_grad


@pytest.mark.parametrize("tensors", [[], [None], [torch.ones(0)], [torch.arange(3)], [torch.ones(2, device="meta")]])
def test_nothing_to_look_at_is_finite(tensors: list[torch.Tensor | None]) -> None:
    flag = nonfinite_flag(tensors)
    assert (flag.dtype, flag.shape, flag.item()) == (torch.bool, (), False)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", FLOATS)
def test_a_gpu_is_not_waited_for_and_says_the_same(dtype: torch.dtype) -> None:
    clean = torch.full((5000,), torch.finfo(dtype).max, dtype=dtype, device="cuda")
    for value in (NAN, INF, -INF):
        spoiled = clean.clone()
        spoiled[4321] = value
        torch.cuda.set_sync_debug_mode("error")
        try:
            flags = [nonfinite_flag([clean, torch.ones(3)]), nonfinite_flag([clean, spoiled])]
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert [flag.device.type for flag in flags] == ["cuda", "cuda"]
        assert [bool(flag) for flag in flags] == [False, True]
