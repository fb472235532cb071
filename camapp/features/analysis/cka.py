"""Centred kernel alignment: how alike two layers, or two networks, see the same pictures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from camapp.errors import LayerError, UsageError, did_you_mean
from camapp.features.analysis.rows import Rows, check_paired, feature_rows

# The unbiased estimate divides by n - 3.
LEAST_ROWS = 4
# What is less than this part of what it is the difference of is a rounding error.
LEAST_PART = 1e-12


@dataclass(frozen=True, eq=False)
class CKAMatrix:
    """The linear CKA of each of some layers with each of some others.

    Args:
        names: of the rows.
        others: of the columns; the same as ``names`` where layers are compared among themselves.
        values: (rows, columns) float64; NaN where a layer tells no pictures apart. At most 1; unbiased values of
            unrelated layers lie around 0 and can be negative.
        pictures: how many.
        unbiased: which estimate it is.
    """

    names: tuple[str, ...]
    others: tuple[str, ...]
    values: np.ndarray
    pictures: int
    unbiased: bool

    def __getitem__(self, pair: tuple[str, str]) -> float:
        """The value of a row and a column, by their names.

        Raises:
            LayerError: a name that is none of them.
        """
        for name, known in zip(pair, (self.names, self.others), strict=True):
            if name not in known:
                raise LayerError(f'No layer "{name}" in this matrix.{did_you_mean(name, known)}')
        name, other = pair
        return float(self.values[self.names.index(name), self.others.index(other)])

    def __repr__(self) -> str:
        kind = "unbiased" if self.unbiased else "biased"
        return f"CKAMatrix({len(self.names)} x {len(self.others)} layers, {self.pictures} pictures, {kind})"

    def to_markdown(self) -> str:
        """The matrix as a table; what is not defined is a dash."""
        lines = ["| | " + " | ".join(map(_cell, self.others)) + " |", "| --- |" + " ---: |" * len(self.others)]
        for name, row in zip(self.names, self.values, strict=True):
            shown = ["–" if np.isnan(value) else f"{value:.3f}" for value in row]
            lines.append(f"| {_cell(name)} | " + " | ".join(shown) + " |")
        return "\n".join(lines) + "\n"

    def to_png(self) -> bytes:
        """The matrix as a heatmap from 0 to 1, with its numbers where they are readable."""
        from camapp.features.analysis.figures import heatmap_png

        return heatmap_png(self)

    def _repr_markdown_(self) -> str:
        return self.to_markdown()

    def _repr_png_(self) -> bytes:
        return self.to_png()


def linear_cka(a: Rows, b: Rows, *, unbiased: bool = True) -> float:
    r"""How alike two layers see the same pictures: 1 where they are equal up to rotation, shift and scale.

    With :math:`K = A A^T` and :math:`L = B B^T` of n pictures,

    .. math:: CKA = \frac{HSIC(K, L)}{\sqrt{HSIC(K, K)\,HSIC(L, L)}}.

    The biased :math:`HSIC(K, L) = tr(K H L H) / (n - 1)^2` with :math:`H = I - 1 1^T / n` is far above 0 for unrelated
    features of more dimensions than pictures. The unbiased one, with :math:`\tilde K` and :math:`\tilde L` being
    :math:`K` and :math:`L` with a diagonal of zeros, is

    .. math:: HSIC(K, L) = \frac{1}{n (n - 3)} \left[ tr(\tilde K \tilde L) + \frac{1^T \tilde K 1 \, 1^T \tilde L 1}
        {(n - 1)(n - 2)} - \frac{2}{n - 2} 1^T \tilde K \tilde L 1 \right].

    Args:
        a: (N, D) features of N pictures, numpy or torch; computed in float64.
        b: (N, E) features of the same pictures in the same order.
        unbiased: the unbiased estimate, which needs 4 pictures or more; the biased one needs 2.

    Returns:
        At most 1; from 0 up if biased.

    Raises:
        UsageError: numbers of rows that differ or are too few, NaN or infinity, features that tell no pictures apart.

    Source: Kornblith et al., "Similarity of Neural Network Representations Revisited", ICML 2019, section 3; the
    unbiased estimate of HSIC is that of Song et al., "Feature Selection via Dependence Maximization", JMLR 2012, which
    Nguyen et al., "Do Wide and Deep Networks Learn the Same Things?", ICLR 2021, put into CKA.
    """
    left, right = _centred(a, "a", unbiased), _centred(b, "b", unbiased)
    check_paired(left.values, right.values, ("a", "b"))
    selves = _hsic(left, left, unbiased), _hsic(right, right, unbiased)
    for name, value in zip("ab", selves, strict=True):
        if not value:
            raise UsageError(
                f"{name} tells no pictures apart: its rows are the same, or all equally far from each other, and CKA "
                "is 0 / 0. Take another layer, or more pictures."
            )
    return _ratio(_hsic(left, right, unbiased), *selves)


def cka_matrix(
    features: Mapping[str, Rows], others: Mapping[str, Rows] | None = None, *, unbiased: bool = True
) -> CKAMatrix:
    """The linear CKA of all pairs of layers.

    Args:
        features: (N, D) of each layer by its name, D as it is in each; all of the same N pictures.
        others: the same of the layers to compare with, such as those of another network; by default ``features``.
        unbiased: see ``linear_cka``.

    Raises:
        UsageError: no layers, and as ``linear_cka``; a layer that tells no pictures apart gives NaN instead.

    Example:
        >>> cka_matrix({"layer3": early, "layer4": late})["layer3", "layer4"]
    """
    batch = _Batch(features, others, unbiased)
    return batch.matrix(*batch.hsics(), pictures=batch.rows)


class MinibatchCKA:
    """Unbiased linear CKA of all pairs of layers over pictures that come in batches, for features too large to keep.

    Each HSIC is the mean of the batches' unbiased ones, weighted with their pictures; CKA is made of these means. (For
    batches of one size that is the minibatch CKA of Nguyen et al., ICLR 2021. It does not equal CKA over all pictures
    at once, whose pairs across batches it does not see, but estimates the same thing, at any batch size.)

    Example:
        >>> cka = MinibatchCKA()
        >>> for early, late in batches:
        ...     cka.update({"layer3": early, "layer4": late})
        >>> cka.value()["layer3", "layer4"]
    """

    def __init__(self) -> None:
        self._batch: _Batch | None = None
        self._sums: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
        self._rows = 0

    def update(self, features: Mapping[str, Rows], others: Mapping[str, Rows] | None = None) -> None:
        """Add a batch.

        Args:
            features: (B, D) of each layer by its name, B of 4 and up.
            others: the same of the layers to compare with; by default ``features``.

        Raises:
            UsageError: as ``cka_matrix``; layers other than those of the batches before. The batch is not counted.
        """
        batch = _Batch(features, others, unbiased=True)
        if self._batch and (self._batch.names, self._batch.others) != (batch.names, batch.others):
            raise UsageError(
                f"This batch has the layers {', '.join((*batch.names, *batch.others))}; those before had "
                f"{', '.join((*self._batch.names, *self._batch.others))}. Give every batch the same layers in the "
                "same order."
            )
        weighted = tuple(batch.rows * hsic for hsic in batch.hsics())
        before = self._sums or (np.zeros(()),) * 3
        self._sums = (before[0] + weighted[0], before[1] + weighted[1], before[2] + weighted[2])
        self._rows += batch.rows
        self._batch = batch.without_features()

    def value(self) -> CKAMatrix:
        """The CKA of all pairs over the batches so far.

        Raises:
            UsageError: there was none.
        """
        if self._batch is None or self._sums is None:
            raise UsageError("There is no batch yet, and no CKA. Call update() first.")
        return self._batch.matrix(*self._sums, pictures=self._rows)


@dataclass(frozen=True)
class _Centred:
    """Features with their mean taken out: themselves, or their Gram matrix where that is smaller."""

    values: np.ndarray
    is_gram: bool
    squares: np.ndarray  # the diagonal of the Gram matrix


class _Batch:
    """The layers of some pictures, and the HSIC of each pair."""

    def __init__(self, features: Mapping[str, Rows], others: Mapping[str, Rows] | None, unbiased: bool) -> None:
        if not features or (others is not None and not others):
            raise UsageError("There is no layer to compare. Give the features of one or more, by their names.")
        self.unbiased = unbiased
        self.names = tuple(features)
        self.others = self.names if others is None else tuple(others)
        self._left = [_centred(rows, f'"{name}"', unbiased) for name, rows in features.items()]
        self._right = (
            self._left
            if others is None
            else [_centred(rows, f'the other "{name}"', unbiased) for name, rows in others.items()]
        )
        self.rows = len(self._left[0].values)
        labels = [*(f'"{name}"' for name in self.names), *(f'the other "{name}"' for name in self.others)]
        for label, one in zip(labels, self._left + self._right, strict=True):
            check_paired(self._left[0].values, one.values, (labels[0], label))

    def hsics(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The HSIC of each pair (rows, columns), of each row with itself, and of each column with itself."""
        rows = np.array([_hsic(one, one, self.unbiased) for one in self._left])
        if self._right is not self._left:
            columns = np.array([_hsic(one, one, self.unbiased) for one in self._right])
            return self._pairs(), rows, columns
        pairs = np.diag(rows)
        for i, one in enumerate(self._left):
            for j in range(i):
                pairs[i, j] = pairs[j, i] = _hsic(one, self._left[j], self.unbiased)
        return pairs, rows, rows

    def matrix(self, pairs: np.ndarray, rows: np.ndarray, columns: np.ndarray, pictures: int) -> CKAMatrix:
        """CKA out of HSIC."""
        values = [[_ratio(pairs[i, j], rows[i], columns[j]) for j in range(len(columns))] for i in range(len(rows))]
        return CKAMatrix(self.names, self.others, np.array(values), pictures, self.unbiased)

    def without_features(self) -> _Batch:
        self._left, self._right = [], []
        return self

    def _pairs(self) -> np.ndarray:
        return np.array([[_hsic(one, other, self.unbiased) for other in self._right] for one in self._left])


