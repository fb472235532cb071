"""Header: all of a feature table but its arrays, as one JSON text, the same in every format."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from camapp.errors import UsageError
from camapp.features.info import FeatureInfo
from camapp.features.table import FeatureTable
from camapp.features.table_parts import DTYPES

KIND = "camapp features"
VERSION = 1
# The entry of a file that holds the header.
ENTRY = "camapp"


@dataclass(frozen=True)
class StoredLayer:
    """A layer in a file.

    Args:
        name: the layer.
        stored: what the file calls it.
        dtype: the type of its values.
        info: what the feature is.
        crc32: of the bytes of all values; None where the file guards them itself.
    """

    name: str
    stored: str
    dtype: str
    info: FeatureInfo
    crc32: int | None


@dataclass(frozen=True)
class Header:
    """What a file says of its features.

    Args:
        count: the number of pictures.
        labelled: whether each has a label.
        layers: of each picture, in their order.
        provenance: where the features come from.
        failures: pictures left out: name and reason.
        rows_crc32: of all names and labels.
        names: of the pictures, in formats that keep them here; None where they have a place of their own.
        labels: the same.
    """

    count: int
    labelled: bool
    layers: tuple[StoredLayer, ...]
    provenance: Mapping[str, Any]
    failures: tuple[tuple[str, str], ...] = ()
    rows_crc32: int = 0
    names: tuple[str, ...] | None = None
    labels: tuple[str, ...] | None = None

    @classmethod
    def of(cls, table: FeatureTable, stored: Mapping[str, str], *, rows: bool = False, guarded: bool = True) -> Header:
        """The header of a table.

        Args:
            table: the table.
            stored: what the file calls each layer.
            rows: whether the names and labels are kept in the header.
            guarded: whether it keeps checksums of the values.
        """
        return cls.empty(table, stored, guarded=guarded).extended(table, rows=rows)

    @classmethod
    def empty(cls, table: FeatureTable, stored: Mapping[str, str], *, guarded: bool = True) -> Header:
        """The header of no rows yet of tables like this one."""
        start = 0 if guarded else None
        layers = [
            StoredLayer(name, stored[name], table[name].dtype.name, info, start) for name, info in table.info.items()
        ]
        return cls(0, table.labels is not None, tuple(layers), table.provenance)

    def extended(self, table: FeatureTable, *, rows: bool = False) -> Header:
        """The header of the rows so far with those of another table.

        Raises:
            UsageError: the table has other layers, types, infos or provenance, or labels where the others have none.
        """
        for what, have, want in (
            ("layers", _kinds(self), {name: (table[name].dtype.name, info) for name, info in table.info.items()}),
            ("labels", self.labelled, table.labels is not None),
            ("provenance", self.provenance, table.provenance),
        ):
            if have != want:
                raise UsageError(
                    f"Tables of one file need the same {what}, and these differ. Write them to several files."
                )
        return replace(
            self,
            count=self.count + len(table),
            layers=tuple(
                layer if layer.crc32 is None else replace(layer, crc32=_crc32(table[layer.name], layer.crc32))
                for layer in self.layers
            ),
            failures=(*self.failures, *(one for one in table.failures if one not in self.failures)),
            rows_crc32=_rows_crc32(table.names, table.labels, self.rows_crc32),
            names=table.names if rows else None,
            labels=table.labels if rows else None,
        )

    def to_json(self) -> str:
        """The header as ASCII; ``from_json`` is the inverse."""
        facts = {
            "kind": KIND,
            "version": VERSION,
            "count": self.count,
            "labelled": self.labelled,
            "layers": [{**vars(layer), "info": layer.info.to_dict()} for layer in self.layers],
            "provenance": self.provenance,
            "failures": self.failures,
            "rows_crc32": self.rows_crc32,
            "names": self.names,
            "labels": self.labels,
        }
        # The checksum comes last: it is that of the text without it.
        return json.dumps({**facts, "crc32": zlib.crc32(json.dumps(facts).encode())})

    @classmethod
    def from_json(cls, text: str | bytes | None) -> Header:
        """The header of a file.

        Args:
            text: what the file has as its header; None where it has none.

        Raises:
            UsageError: it is none, or of a later version.
            ValueError, LookupError, TypeError: it is damaged.
        """
        if text is None:
            raise foreign()
        facts = json.loads(text)
        if not isinstance(facts, dict) or facts.get("kind") != KIND:
            raise foreign()
        if facts["version"] > VERSION:
            raise UsageError(
                f"written by a later camapp (version {facts['version']} of the format; this one reads {VERSION}). "
                "Update it: pip install --upgrade camapp"
            )
        if facts.pop("crc32") != zlib.crc32(json.dumps(facts).encode()):
            raise ValueError("another header than was written")
        return cls(
            count=int(facts["count"]),
            labelled=bool(facts["labelled"]),
            layers=tuple(_layer(layer) for layer in facts["layers"]),
            provenance=facts["provenance"],
            failures=tuple((name, reason) for name, reason in facts["failures"]),
            rows_crc32=facts["rows_crc32"],
            names=None if facts["names"] is None else tuple(facts["names"]),
            labels=None if facts["labels"] is None else tuple(facts["labels"]),
        )

    def shape(self, layer: StoredLayer) -> tuple[int, ...]:
        """The shape of a layer's features, (N, *size)."""
        return (self.count, *layer.info.size)

    def table(
        self,
        features: Mapping[str, NDArray[Any]],
        names: Sequence[str] | None = None,
        labels: Sequence[str] | None = None,
    ) -> FeatureTable:
        """The table of a file, once its arrays are read.

        Args:
            features: by layer; shapes are those of the header where the number of values is the same.
            names: where the format keeps them outside the header.
            labels: the same; left out where the header says that there are none.

        Raises:
            ValueError: they are not what the header says.
        """
        names = tuple((self.names if names is None else names) or ())
        labels = tuple((self.labels if labels is None else labels) or ()) if self.labelled else None
        if len(names) != self.count or _rows_crc32(names, labels) != self.rows_crc32:
            raise ValueError(f"{len(names)} names of {self.count}, or other names or labels than were written")
        shaped = {}
        for layer in self.layers:
            values = features[layer.name].reshape(self.shape(layer))
            if values.dtype.name != layer.dtype or layer.crc32 not in (None, _crc32(values, 0)):
                raise ValueError(f'other values of "{layer.name}" than were written')
            shaped[layer.name] = values
        info = {layer.name: layer.info for layer in self.layers}
        return FeatureTable(names, shaped, info, labels, self.provenance, self.failures)


def foreign() -> UsageError:
    """The error of a file that something else wrote."""
    return UsageError(
        "not written by camapp: the file has no header of features. Read it with a library of its format, and make a "
        "FeatureTable of its arrays."
    )


def _kinds(header: Header) -> dict[str, tuple[str, FeatureInfo]]:
    return {layer.name: (layer.dtype, layer.info) for layer in header.layers}


def _layer(facts: Mapping[str, Any]) -> StoredLayer:
    if facts["dtype"] not in DTYPES:
        raise ValueError(f"values of the type {facts['dtype']!r}")
    return StoredLayer(
        facts["name"], facts["stored"], facts["dtype"], FeatureInfo.from_dict(facts["info"]), facts["crc32"]
    )


def _crc32(values: NDArray[Any], start: int) -> int:
    # Little-endian, as every format stores them; bytes, since half precision is no type of the buffer protocol.
    data = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    return zlib.crc32(data.reshape(-1).view(np.uint8).data, start)


def _rows_crc32(names: Sequence[str], labels: Sequence[str] | None, start: int = 0) -> int:
    for row in zip(names, labels if labels is not None else [""] * len(names), strict=True):
        start = zlib.crc32("\0".join((*row, "")).encode(), start)
    return start
