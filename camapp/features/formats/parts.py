"""Features in parts, as exports write them: found in a folder, and joined into one table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from camapp.errors import UsageError
from camapp.features.table import FeatureTable

# What ``camapp.export_features`` calls its files, and where it puts them.
FOLDER = "features"
_PART = re.compile(rf"{FOLDER}/part-\d+\.\w+")
_MANIFEST = "manifest.parquet"
# The folder of an export is one that is not finished as long as this is in it.
_UNFINISHED = Path(".camapp", "run.json")


def find_parts(path: Path) -> list[Path]:
    """The parts of the export in a folder, or in the folder above one called ``features``, in order; none elsewhere.

    Those are the files that its manifest names: others may be left of a run that was killed.

    Raises:
        UsageError: the export is not finished.
    """
    for out in (path, path.parent) if path.name == FOLDER else (path,):
        if (out / _UNFINISHED).exists() and (out / FOLDER).is_dir():
            raise UsageError(f"The export in {out} is not finished. Start it again; it goes on where it was.")
        if (out / _MANIFEST).is_file():
            return [out / name for name in _named(out / _MANIFEST)]
    return []


def _named(manifest: Path) -> list[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    named: dict[str, None] = {}
    try:
        with pq.ParquetFile(manifest) as file:
            for batch in file.iter_batches(columns=["files"]):
                named.update(dict.fromkeys(batch.column(0).flatten().to_pylist()))
    except (pa.ArrowInvalid, KeyError, AttributeError):  # a manifest of something else
        return []
    return [name for name in named if _PART.fullmatch(name)]


def join_tables(tables: Sequence[FeatureTable]) -> FeatureTable:
    """The rows of several tables, one table after the other.

    Pictures without a label get an empty one where any has one.

    Args:
        tables: of the same layers, sizes and types.

    Raises:
        UsageError: they differ in their layers, or share a name.
    """
    first = tables[0]
    for table in tables[1:]:
        if dict(table.info) != dict(first.info):
            raise UsageError(
                f"The parts are of different features: {', '.join(first.layers)} and {', '.join(table.layers)}, or of "
                "other sizes. Give parts of one export."
            )
    labelled = any(table.labels is not None for table in tables)
    labels = [label for table in tables for label in (table.labels or [""] * len(table))]
    return FeatureTable(
        names=tuple(name for table in tables for name in table.names),
        features={layer: np.concatenate([table[layer] for table in tables]) for layer in first.layers},
        info=first.info,
        labels=tuple(labels) if labelled else None,
        provenance=first.provenance,
        failures=tuple(failure for table in tables for failure in table.failures),
    )
