"""By what the channels of a layer are ranked: their mean, their maximum, or what they do for a score."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from camapp.errors import UsageError

Ranking: TypeAlias = Literal["mean", "max", "gradient"]

RANKINGS: dict[Ranking, str] = {
    "mean": "mean activation",
    "max": "largest activation",
    "gradient": "gradient × activation, summed",
}


def rank(values: np.ndarray, gradients: np.ndarray | None, ranking: Ranking) -> np.ndarray:
    """(C,) float64: by what the channels (C, h, w) are ranked.

    ``"gradient"`` is the sum over a channel's places of gradient times activation: to first order, how much the score
    would fall if the channel were 0.
    """
    if ranking == "gradient":
        assert gradients is not None, "taken with the activations where they are ranked by"
        with np.errstate(invalid="ignore", over="ignore"):
            return (values.astype(np.float64) * gradients).sum(axis=(1, 2))
    return values.max(axis=(1, 2)).astype(np.float64) if ranking == "max" else mean_of(values)


def checked_ranking(ranking: str) -> Ranking:
    """``ranking`` as one of ``RANKINGS``.

    Raises:
        UsageError: it is none of them.
    """
    for known in RANKINGS:
        if ranking == known:
            return known
    raise UsageError(f"ranking={ranking!r} is no way to rank channels; use one of {', '.join(RANKINGS)}.")


def mean_of(values: np.ndarray) -> np.ndarray:
    """(C,) float64: the mean of each channel; NaN or infinite where a value is."""
    with np.errstate(invalid="ignore", over="ignore"):
        mean: np.ndarray = values.mean(axis=(1, 2), dtype=np.float64)
    return mean
