"""Features as a matrix of a row a picture: checked once, and read block by block in float64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from camapp.errors import UsageError

if TYPE_CHECKING:
    import torch

Rows: TypeAlias = "np.ndarray | torch.Tensor"

# Values of a block in float64: 32 MB.
BLOCK_VALUES = 2**22


def feature_rows(features: Rows, name: str = "features", *, least: int = 1) -> np.ndarray:
    """The features as a matrix on the CPU, a row a picture, not copied where they are one already.

    Args:
        features: (N, D) of real numbers, numpy or torch.
        name: what an error calls them.
        least: how many rows there must be.

    Returns:
        (N, D) in their own type; bfloat16 as float32, whole numbers as float64.

    Raises:
        UsageError: no matrix of numbers, too few rows, NaN or infinity.
    """
    matrix = _as_array(features, name)
    if matrix.ndim != 2 or not matrix.shape[1]:
        raise UsageError(
            f"{name} has the shape {tuple(matrix.shape)}; wanted is (N, D), a row a picture. Pool maps first, or "
            "flatten them: features.reshape(len(features), -1)."
        )
    if len(matrix) < least:
        raise UsageError(f"{name} has {len(matrix)} row(s); at least {least} are needed. Add pictures.")
    broken = [
        int(row) for block in blocks(matrix) for row in block.start + np.flatnonzero(~_finite_rows(matrix[block]))
    ]
    if broken:
        shown = ", ".join(map(str, broken[:5])) + (", ..." if len(broken) > 5 else "")
        raise UsageError(
            f"{len(broken)} of the {len(matrix)} rows of {name} hold NaN or infinity (rows {shown}). Leave them out, "
            "or look at what the layer gives for these pictures."
        )
    return matrix


def check_paired(left: np.ndarray, right: np.ndarray, names: tuple[str, str]) -> None:
    """Raise a UsageError where two matrices are not of the same pictures."""
    if len(left) != len(right):
        raise UsageError(
            f"{names[0]} has {len(left)} rows and {names[1]} has {len(right)}. Row i of both must be the same picture: "
            "take the features of both from the same pictures in the same order."
        )


def blocks(matrix: np.ndarray, values: int = BLOCK_VALUES) -> Iterator[slice]:
    """Slices of rows, one behind the other, of at most ``values`` values each (but a row at least)."""
    rows = max(1, values // matrix.shape[1])
    for start in range(0, len(matrix), rows):
        yield slice(start, min(start + rows, len(matrix)))


def row_norms(matrix: np.ndarray) -> np.ndarray:
    """The Euclidean length of each row, (N,) float64."""
    norms = np.empty(len(matrix))
    for block in blocks(matrix):
        norms[block] = np.linalg.norm(matrix[block].astype(np.float64), axis=1)
    return norms


def row_directions(matrix: np.ndarray, name: str) -> np.ndarray:
    """The length of each row, (N,) float64, of rows that each have a direction.

    Raises:
        UsageError: a row is all zero: its cosine similarity to others is not defined.
    """
    norms = row_norms(matrix)
    empty = np.flatnonzero(norms == 0)
    if len(empty):
        shown = ", ".join(map(str, empty[:5])) + (", ..." if len(empty) > 5 else "")
        raise UsageError(
            f"{len(empty)} of the {len(matrix)} rows of {name} are all zero (rows {shown}) and have no direction, so "
            "no cosine similarity. Leave them out."
        )
    return norms


def _as_array(features: Rows, name: str) -> np.ndarray:
    if hasattr(features, "detach"):  # a tensor; torch itself need not be imported for that
        tensor = features.detach().cpu()
        features = (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()
    try:
        matrix = np.asarray(features)
    except ValueError as error:  # lists of unlike lengths
        raise UsageError(f"{name} is no matrix of numbers: {error}.") from error
    if matrix.dtype.kind in "iub":
        return matrix.astype(np.float64)
    if matrix.dtype.kind != "f":
        raise UsageError(f"{name} holds {matrix.dtype} values; wanted are real numbers, such as float32.")
    return matrix


def _finite_rows(block: np.ndarray) -> np.ndarray:
    return np.isfinite(block).all(axis=1)
