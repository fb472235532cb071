"""safetensors: a tensor a layer; names, labels and the rest as JSON in its metadata."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from camapp.errors import UsageError
from camapp.features.formats.header import ENTRY, Header
from camapp.features.formats.names import stored_names
from camapp.features.table import FeatureTable
from camapp.files import whole_file

# The library refuses to read longer headers (safetensors 0.8).
LONGEST_HEADER = 100_000_000


def write(table: FeatureTable, path: Path) -> list[Path]:
    """Write a table; ``safetensors.torch.load_file`` gives the tensors by layer.

    Raises:
        UsageError: more names than a header of safetensors may hold.
    """
    from safetensors.numpy import save_file

    stored = stored_names(table.layers, taken=("__metadata__",))
    metadata = {ENTRY: Header.of(table, stored, rows=True).to_json()}
    # Quotes and backslashes are escaped once more; a layer takes little beside them.
    if len(metadata[ENTRY]) + sum(map(metadata[ENTRY].count, '"\\')) > LONGEST_HEADER - 200_000:
        raise UsageError(
            f"The names of {len(table)} pictures do not fit into the header of a safetensors file, which ends at "
            f"{LONGEST_HEADER} bytes. Write Parquet, or several files."
        )
    tensors = {name: np.ascontiguousarray(table[layer]) for layer, name in stored.items()}
    with whole_file(path) as part:
        part.touch()
        rights = part.stat().st_mode
        save_file(tensors, part, metadata)
        part.chmod(rights)  # the library makes files that only their owner may read (safetensors 0.8)
    return [path]


def read(path: Path) -> FeatureTable:
    """Read a table."""
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        header = Header.from_json((file.metadata() or {}).get(ENTRY))
        features = {layer.name: file.get_tensor(layer.stored) for layer in header.layers}
    return header.table(features)
