"""Principal components: against scikit-learn, the two ways to them, signs, the scatter picture."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from sklearn.decomposition import PCA

from camapp.errors import UsageError
from camapp.features.analysis import figures, pca, scatter_png


def features(rows: int, size: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, size)) * np.linspace(3, 1, size) + rng.normal(size=size)


@pytest.mark.parametrize("shape", [(40, 6), (8, 50), (20, 20), (2, 5), (9, 1)])
def test_it_is_what_scikit_learn_computes(shape: tuple[int, int]) -> None:
    some = features(*shape)
    count = min(3, shape[0] - 1, shape[1])
    oracle = PCA(count, svd_solver="full").fit(some)
    found = pca(some, count)
    # scikit-learn gives the sign by the largest loading too, since 1.5
    np.testing.assert_allclose(found.components, oracle.components_, atol=1e-9)
    np.testing.assert_allclose(found.coordinates, oracle.transform(some), atol=1e-8)
    np.testing.assert_allclose(found.explained_variance_ratio, oracle.explained_variance_ratio_, atol=1e-10)
    np.testing.assert_allclose(found.mean, oracle.mean_, atol=1e-12)
    other = features(5, shape[1], 7)
    np.testing.assert_allclose(found.project(other), oracle.transform(other), atol=1e-8)


def test_a_line_by_hand() -> None:
    found = pca([[0, 0], [3, -4], [6, -8]], 1)
    np.testing.assert_allclose(found.components, [[-0.6, 0.8]])
    np.testing.assert_allclose(found.coordinates, [[5], [0], [-5]], atol=1e-12)
    np.testing.assert_allclose(found.explained_variance_ratio, [1])


@given(seed=st.integers(0, 1000), rows=st.integers(4, 12), size=st.integers(3, 30))
@settings(max_examples=40, deadline=None)
def test_turning_the_features_round_turns_the_coordinates_and_never_the_components(
    seed: int, rows: int, size: int
) -> None:
    some = features(rows, size, seed)
    found, turned = pca(some), pca(-some)
    np.testing.assert_allclose(turned.components, found.components, atol=1e-7)
    np.testing.assert_allclose(turned.coordinates, -found.coordinates, atol=1e-6)
    largest = np.abs(found.components).argmax(1)
    assert (found.components[[0, 1], largest] > 0).all()


@given(seed=st.integers(0, 1000), scale=st.floats(0.1, 10))
@settings(max_examples=40, deadline=None)
def test_of_two_loadings_alike_the_first_decides_the_sign(seed: int, scale: float) -> None:
    """x and -x: the loadings are +-0.7071 up to rounding, and rounding must not decide."""
    line = np.random.default_rng(seed).normal(size=(9, 1)) * scale
    components = pca(np.hstack([line, -line, 0 * line]), 1).components
    np.testing.assert_allclose(components, [[0.5**0.5, -(0.5**0.5), 0]], atol=1e-9)


def test_more_dimensions_than_differences_are_zero_and_not_rounding() -> None:
    line = np.arange(6.0)[:, None]
    for size in (4, 40):
        found = pca(line @ np.ones((1, size)) + 0.1, 3)
        np.testing.assert_allclose(found.explained_variance_ratio, [1, 0, 0])
        assert not found.coordinates[:, 1:].any()
        assert not found.components[1:].any()


def test_blocks_types_and_libraries_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    from camapp.features.analysis import projection, rows

    for shape in ((30, 6), (6, 30)):
        some = features(*shape).astype(np.float16)
        wanted = pca(some.astype(np.float64))
        np.testing.assert_allclose(pca(torch.tensor(some)).coordinates, wanted.coordinates, atol=1e-12)
        with monkeypatch.context() as patched:
            patched.setattr(projection, "BLOCK_VALUES", 50)
            patched.setattr(rows.blocks, "__defaults__", (50,))
            np.testing.assert_allclose(pca(some).coordinates, wanted.coordinates, atol=1e-12)


def test_a_far_mean_does_not_cost_accuracy() -> None:
    some = features(30, 5)
    np.testing.assert_allclose(pca(some + 1e6).coordinates, pca(some).coordinates, atol=1e-6)


@pytest.mark.parametrize(
    ("some", "dimensions", "message"),
    [
        (features(5, 3), 4, "dimensions = 4; 5 rows of 3 values have 1 to 3"),
        (features(3, 9), 3, "have 1 to 2 principal"),
        (features(3, 9), 0, "dimensions = 0"),
        (features(3, 9), True, "dimensions = True"),
        (features(1, 9), 1, r"1 row\(s\); at least 2"),
        (np.full((5, 3), 0.1), 1, "All 5 rows of features are the same"),
        (np.full((5, 30), 0.1), 1, "All 5 rows of features are the same"),
        (np.full((5, 3), np.inf), 1, "5 of the 5 rows"),
    ],
)
def test_what_cannot_be_projected_is_refused(some: np.ndarray, dimensions: int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        pca(some, dimensions)


def test_other_features_are_refused_by_name() -> None:
    with pytest.raises(UsageError, match="4 values a row; the projection was made of 3"):
        pca(features(5, 3)).project(features(5, 4))


def painted(png: bytes, color: str) -> int:
    """How many pixels are of a colour as it looks at three quarters of opacity over white."""
    pixels = np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).astype(int)
    wanted = [255 - 0.75 * (255 - int(color[at : at + 2], 16)) for at in (1, 3, 5)]
    return int((np.abs(pixels - wanted).max(-1) <= 2).sum())


def test_each_class_has_its_colour() -> None:
    found = pca(features(30, 4))
    plain = scatter_png(found)
    assert painted(plain, figures._COLORS[0]) > 300
    assert not painted(plain, figures._COLORS[1])
    two = found.to_png([number % 2 for number in range(30)], title="two")
    assert min(painted(two, figures._COLORS[0]), painted(two, figures._COLORS[1])) > 300
    assert not painted(two, figures._COLORS[2])


def test_twenty_classes_are_told_apart_and_of_more_the_rarest_are_one() -> None:
    assert len(figures._COLORS) * len(figures._MARKERS) >= figures.MOST_CLASSES
    names = [str(number) for number in range(20)]
    assert figures.shown_classes(names) == (names, 0)  # as numbers: 2 before 10
    assert figures.shown_classes(["b10", "b2", "a", "10", "9", "b"])[0] == ["9", "10", "a", "b", "b2", "b10"]
    many = [name for number in range(30) for name in [f"c{number:02}"] * (1 if number % 3 else 5)]
    shown, left = figures.shown_classes(many)
    assert left == 11
    assert {f"c{number:02}" for number in range(0, 30, 3)} <= set(shown)
    assert len(shown) == 19


def test_odd_class_names_stay_in_the_legend() -> None:
    found = pca(features(6, 4))
    blank = scatter_png(found, ["", "a", "b", "c", "d", "e"])
    for name in ("_hidden", "$x$ $", "a\nb"):
        assert scatter_png(found, [name, "a", "b", "c", "d", "e"]) != blank


def test_a_scatter_needs_two_dimensions_and_a_label_a_row() -> None:
    with pytest.raises(UsageError, match="one dimension"):
        scatter_png(pca(features(6, 4), 1))
    with pytest.raises(UsageError, match="3 labels for 6 rows"):
        scatter_png(pca(features(6, 4)), ["a", "b", "c"])
