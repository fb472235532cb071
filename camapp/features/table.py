"""FeatureTable: the features of many pictures, with their names, their labels and where they come from."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from camapp.errors import LayerError, UsageError, did_you_mean
from camapp.features.info import FeatureInfo
from camapp.features.table_parts import checked_features, checked_rows, checked_texts, listed, plain_facts

if TYPE_CHECKING:
    import pandas as pd
    import torch


@dataclass(frozen=True, eq=False)
class FeatureTable:
    """Features of N pictures.

    Args:
        names: each picture's path inside its source, with forward slashes; no two alike.
        features: by layer, (N, *size) float16, float32 or float64; the order is that of the layers.
        info: by the same names, what each feature is.
        labels: of each picture, where the source has labels.
        provenance: what JSON can hold: the model, its weights, how pictures were prepared, versions.
        failures: pictures left out: name and reason.

    Raises:
        UsageError: lengths, names, sizes or types that do not fit each other.
    """

    names: tuple[str, ...]
    features: Mapping[str, NDArray[Any]]
    info: Mapping[str, FeatureInfo]
    labels: tuple[str, ...] | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    failures: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        names = checked_texts("names", self.names)
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise UsageError(
                f"{len(twice)} name(s) occur more than once, such as {twice[0]!r}. Each picture needs its own name."
            )
        labels = None if self.labels is None else checked_texts("labels", self.labels)
        if labels is not None and len(labels) != len(names):
            raise UsageError(f"{len(labels)} label(s) for {len(names)} picture(s). Give one for each picture, or None.")
        # Names of layers are texts too: a file has to hold them.
        layers = checked_texts("layers", self.features)
        if not layers or set(layers) != set(self.info):
            raise UsageError(
                f"The features are of {listed(layers)}, the info is of {listed(tuple(self.info))}. Both need the "
                "same layers, and at least one."
            )
        features = {
            layer: checked_features(layer, values, len(names), self.info) for layer, values in self.features.items()
        }
        self._set("names", names)
        self._set("labels", labels)
        self._set("features", features)
        self._set("info", {layer: self.info[layer] for layer in layers})
        self._set("provenance", plain_facts(self.provenance))
        self._set("failures", tuple((str(name), str(reason)) for name, reason in self.failures))

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, layer: str) -> NDArray[Any]:
        """The features of a layer, (N, *size).

        Raises:
            LayerError: the table has no such layer.
        """
        if layer not in self.features:
            raise LayerError(
                f'No features of "{layer}".{did_you_mean(layer, self.layers)} The table has {listed(self.layers)}.'
            )
        return self.features[layer]

    __iter__ = None  # or iter() would ask for table[0], table[1] ...

    def __repr__(self) -> str:
        pictures = f"{len(self)} picture{'' if len(self) == 1 else 's'}"
        labelled = "" if self.labels is None else f" of {len(self.classes)} classes"
        shown = [f'"{layer}" {info.size} {self[layer].dtype}' for layer, info in list(self.info.items())[:4]]
        more = f", and {len(self.info) - 4} more layers" if len(self.info) > 4 else ""
        failed = f"; {len(self.failures)} failed" if self.failures else ""
        return f"FeatureTable({pictures}{labelled}: {', '.join(shown)}{more}{failed})"

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of the layers, in their order."""
        return tuple(self.features)

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the labels, each once, sorted; none where the table has no labels."""
        return tuple(sorted(set(self.labels or ())))

    @property
    def targets(self) -> NDArray[np.int64]:
        """The label of each picture as its index in ``classes``, (N,) int64.

        Raises:
            UsageError: the table has no labels.
        """
        if self.labels is None:
            raise UsageError("The table has no labels. Give them: table.with_labels([...]), one for each picture.")
        index = {name: position for position, name in enumerate(self.classes)}
        return np.array([index[label] for label in self.labels], np.int64)

    def torch(self, layer: str) -> torch.Tensor:
        """The features of a layer as a tensor on the CPU, (N, *size), which shares the memory of ``table[layer]``.

        Raises:
            LayerError: the table has no such layer.
        """
        import torch

        values = self[layer]
        # torch warns of arrays that cannot be written, and would write them all the same.
        return torch.from_numpy(values if values.flags.writeable else values.copy())

    def joined(self, layers: Iterable[str] | None = None) -> NDArray[Any]:
        """The features of several layers side by side, each flattened, (N, D); the widest of their types.

        Args:
            layers: which, in this order; None for all.

        Raises:
            LayerError: the table has no such layer.
            UsageError: no layers, or a name in place of a list of names.
        """
        if isinstance(layers, str):
            raise UsageError(f'layers is a list of names: ["{layers}"], not "{layers}".')
        chosen = self.layers if layers is None else tuple(layers)
        if not chosen:
            raise UsageError(f"No layers to join. The table has {listed(self.layers)}.")
        flat = [self.flat(layer) for layer in chosen]
        return flat[0] if len(flat) == 1 else np.concatenate(flat, axis=1)

    def flat(self, layer: str) -> NDArray[Any]:
        """The features of a layer with one row a picture, (N, D), without a copy where that is possible.

        Raises:
            LayerError: the table has no such layer.
        """
        return self[layer].reshape(len(self), math.prod(self.info[layer].size))

    def rows(self, indices: ArrayLike | slice) -> FeatureTable:
        """The table of some pictures, in the order asked for.

        Args:
            indices: numbers from 0, each at most once, negative ones from the end; (N,) bool; or a slice, which copies
                no features.

        Raises:
            UsageError: none of these, or an index twice or out of range.
        """
        chosen = indices if isinstance(indices, slice) else checked_rows(indices, len(self))
        numbers = np.arange(len(self))[chosen].tolist()
        return replace(
            self,
            names=tuple(self.names[number] for number in numbers),
            labels=None if self.labels is None else tuple(self.labels[number] for number in numbers),
            features={layer: values[chosen] for layer, values in self.features.items()},
        )

    def with_labels(self, labels: Sequence[str] | None) -> FeatureTable:
        """The same features with other labels.

        Args:
            labels: one for each picture, or None to remove them.

        Raises:
            UsageError: another number of labels than pictures, or one that is no text.
        """
        return replace(self, labels=None if labels is None else checked_texts("labels", labels))

    def to_pandas(self) -> pd.DataFrame:
        """A data frame of one row a picture: ``path``, ``label`` and a column ``layer[i]`` a value, as in the CSV.

        Raises:
            UsageError: pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError:
            raise UsageError("Data frames need pandas: pip install pandas") from None
        from camapp.features.formats.names import value_columns

        labels = {} if self.labels is None else {"label": list(self.labels)}
        rows = pd.DataFrame({"path": list(self.names), **labels}, dtype=object)
        values = [
            pd.DataFrame(self.flat(layer), columns=value_columns(layer, info.size)) for layer, info in self.info.items()
        ]
        return pd.concat([rows, *values], axis=1)

    def save(
        self,
        path: str | os.PathLike[str],
        format: str | None = None,
        *,
        overwrite: bool = False,
    ) -> list[Path]:
        """Write the table whole or not at all; ``load_features`` reads it back equal.

        Args:
            path: the file, or the folder of ``format="npy"``.
            format: see ``camapp.features.formats.FORMATS``; None for that of the path's suffix, and Parquet where it
                has none.
            overwrite: replace what is there.

        Returns:
            The files.

        Raises:
            UsageError: an unknown format, or something is there already.
        """
        from camapp.features.formats import save_features

        return save_features(self, path, format=format, overwrite=overwrite)

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)  # what a frozen dataclass leaves for __post_init__