def _centred(features: Rows, name: str, unbiased: bool) -> _Centred:
    """The features less their mean: CKA does not change with it, and what is computed from small numbers is exact."""
    rows = feature_rows(features, name, least=LEAST_ROWS if unbiased else 2).astype(np.float64)
    before = np.square(rows).sum()
    rows -= rows.mean(axis=0)
    squares = np.square(rows).sum(axis=1)
    if squares.sum() <= LEAST_PART**2 * before:  # the rounding of the mean of a constant
        return _Centred(np.zeros((len(rows), 1)), False, np.zeros(len(rows)))
    if rows.shape[1] <= len(rows):
        return _Centred(rows, False, squares)
    return _Centred(rows @ rows.T, True, squares)


def _hsic(one: _Centred, other: _Centred, unbiased: bool) -> float:
    r"""HSIC of linear kernels of centred features, without an n x n matrix where there are fewer dimensions than that.

    Centred rows have :math:`K 1 = 0`. With :math:`d` the diagonal of :math:`K` and :math:`e` that of :math:`L`, hence
    :math:`\tilde K 1 = -d`, and the unbiased estimate is :math:`1 / (n (n - 3))` times

    .. math:: tr(K L) - \frac{n}{n - 2} \sum d e + \frac{\sum d \sum e}{(n - 1) (n - 2)}.
    """
    count = len(one.squares)
    trace = _trace(one, other)
    if not unbiased:
        return trace / (count - 1) ** 2
    diagonals = count / (count - 2) * (one.squares @ other.squares)
    sums = one.squares.sum() * other.squares.sum() / ((count - 1) * (count - 2))
    value = float(trace - diagonals + sums)
    # Compared with itself a layer has 0 or more; what differs from 0 by rounding only would be a CKA of noise.
    if one is other and value <= LEAST_PART * (trace + diagonals + sums):
        return 0.0
    return value / (count * (count - 3))


def _trace(one: _Centred, other: _Centred) -> float:
    """The trace of the product of two Gram matrices."""
    if one.is_gram and other.is_gram:
        return float(np.vdot(one.values, other.values))
    if one.is_gram:
        return float(np.vdot(one.values @ other.values, other.values))
    if other.is_gram:
        return _trace(other, one)
    return float(np.square(one.values.T @ other.values).sum())


def _ratio(hsic: float, one: float, other: float) -> float:
    """CKA out of three HSICs; NaN where it is 0 / 0."""
    if not (one > 0 and other > 0):
        return float("nan")
    return float(hsic / (np.sqrt(one) * np.sqrt(other)))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
