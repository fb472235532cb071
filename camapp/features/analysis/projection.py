"""Principal components: features in two or three dimensions, exactly and the same every time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from camapp.errors import UsageError
from camapp.features.analysis.rows import BLOCK_VALUES, Rows, blocks, feature_rows

# A component that holds less than this part of the variance is a rounding error.
LEAST_PART = 1e-12
# Loadings this close to the largest count as as large: which of two equal ones is first must not be chance.
SAME_SIZE = 1e-6


@dataclass(frozen=True, eq=False)
class Projection:
    """Features on their first principal components.

    Args:
        coordinates: (N, d) float64.
        explained_variance_ratio: (d,) float64, the part of the features' variance that each component holds.
        components: (d, D) float64, of length 1 and at right angles; the loading of the largest magnitude is positive
            (the first of those alike). All zero where no variance is left for it.
        mean: (D,) float64, of the features.
    """

    coordinates: np.ndarray
    explained_variance_ratio: np.ndarray
    components: np.ndarray
    mean: np.ndarray

    def project(self, features: Rows) -> np.ndarray:
        """Other features on the same components.

        Args:
            features: (M, D).

        Returns:
            (M, d) float64.

        Raises:
            UsageError: another D, NaN or infinity.
        """
        rows = feature_rows(features)
        if rows.shape[1] != len(self.mean):
            raise UsageError(
                f"features have {rows.shape[1]} values a row; the projection was made of {len(self.mean)}. Take both "
                "from the same layer with the same pooling."
            )
        return _coordinates(rows, self.mean, self.components)

    def to_png(self, labels: Sequence[object] | None = None, *, title: str = "") -> bytes:
        """The first two components as a scatter picture, see ``scatter_png``."""
        from camapp.features.analysis.figures import scatter_png

        return scatter_png(self, labels, title=title)

    def __repr__(self) -> str:
        rows, dimensions = self.coordinates.shape
        held = self.explained_variance_ratio.sum()
        return f"Projection({rows} rows of {len(self.mean)} in {dimensions} dimensions, {held:.1%} of the variance)"


def pca(features: Rows, dimensions: int = 2) -> Projection:
    """Project features on the directions in which they differ most.

    The components are the eigenvectors of the covariance (D, D), or, where there are fewer rows than dimensions, are
    read off the Gram matrix (N, N): the same components, from the smaller of the two. All in float64, the rows read
    block by block.

    Args:
        features: (N, D), numpy or torch.
        dimensions: how many components: 1 to the smaller of N - 1 and D.

    Raises:
        UsageError: too many dimensions, NaN or infinity, rows that are all the same.

    Example:
        >>> flat = pca(features)
        >>> flat.coordinates, flat.explained_variance_ratio
    """
    rows = feature_rows(features, least=2)
    most = min(len(rows) - 1, rows.shape[1])
    if isinstance(dimensions, bool) or not isinstance(dimensions, int | np.integer) or not 1 <= dimensions <= most:
        raise UsageError(
            f"dimensions = {dimensions!r}; {len(rows)} rows of {rows.shape[1]} values have 1 to {most} principal "
            "components. Give a number in that, or more pictures."
        )
    mean = rows.mean(axis=0, dtype=np.float64)
    by_rows = len(rows) < rows.shape[1]
    scatter = _gram(rows, mean) if by_rows else _covariance(rows, mean)
    total = float(np.trace(scatter))
    energy = sum(float(np.square(rows[block].astype(np.float64)).sum()) for block in blocks(rows))
    if total <= LEAST_PART**2 * energy:
        raise UsageError(
            f"All {len(rows)} rows of features are the same: there is no direction in which they differ. Look at the "
            "layer, or take other pictures."
        )
    values, vectors = _largest(scatter, dimensions)
    components = _across(rows, mean, vectors) if by_rows else vectors.T
    kept = values > LEAST_PART * total
    components = np.where(kept[:, None], _signed(components), 0.0)
    return Projection(
        coordinates=_coordinates(rows, mean, components),
        explained_variance_ratio=np.where(kept, values, 0.0) / total,
        components=components,
        mean=mean,
    )


def _gram(rows: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """The inner products of centred rows, (N, N), summed over blocks of columns."""
    gram = np.zeros((len(rows), len(rows)))
    for block in blocks(rows.T, BLOCK_VALUES):
        columns = rows[:, block] - mean[block]
        gram += columns @ columns.T
    return gram


def _covariance(rows: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """The covariance (D, D) times N, summed over blocks of rows."""
    covariance = np.zeros((rows.shape[1], rows.shape[1]))
    for block in blocks(rows):
        centred = rows[block] - mean
        covariance += centred.T @ centred
    return covariance


def _largest(matrix: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The largest eigenvalues of a symmetric matrix (count,), falling, and their vectors (n, count)."""
    from scipy.linalg import eigh

    size = len(matrix)
    values, vectors = eigh(matrix, subset_by_index=(size - count, size - 1))
    return values[::-1], vectors[:, ::-1]


def _across(rows: np.ndarray, mean: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """The components (d, D) of which these are the coordinates (N, d), up to length."""
    across = np.empty((vectors.shape[1], rows.shape[1]))
    for block in blocks(rows.T, BLOCK_VALUES):
        across[:, block] = vectors.T @ (rows[:, block] - mean[block])
    lengths = np.linalg.norm(across, axis=1, keepdims=True)
    return across / np.where(lengths > 0, lengths, 1)


def _signed(components: np.ndarray) -> np.ndarray:
    sizes = np.abs(components)
    first = np.argmax(sizes >= (1 - SAME_SIZE) * sizes.max(axis=1, keepdims=True), axis=1)
    largest = np.take_along_axis(components, first[:, None], 1)
    return np.where(largest < 0, -components, components)


def _coordinates(rows: np.ndarray, mean: np.ndarray, components: np.ndarray) -> np.ndarray:
    return np.concatenate([(rows[block] - mean) @ components.T for block in blocks(rows)])
