"""overview: what the features of one layer say at a glance; what they cannot say is a reason, not an error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from camapp.errors import UsageError
from camapp.features.analysis.duplicates import THRESHOLD, NearDuplicates, near_duplicates
from camapp.features.analysis.neighbours import Neighbours, nearest
from camapp.features.analysis.projection import Projection, pca
from camapp.features.analysis.rows import Rows, feature_rows, row_norms

_Found = TypeVar("_Found")


@dataclass(frozen=True, eq=False)
class Overview:
    """How the pictures of a table lie in the features of one layer.

    Args:
        rows: N, how many pictures.
        values: D, numbers a picture.
        mean_norm: of the N lengths (L2).
        norm_deviation: their standard deviation.
        projection: onto the first two principal components; None where there is a reason against it.
        neighbours: of each picture, by cosine; None likewise.
        duplicates: pictures almost the same; None likewise.
        reasons: why one of them is missing, by its name.
    """

    rows: int
    values: int
    mean_norm: float
    norm_deviation: float
    projection: Projection | None
    neighbours: Neighbours | None
    duplicates: NearDuplicates | None
    reasons: dict[str, str]


def overview(features: Rows, *, neighbours: int = 8, threshold: float = THRESHOLD) -> Overview:
    """Projection, nearest neighbours and near-duplicates of features, each where the features allow it.

    Of two pictures there is one principal component, and of one there is none; rows of zeros have no cosine.

    Args:
        features: (N, D), numpy or torch.
        neighbours: at most so many of each picture.
        threshold: of near-duplicates, as for ``near_duplicates``.

    Raises:
        UsageError: features that are no matrix of finite numbers.

    Example:
        >>> seen = overview(table.flat("penultimate"))
        >>> seen.projection.coordinates if seen.projection else seen.reasons["projection"]
    """
    rows = feature_rows(features)
    reasons: dict[str, str] = {}

    def tried(name: str, compute: Callable[[], _Found]) -> _Found | None:
        try:
            return compute()
        except UsageError as error:
            reasons[name] = str(error)
            return None

    norms = row_norms(rows)
    near, same = None, None
    if len(rows) > 1:
        near = tried("neighbours", lambda: nearest(rows, k=min(neighbours, len(rows) - 1)))
        same = tried("duplicates", lambda: near_duplicates(rows, threshold))
    else:
        reasons |= dict.fromkeys(
            ("neighbours", "duplicates"), "There is only one picture, and no other to compare with."
        )
    return Overview(
        rows=len(rows),
        values=rows.shape[1],
        mean_norm=float(norms.mean()),
        norm_deviation=float(norms.std()),
        projection=tried("projection", lambda: _plane(rows)),
        neighbours=near,
        duplicates=same,
        reasons=reasons,
    )


def _plane(rows: np.ndarray) -> Projection:
    if min(len(rows) - 1, rows.shape[1]) < 2:
        raise UsageError(
            f"{len(rows)} picture(s) of {rows.shape[1]} value(s) do not span a plane: that takes three pictures and "
            "two values. Add pictures."
        )
    return pca(rows, 2)
