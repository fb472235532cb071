"""HDF5: a data set a layer in the group ``features``, and the data sets ``names`` and ``labels``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from camapp.errors import UsageError
from camapp.features.formats.header import ENTRY, Header
from camapp.features.formats.names import stored_names
from camapp.features.table import FeatureTable
from camapp.files import whole_file

if TYPE_CHECKING:
    import h5py


def write(table: FeatureTable, path: Path) -> list[Path]:
    """Write a table; each data set has its layer's own name as the attribute ``layer``.

    Contiguous, not compressed: any part can be read without the rest, at the speed of the disk.

    Raises:
        UsageError: h5py is not installed.
    """
    h5py = _h5py()
    stored = stored_names(table.layers, _allowed)
    texts = {"names": table.names, "labels": table.labels}
    with whole_file(path) as part, h5py.File(part, "w") as file:
        for layer, name in stored.items():
            file.create_dataset(f"features/{name}", data=table[layer]).attrs["layer"] = layer
        for name, values in texts.items():
            if values is not None:
                file.create_dataset(name, data=np.array(values, dtype=object), dtype=h5py.string_dtype())
        file.create_dataset(ENTRY, data=Header.of(table, stored).to_json(), dtype=h5py.string_dtype())
    return [path]


def read(path: Path) -> FeatureTable:
    """Read a table, each data set straight into its place.

    Raises:
        UsageError: h5py is not installed.
    """
    h5py = _h5py()
    with h5py.File(path, "r") as file:
        header = Header.from_json(file[ENTRY][()] if ENTRY in file else None)
        features = {}
        for layer in header.layers:
            found = file["features"][layer.stored]
            if found.shape != header.shape(layer):
                raise ValueError(f"{layer.stored} is {found.shape}, not {header.shape(layer)}")
            values = np.empty(found.shape, layer.dtype)
            if values.size:
                found.read_direct(values)
            features[layer.name] = values
        labels = _texts(file["labels"]) if header.labelled else None
        return header.table(features, _texts(file["names"]), labels)


def _h5py() -> Any:
    try:
        import h5py
    except ImportError:
        raise UsageError('HDF5 needs h5py: pip install "camapp[hdf5]"') from None
    return h5py


def _allowed(layer: str) -> str:
    name = layer.replace("/", "_")  # a slash makes a group, a dot alone means the group itself
    return name if name.strip(".") else f"layer{name.replace('.', '_')}"


def _texts(dataset: h5py.Dataset) -> list[str]:
    return list(dataset.asstr()[()].tolist()) if len(dataset) else []
