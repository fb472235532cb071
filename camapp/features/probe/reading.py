"""What users give: features as a matrix, labels as names, each checked with a message that says what is wrong."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from camapp.errors import UsageError

Features = np.ndarray | torch.Tensor

# How many rows or names a message tells.
_TOLD = 5


def feature_matrix(features: Features, what: str = "The features") -> np.ndarray:
    """Features (N, D) as float64, N and D at least 1, all finite.

    Args:
        features: a NumPy array or a tensor of any device, of numbers.
        what: what a message calls them.

    Raises:
        UsageError: another shape or kind, none at all, or values that float32 cannot hold.
    """
    if isinstance(features, torch.Tensor):
        features = features.detach().cpu()
        features = (features.float() if features.dtype == torch.bfloat16 else features).numpy()
    array = np.asarray(features)
    if array.dtype.kind not in "fiub":
        raise UsageError(f"{what} are of type {array.dtype}; a probe is fitted on real numbers (N, D).")
    if array.ndim != 2:
        raise UsageError(
            f"{what} are of shape {array.shape}; a probe takes (N, D), one row a picture. Pool maps to a vector, or "
            "flatten them: features.reshape(len(features), -1)."
        )
    if array.size == 0:
        raise UsageError(f"{what} are empty, of shape {array.shape}: there are no pictures, or no features of them.")
    array = array.astype(np.float64, copy=False)
    unusable = ~(np.abs(array) <= np.finfo(np.float32).max).all(axis=1)  # true for NaN too
    if unusable.any():
        rows = np.flatnonzero(unusable)
        raise UsageError(
            f"{what} hold NaN or infinity (in float32) in {len(rows)} of {len(array)} rows: {_some(rows)}. "
            "Leave those pictures out, or look at the model that made them."
        )
    return array


def label_names(labels: Sequence[str], count: int | None = None, what: str = "labels") -> tuple[str, ...]:
    """The name of each picture's class.

    Args:
        labels: one for each picture.
        count: how many pictures there are, where that is known.
        what: what a message calls them.

    Raises:
        UsageError: another number of them, or something that is no name.
    """
    if labels is None or isinstance(labels, str):
        raise UsageError(f"{what} = {labels!r}; give a sequence of names, one for each picture.")
    names = tuple(labels)
    if not names:
        raise UsageError(f"There are no {what}; each picture needs one.")
    for row, name in enumerate(names):
        if not isinstance(name, str) or not name:
            raise UsageError(
                f"{what}[{row}] = {name!r} is no name. Give texts, such as str(number), and leave out pictures that "
                "have none."
            )
    if count is not None and len(names) != count:
        raise UsageError(f"{len(names)} {what} for {count} rows of features; each picture needs one.")
    return tuple(map(str, names))  # plain texts out of numpy's


def class_names(labels: Sequence[str]) -> tuple[str, ...]:
    """The classes of labels, sorted.

    Raises:
        UsageError: there are fewer than two.
    """
    classes = tuple(sorted(set(labels)))
    if len(classes) < 2:
        raise UsageError(
            f'All pictures are of one class, "{classes[0]}". A probe tells classes apart: give two or more.'
        )
    return classes


def indices(labels: Sequence[str], classes: Sequence[str]) -> np.ndarray:
    """Each label's place among the classes, (N,) int64."""
    places = {name: place for place, name in enumerate(classes)}
    return np.array([places[label] for label in labels], dtype=np.int64)


def check_seed(seed: int) -> int:
    """A seed that NumPy takes.

    Raises:
        UsageError: it is no whole number from 0 up.
    """
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise UsageError(f"seed = {seed!r}; a seed is a whole number from 0 up.")
    return int(seed)


def quoted(names: Sequence[str]) -> str:
    """The first few names in quotes, and how many more there are."""
    return _some([f'"{name}"' for name in names])


def _some(items: Sequence[object] | np.ndarray) -> str:
    more = len(items) - _TOLD
    return ", ".join(map(str, items[:_TOLD])) + (f" and {more} more" if more > 0 else "")
