"""Linear CKA: against HSIC as the papers write it, numbers by hand, and what it must not change with."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from camapp.errors import UsageError
from camapp.features.analysis import MinibatchCKA, cka_matrix, linear_cka


def written_out(a: np.ndarray, b: np.ndarray, unbiased: bool) -> float:
    """CKA by the sums of the papers over n x n matrices."""

    def hsic(k: np.ndarray, l: np.ndarray) -> float:  # noqa: E741
        n = len(k)
        if not unbiased:
            h = np.eye(n) - np.ones((n, n)) / n
            return np.trace(k @ h @ l @ h) / (n - 1) ** 2
        k, l = k - np.diag(np.diag(k)), l - np.diag(np.diag(l))  # noqa: E741
        one = np.ones(n)
        sums = (one @ k @ one) * (one @ l @ one) / ((n - 1) * (n - 2))
        return (np.trace(k @ l) + sums - 2 / (n - 2) * (one @ k @ l @ one)) / (n * (n - 3))

    k, l = a @ a.T, b @ b.T  # noqa: E741
    return hsic(k, l) / np.sqrt(hsic(k, k) * hsic(l, l))


def features(rows: int, size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, size)) + 0.5


@pytest.mark.parametrize("unbiased", [True, False])
@pytest.mark.parametrize(("rows", "left", "right"), [(12, 3, 5), (6, 20, 3), (6, 3, 20), (5, 9, 30), (4, 2, 2)])
def test_it_is_the_papers_formula(rows: int, left: int, right: int, unbiased: bool) -> None:
    a, b = features(rows, left), features(rows, right, 1)
    assert linear_cka(a, b, unbiased=unbiased) == pytest.approx(written_out(a, b, unbiased), rel=1e-10, abs=1e-12)


def test_four_pictures_by_hand() -> None:
    """Points 0, 1, 2, 3 and 0, 1, 0, 1 on a line, centred: K_ij = x_i x_j.

    x = (-1.5, -.5, .5, 1.5) and y = (-.5, .5, -.5, .5). tr(KL) = (x.y)^2 = 1; d = (2.25, .25, .25, 2.25), e = .25 each.
    Biased: 1 / sqrt(5^2 * 1^2) = 0.2. Unbiased, times n (n - 3): KL: 1 - 2 * 1.25 + 5 * 1 / 6 = -2/3; KK: 25 - 2 *
    10.25 + 25 / 6 = 26/3; LL: 1 - 2 * .25 + 1 / 6 = 2/3. So -2/3 / sqrt(52/9) = -1 / sqrt(13).
    """
    a, b = np.array([[0.0], [1], [2], [3]]), np.array([[0.0], [1], [0], [1]])
    assert linear_cka(a, b, unbiased=False) == pytest.approx(0.2)
    assert linear_cka(a, b) == pytest.approx(-1 / np.sqrt(13))


@given(
    rows=st.integers(4, 12),
    sizes=st.tuples(st.integers(2, 20), st.integers(1, 20)),
    seed=st.integers(0, 10_000),
    scale=st.floats(1e-3, 1e3),
    shift=st.floats(-1e3, 1e3),
    unbiased=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_rotation_scale_and_shift_change_nothing_and_the_order_of_the_two_neither(
    rows: int, sizes: tuple[int, int], seed: int, scale: float, shift: float, unbiased: bool
) -> None:
    a, b = features(rows, sizes[0], seed), features(rows, sizes[1], seed + 1)
    turn = np.linalg.qr(features(sizes[0], sizes[0], seed + 2))[0]
    value = linear_cka(a, b, unbiased=unbiased)
    assert linear_cka(scale * a @ turn + shift, b, unbiased=unbiased) == pytest.approx(value, abs=1e-6)
    assert linear_cka(b, a, unbiased=unbiased) == pytest.approx(value, abs=1e-10)
    assert linear_cka(a, scale * a @ turn + shift, unbiased=unbiased) == pytest.approx(1, abs=1e-6)
    assert (-1e-12 if not unbiased else -np.inf) <= value <= 1 + 1e-12


def test_a_stretch_of_one_direction_does_change_it() -> None:
    a = features(50, 4)
    assert linear_cka(a, a * [10, 1, 1, 1]) < 0.9


def test_unrelated_features_of_many_dimensions_are_near_zero_only_without_bias() -> None:
    a, b = features(30, 400), features(30, 400, 1)
    assert linear_cka(a, b, unbiased=False) > 0.9
    assert abs(linear_cka(a, b)) < 0.05


def test_the_mean_over_many_draws_of_unrelated_features_is_zero() -> None:
    values = [linear_cka(features(8, 5, seed), features(8, 5, 1000 + seed)) for seed in range(400)]
    assert abs(np.mean(values)) < 4 * np.std(values) / 20


@pytest.mark.parametrize("unbiased", [True, False])
def test_a_matrix_holds_what_its_pairs_give(unbiased: bool) -> None:
    layers = {"a": features(7, 3), "b": features(7, 9, 1), "c": features(7, 7, 2)}
    own = cka_matrix(layers, unbiased=unbiased)
    assert own.names == own.others == ("a", "b", "c")
    assert own.pictures == 7
    other = cka_matrix(layers, {"x": layers["b"], "y": features(7, 40, 3)}, unbiased=unbiased)
    assert other["b", "x"] == pytest.approx(1)
    assert other.values.shape == (3, 2)
    for one in "abc":
        for two in "abc":
            assert own[one, two] == pytest.approx(linear_cka(layers[one], layers[two], unbiased=unbiased), abs=1e-12)
        assert other[one, "x"] == pytest.approx(own[one, "b"], abs=1e-12)
    np.testing.assert_array_equal(own.values, own.values.T)


def test_types_of_numbers_and_libraries_do_not_matter() -> None:
    a, b = features(9, 5).astype(np.float16), features(9, 12, 1).astype(np.float16)
    value = linear_cka(a.astype(np.float64), b.astype(np.float64))
    assert linear_cka(a, b) == value
    assert linear_cka(torch.tensor(a), torch.tensor(b).float().requires_grad_()) == value
    half = torch.tensor(a).bfloat16()
    assert linear_cka(half, b) == linear_cka(half.float(), b)
    assert linear_cka(np.arange(8).reshape(4, 2) ** 2, features(4, 2)) == pytest.approx(
        written_out((np.arange(8).reshape(4, 2) ** 2).astype(float), features(4, 2), True)
    )


def test_the_given_features_are_not_changed() -> None:
    a = features(6, 3)
    before = a.copy()
    linear_cka(a, a * 2)
    np.testing.assert_array_equal(a, before)


def test_one_batch_is_the_unbiased_matrix() -> None:
    layers, others = {"a": features(9, 3), "b": features(9, 30, 1)}, {"c": features(9, 4, 2)}
    cka = MinibatchCKA()
    cka.update(layers, others)
    np.testing.assert_allclose(cka.value().values, cka_matrix(layers, others).values, rtol=1e-12)


def test_batches_are_the_ratio_of_mean_hsics() -> None:
    def hsic(a: np.ndarray, b: np.ndarray) -> float:
        n, k, l = len(a), a @ a.T, b @ b.T  # noqa: E741
        np.fill_diagonal(k, 0)
        np.fill_diagonal(l, 0)
        return (np.trace(k @ l) + k.sum() * l.sum() / ((n - 1) * (n - 2)) - 2 / (n - 2) * k.sum(0) @ l.sum(1)) / (
            n * (n - 3)
        )

    batches = [(features(n, 3, n), features(n, 8, n) @ np.eye(8, 6) + features(n, 6, 50 + n)) for n in (6, 6, 9)]
    cka = MinibatchCKA()
    for a, b in batches:
        cka.update({"a": a, "b": b})
    pairs = [np.average([hsic(*pair(a, b)) for a, b in batches], weights=[6, 6, 9]) for pair in (_ab, _aa, _bb)]
    found = cka.value()
    assert found.pictures == 21
    assert found["a", "b"] == pytest.approx(pairs[0] / np.sqrt(pairs[1] * pairs[2]), rel=1e-10)
    assert found["a", "a"] == pytest.approx(1)


def _ab(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return a, b


def _aa(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return a, a


def _bb(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return b, b


def test_many_small_batches_come_near_to_all_pictures_at_once() -> None:
    a = features(4000, 6)
    b = a @ features(6, 10, 1) + 2 * features(4000, 10, 2)
    cka = MinibatchCKA()
    for start in range(0, 4000, 20):
        cka.update({"a": a[start : start + 20], "b": b[start : start + 20]})
    whole = linear_cka(a, b)
    assert 0.2 < whole < 0.9
    assert cka.value()["a", "b"] == pytest.approx(whole, abs=0.02)


@pytest.mark.parametrize("value", [0.0, 0.1, -3.7e4])
@pytest.mark.parametrize("size", [3, 300])
def test_a_layer_that_tells_nothing_apart_is_named_and_does_not_spoil_the_others(value: float, size: int) -> None:
    flat, a = np.full((10, size), value), features(10, 4)
    with pytest.raises(UsageError, match="b tells no pictures apart"):
        linear_cka(a, flat)
    found = cka_matrix({"a": a, "flat": flat})
    assert found["a", "a"] == pytest.approx(1)
    assert np.isnan(found["a", "flat"])
    assert np.isnan(found["flat", "flat"])
    assert "| flat | – | – |" in found.to_markdown()


def test_pictures_all_equally_far_apart_have_no_unbiased_cka() -> None:
    """One-hot rows: U-centred, their Gram matrix is zero; what is left is rounding."""
    with pytest.raises(UsageError, match="equally far"):
        linear_cka(np.eye(6) * 0.7, features(6, 3))
    assert linear_cka(np.eye(6) * 0.7, np.eye(6), unbiased=False) == pytest.approx(1)


def test_the_table_names_rows_and_columns() -> None:
    found = cka_matrix({"a|b": features(6, 2)}, {"x": features(6, 2), "y": features(6, 3, 1)})
    lines = found.to_markdown().splitlines()
    assert lines[0] == "| | x | y |"
    assert lines[2].startswith("| a\\|b | 1.000 | ")
    assert len(lines) == 3


def test_the_heatmap_is_bright_where_layers_are_alike_and_grey_where_nothing_is_known() -> None:
    layers = {"a": features(20, 40), "b": features(20, 40, 1), "flat": np.ones((20, 2))}
    pixels = np.asarray(Image.open(io.BytesIO(cka_matrix(layers).to_png())).convert("RGB")).reshape(-1, 3)
    for color in ((253, 231, 37), (153, 153, 153)):  # viridis at 1, grey
        assert (np.abs(pixels.astype(int) - color).max(1) <= 1).sum() > 1000, color
    names = {f"blocks.{i}": features(6, 3, i) for i in range(60)}  # too many for numbers
    assert Image.open(io.BytesIO(cka_matrix(names).to_png())).size[0] < 2500


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        (features(5, 2), features(6, 2), "a has 5 rows and b has 6"),
        (features(3, 2), features(3, 2), r"a has 3 row\(s\); at least 4"),
        (features(5, 2), [[1, 2], [3, 4], [np.nan, 1], [1, 1], [2, np.inf]], r"2 of the 5 rows of b .*\(rows 2, 4\)"),
        (np.zeros((4, 2, 2)), features(4, 2), r"\(4, 2, 2\); wanted is \(N, D\)"),
        (np.zeros((4, 0)), features(4, 2), r"\(4, 0\)"),
        (np.array([["x"]] * 4), features(4, 2), "wanted are real numbers"),
        (np.zeros((4, 2), complex), features(4, 2), "complex128"),
        ([[1, 2], [3]], features(4, 2), "no matrix of numbers"),
    ],
)
def test_what_cannot_be_compared_is_refused(a: np.ndarray, b: np.ndarray, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        linear_cka(a, b)


def test_layers_of_other_pictures_or_other_batches_are_refused() -> None:
    with pytest.raises(UsageError, match='"a" has 5 rows and "b" has 6'):
        cka_matrix({"a": features(5, 2), "b": features(6, 2)})
    with pytest.raises(UsageError, match='"a" has 5 rows and the other "a" has 6'):
        cka_matrix({"a": features(5, 2)}, {"a": features(6, 2)})
    with pytest.raises(UsageError, match="no layer to compare"):
        cka_matrix({})
    cka = MinibatchCKA()
    with pytest.raises(UsageError, match="no batch yet"):
        cka.value()
    cka.update({"a": features(5, 2)})
    before = cka.value().values
    with pytest.raises(UsageError, match="those before had a"):
        cka.update({"b": features(5, 2)})
    with pytest.raises(UsageError, match="at least 4"):
        cka.update({"a": features(3, 2)})
    np.testing.assert_array_equal(cka.value().values, before)
    assert cka.value().pictures == 5
