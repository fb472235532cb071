"""Near-duplicates: groups of pictures whose features are almost the same."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from camapp.errors import UsageError
from camapp.features.analysis.rows import BLOCK_VALUES, Rows, feature_rows, row_directions

# Measured on the pooled features of efficientnet_lite0; see the docstring.
THRESHOLD = 0.95
# A side of the blocks of rows that are compared with each other: 16 MB of similarities.
SIDE = 2048


@dataclass(frozen=True, eq=False)
class NearDuplicates:
    """Which pictures are almost the same.

    Args:
        groups: rows that are connected by pairs, each group rising, by their first row. Not every two rows of a group
            need be a pair: a may be like b, and b like c.
        pairs: (P, 2) int64, i < j, by i, then j.
        similarities: (P,) float64, the cosine of each pair.
        threshold: the least of them that counts.
        rows: how many were compared.
    """

    groups: tuple[tuple[int, ...], ...]
    pairs: np.ndarray
    similarities: np.ndarray
    threshold: float
    rows: int

    @property
    def spare(self) -> np.ndarray:
        """The rows to leave out so that one of each group stays, the first: int64, rising."""
        return np.sort(np.array([row for group in self.groups for row in group[1:]], np.int64))

    def __repr__(self) -> str:
        return (
            f"NearDuplicates({len(self.groups)} group(s) of {len(self.spare) + len(self.groups)} of {self.rows} rows, "
            f"cosine {self.threshold:g} and up)"
        )


def near_duplicates(features: Rows, threshold: float = THRESHOLD, *, most_pairs: int = 5_000_000) -> NearDuplicates:
    """Find pictures whose features have a cosine of ``threshold`` or more, and the groups that these pairs connect.

    All rows are compared, in blocks: the memory does not grow with N x N, but for the pairs that are found. Candidates
    are found in float32, with a margin for its rounding, and judged in float64.

    The default suits the pooled last features of a classifier. Of efficientnet_lite0 on 360 different pictures, no two
    reach it (0.91 at most); of their copies, 93 % do as JPEG of quality 50, 98 % mirrored, 77 % at half the size and
    32 % with 5 % cut off at each edge. At 0.9 it is 90 to 100 % of these, and one pair of different pictures. Other
    layers and networks differ: look at some pairs and their similarities.

    Args:
        features: (N, D), numpy or torch, N of 2 and up.
        threshold: above 0, at most 1.
        most_pairs: more than so many are refused: 24 bytes each, and a threshold too low to mean anything.

    Raises:
        UsageError: a threshold out of range, too many pairs, NaN or infinity, a row of zeros.
    """
    if not 0 < threshold <= 1:
        raise UsageError(
            f"threshold = {threshold} is no cosine above 0 and up to 1. Values such as 0.9 or 0.99 are usual."
        )
    rows = feature_rows(features, least=2)
    norms = row_directions(rows, "features")
    pairs, similarities = _pairs(rows, norms, threshold, most_pairs)
    return NearDuplicates(_groups(pairs, len(rows)), pairs, similarities, float(threshold), len(rows))


def _pairs(rows: np.ndarray, norms: np.ndarray, threshold: float, most: int) -> tuple[np.ndarray, np.ndarray]:
    """All pairs i < j of a cosine of ``threshold`` and up, sorted, with their cosines."""
    # The bound of the rounding of an inner product of D terms in float32, for vectors of length 1.
    margin = (rows.shape[1] + 8) * 2.0**-23
    side = max(1, min(SIDE, 4 * BLOCK_VALUES // rows.shape[1]))
    found, cosines, count = [np.empty((0, 2), np.int64)], [np.empty(0)], 0
    for top in range(0, len(rows), side):
        upper = _unit(rows, norms, top, side)
        for left in range(top, len(rows), side):
            lower = upper if left == top else _unit(rows, norms, left, side)
            near = upper @ lower.T
            if left == top:
                near[np.tri(len(near), dtype=bool)] = -np.inf  # each pair once, and no row with itself
            if count + np.count_nonzero(near >= threshold + margin) > most:
                raise _too_many(most, len(rows), threshold)
            candidates = np.argwhere(near >= threshold - margin) + np.array([top, left])
            exact = _cosines(rows, norms, candidates)
            kept = exact >= threshold
            found.append(candidates[kept])
            cosines.append(exact[kept])
            count += int(kept.sum())
            if count > most:
                raise _too_many(most, len(rows), threshold)
    pairs, similarities = np.concatenate(found), np.concatenate(cosines)
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    return pairs[order], similarities[order]


def _too_many(most: int, rows: int, threshold: float) -> UsageError:
    return UsageError(
        f"More than {most:,} of the pairs of {rows:,} rows have a cosine of {threshold:g} and up. Raise the threshold, "
        "or leave out rows that are all the same (or raise most_pairs)."
    )


def _unit(rows: np.ndarray, norms: np.ndarray, start: int, count: int) -> np.ndarray:
    part = slice(start, start + count)
    return (rows[part] / norms[part, None]).astype(np.float32)


def _cosines(rows: np.ndarray, norms: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """The cosine of each pair, by the distance of the unit vectors: exactly 1 for rows that are the same."""
    cosines = np.empty(len(pairs))
    step = max(1, BLOCK_VALUES // rows.shape[1])
    for start in range(0, len(pairs), step):
        part = slice(start, start + step)
        first, second = (rows[side].astype(np.float64) / norms[side, None] for side in pairs[part].T)
        cosines[part] = 1 - np.square(first - second).sum(axis=1) / 2
    return cosines


def _groups(pairs: np.ndarray, count: int) -> tuple[tuple[int, ...], ...]:
    """The connected components of more than one row."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = coo_array((np.ones(len(pairs), bool), (pairs[:, 0], pairs[:, 1])), shape=(count, count))
    labels = connected_components(graph, directed=False)[1]
    members: dict[int, list[int]] = {}
    for row in np.unique(pairs):
        members.setdefault(int(labels[row]), []).append(int(row))
    return tuple(tuple(group) for group in members.values())
