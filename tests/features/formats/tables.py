"""Feature tables for the tests of their files: odd names, all types, and what makes two of them equal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st

from camapp.features.info import FeatureInfo
from camapp.features.table import FeatureTable

TEXTS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=12)
ODD_NAMES = ("a,b.jpg", 'say "cat".jpg', "two\nlines\r.jpg", "köttur 猫 😀.jpg", " NA ", "", "nan")
ODD_LAYERS = {
    "layer1.0.relu@0": (3,),
    "features[3]#x:input": (2, 2),
    "a/b": (1,),
    "path": (2,),
    "Label": (),
    "names": (2,),
    "0": (1, 2, 1),
    "end": (1,),
    "x.npy": (2,),
    "../up": (1,),
    ".": (1,),
    "__metadata__": (1,),
    "file": (2,),
    "LAYER1.0.RELU@0": (2,),
    "layer1.0.relu:0": (2,),
    "猫": (1,),
    'two,\n"lines"': (2,),
    "": (1,),
}


def info_of(size: tuple[int, ...]) -> FeatureInfo:
    return FeatureInfo("layer4", "ReLU", "NCHW", (8, 7, 5), (7, 5), (32.0, 45.5), 0, "bfloat16", "gem(3)", size)


def table_of(
    sizes: Mapping[str, tuple[int, ...]], names: tuple[str, ...], dtype: str = "float32", **more: Any
) -> FeatureTable:
    """Features counted up from 0.5, so that each value stands for its place."""
    features = {
        layer: (np.arange(len(names) * math.prod(size)) + 0.5).reshape(len(names), *size).astype(dtype)
        for layer, size in sizes.items()
    }
    return FeatureTable(names, features, {layer: info_of(size) for layer, size in sizes.items()}, **more)


def odd_table(dtype: str = "float32") -> FeatureTable:
    return table_of(
        ODD_LAYERS,
        ODD_NAMES,
        dtype,
        labels=("cat", "", "dog, big", "cat", "\n", "NA", "犬"),
        provenance={"model": "resnet18", "weights": {"sha256": "ab" * 32}, "input": [224, 224], "note": "\udcff 猫"},
        failures=(("broken\n.jpg", "not a picture: 猫"),),
    )


@st.composite
def tables(draw: st.DrawFn) -> FeatureTable:
    """Any table of up to four pictures and three layers; values of any bits, NaNs among them."""
    names = tuple(draw(st.lists(TEXTS, max_size=4, unique=True)))
    labels = draw(st.none() | st.lists(TEXTS, min_size=len(names), max_size=len(names)))
    sizes = draw(st.dictionaries(TEXTS, st.lists(st.integers(1, 3), max_size=3).map(tuple), min_size=1, max_size=3))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    features = {}
    for layer, size in sizes.items():
        dtype = np.dtype(draw(st.sampled_from(["float16", "float32", "float64"])))
        features[layer] = np.frombuffer(random.bytes(len(names) * math.prod(size) * dtype.itemsize), dtype)
        features[layer] = features[layer].reshape(len(names), *size)
    info = {layer: info_of(size) for layer, size in sizes.items()}
    provenance = draw(st.dictionaries(TEXTS, TEXTS | st.integers() | st.none() | st.booleans(), max_size=2))
    failures = tuple(draw(st.lists(st.tuples(TEXTS, TEXTS), max_size=2)))
    return FeatureTable(names, features, info, labels, provenance, failures)


def assert_equal(found: FeatureTable, table: FeatureTable, *, nans_alike: bool = False) -> None:
    """Bit for bit; ``nans_alike`` where a format knows but one NaN."""
    assert found.names == table.names
    assert found.labels == table.labels
    assert found.layers == table.layers
    assert found.info == table.info
    assert found.provenance == table.provenance
    assert found.failures == table.failures
    for layer in table.layers:
        assert found[layer].dtype == table[layer].dtype
        assert found[layer].shape == table[layer].shape
        assert bits(found[layer], nans_alike) == bits(table[layer], nans_alike)


def bits(values: np.ndarray, nans_alike: bool) -> bytes:
    if nans_alike:
        values = np.where(np.isnan(values), np.array(np.nan, values.dtype), values)
    return values.tobytes()
