"""What a table of features may be made of."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from camapp.errors import UsageError
from camapp.features.info import FeatureInfo

DTYPES = ("float16", "float32", "float64")


def checked_texts(what: str, values: Iterable[str]) -> tuple[str, ...]:
    """Names, labels or layers, as a tuple of texts that every file format can hold.

    Raises:
        UsageError: one text alone, something else than texts, or a text that files cannot hold.
    """
    if isinstance(values, str):
        raise UsageError(f"{what} is one text, {values[:40]!r}. Give a list of texts.")
    texts = tuple(values)
    for text in texts:
        if not isinstance(text, str):
            raise UsageError(f"{what}: {text!r} is a {type(text).__name__}, not a text. Use str(...).")
        if "\0" in text or not _encodable(text):
            raise UsageError(
                f"{what}: {text!r} holds a NUL or bytes that are no Unicode, which no file format keeps. Rename it, or "
                'spell it with text.encode(errors="surrogateescape").decode(errors="backslashreplace").'
            )
    return tuple(map(str, texts))


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair: Python's stand-in for a byte that is no UTF-8
        return False
    return True


def checked_features(layer: str, values: Any, count: int, info: Mapping[str, FeatureInfo]) -> NDArray[Any]:
    """The features of a layer, (count, *size), in the machine's own byte order.

    Raises:
        UsageError: another type, shape or size than the table and its info have.
    """
    array, size = np.asarray(values), info[layer].size
    if array.dtype.name not in DTYPES:
        raise UsageError(f'The features of "{layer}" are {array.dtype}, not {" or ".join(DTYPES)}. Convert them.')
    if not math.prod(size):
        raise UsageError(f'The size of "{layer}" is {size}: a feature without values.')
    if array.shape != (count, *size):
        raise UsageError(
            f'The features of "{layer}" have the shape {array.shape}; {count} picture(s) and the size {size} of its '
            f"info make {(count, *size)}."
        )
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def plain_facts(provenance: Mapping[str, Any]) -> dict[str, Any]:
    """Facts as JSON makes them: tuples become lists.

    Raises:
        UsageError: something that JSON cannot hold.
    """
    try:
        plain = json.loads(json.dumps(dict(provenance)))
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"The provenance cannot be written as JSON ({error}). Use texts, numbers, lists and dicts."
        ) from None
    return dict(plain)


def checked_rows(indices: ArrayLike, count: int) -> NDArray[Any]:
    """Numbers of rows, from a list of numbers or booleans.

    Raises:
        UsageError: neither, or a number out of range.
    """
    array = np.asarray(indices)
    if array.size == 0 and array.ndim == 1:
        return np.zeros(0, np.int64)
    if array.dtype == bool and array.shape == (count,):
        return np.flatnonzero(array)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise UsageError(
            f"rows takes a list of numbers, {count} booleans or a slice, not {array.dtype} of the shape {array.shape}."
        )
    wrong = array[(array < -count) | (array >= count)]
    if wrong.size:
        raise UsageError(f"Row {wrong[0]} is out of range: the table has {count} picture(s), counted from 0.")
    return array


def listed(layers: Sequence[str], most: int = 6) -> str:
    """Layers in a sentence, the first few of many."""
    shown = ", ".join(f'"{layer}"' for layer in layers[:most]) or "no layer"
    return f"{shown}, ... ({len(layers)} layers)" if len(layers) > most else shown
