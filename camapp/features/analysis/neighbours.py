"""Nearest neighbours: the pictures whose features are most like those of a picture, exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from camapp.errors import UsageError, did_you_mean
from camapp.features.analysis.rows import BLOCK_VALUES, Rows, blocks, feature_rows, row_directions, row_norms

METRICS = ("cosine", "euclidean", "dot")


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The k rows nearest to each of Q rows, the nearest first.

    Args:
        indices: (Q, k) int64, rows of the features searched.
        similarities: (Q, k) float32, falling along k: the cosine, minus the Euclidean distance, or the inner product.
        metric: which of them.
    """

    indices: np.ndarray
    similarities: np.ndarray
    metric: str

    def __repr__(self) -> str:
        queries, k = self.indices.shape
        return f"Neighbours({k} of each of {queries} row(s), {self.metric})"


def nearest(features: Rows, query: Rows | None = None, k: int = 5, *, metric: str = "cosine") -> Neighbours:
    """The k rows of ``features`` most similar to each row of ``query``, compared with every one of them.

    Rows that are equally similar come in the order of their numbers. Similarities are computed in float64 and rounded
    to float32, so that equal rows are equally similar, and block by block: beside the features themselves it takes
    about 150 MB.

    Args:
        features: (N, D), numpy or torch.
        query: (Q, D) or (D,), one row; by default the features themselves, each row without itself (its equals count).
        k: how many; 1 to N, or to N - 1 without a query.
        metric: ``"cosine"``, ``"euclidean"`` or ``"dot"``.

    Raises:
        UsageError: an unknown metric, k out of range, D that differ, NaN or infinity, a row of zeros that is to have a
            cosine.

    Example:
        >>> nearest(features, features[7], k=3).indices
    """
    if metric not in METRICS:
        raise UsageError(f'No metric "{metric}".{did_you_mean(str(metric), METRICS)} Metrics: {", ".join(METRICS)}.')
    rows = feature_rows(features)
    asked = rows if query is None else _query_rows(query, rows)
    most = len(rows) - (query is None)
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= most:
        others = " others" if query is None else ""
        raise UsageError(
            f"k = {k!r}; of {len(rows)} rows each has 1 to {most}{others} that can be near. Give k in that."
        )
    norms = _lengths(rows, "features", metric)
    asked_norms = norms if query is None else _lengths(asked, "query", metric)
    indices = np.empty((len(asked), k), np.int64)
    similarities = np.empty((len(asked), k), np.float32)
    step = max(1, min(BLOCK_VALUES // len(rows), BLOCK_VALUES // rows.shape[1]))
    for start in range(0, len(asked), step):
        part = slice(start, start + step)
        near = _similarities(asked[part], asked_norms[part], rows, norms, metric)
        if query is None:
            own = np.arange(len(near))
            near[own, start + own] = -np.inf
        indices[part], similarities[part] = _top(near, k)
    return Neighbours(indices, similarities, metric)


def _query_rows(query: Rows, rows: np.ndarray) -> np.ndarray:
    asked = feature_rows(query[None] if getattr(query, "ndim", 2) == 1 else query, "query")
    if asked.shape[1] != rows.shape[1]:
        raise UsageError(
            f"query has {asked.shape[1]} values a row and features have {rows.shape[1]}. Take both from the same layer "
            "with the same pooling."
        )
    return asked


def _lengths(rows: np.ndarray, name: str, metric: str) -> np.ndarray:
    return row_directions(rows, name) if metric == "cosine" else row_norms(rows)


def _similarities(
    asked: np.ndarray, asked_norms: np.ndarray, rows: np.ndarray, norms: np.ndarray, metric: str
) -> np.ndarray:
    """How similar each row asked for (q, D) is to each row (N, D): (q, N) float32."""
    near = np.empty((len(asked), len(rows)), np.float32)
    asked = asked.astype(np.float64)
    if metric == "cosine":
        asked /= asked_norms[:, None]
    for block in blocks(rows):
        some = rows[block].astype(np.float64)
        if metric == "cosine":
            some /= norms[block, None]
        products = asked @ some.T
        if metric == "euclidean":
            products = _minus_distances(products, asked_norms, norms[block])
        near[:, block] = products
    return near


def _minus_distances(products: np.ndarray, asked_norms: np.ndarray, norms: np.ndarray) -> np.ndarray:
    squares = asked_norms[:, None] ** 2 + norms**2
    apart = squares - 2 * products
    # Below that it is the rounding of the sums: the rows are the same.
    apart[apart <= 1e-14 * squares] = 0
    return -np.sqrt(apart)


def _top(near: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k largest of each row, the largest first, equals in their order."""
    last = np.partition(near, -k, axis=1)[:, -k, None]
    above, equal = near > last, near == last
    wanted = k - above.sum(axis=1, keepdims=True)
    chosen = above | (equal & (np.cumsum(equal, axis=1) <= wanted))
    indices = np.nonzero(chosen)[1].reshape(len(near), k)
    found = np.take_along_axis(near, indices, 1)
    order = np.argsort(-found, axis=1, kind="stable")
    return np.take_along_axis(indices, order, 1), np.take_along_axis(found, order, 1)
