"""Files for the Embedding Projector: features and names as a pair of TSV files, and a configuration for TensorBoard."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from camapp.errors import UsageError
from camapp.features.analysis.rows import Rows, feature_rows
from camapp.files import check_report_folder, write_together

TENSORS, METADATA, CONFIG = "tensors.tsv", "metadata.tsv", "projector_config.pbtxt"

# What ends a cell or a line, for some reader or other.
_BREAKS = re.compile("[\t\n\v\f\r\x00\x1c\x1d\x1e\x85\u2028\u2029]")


def save_projector(
    folder: str | os.PathLike[str],
    features: Rows,
    names: Sequence[object],
    labels: Sequence[object] | Mapping[str, Sequence[object]] | None = None,
    *,
    overwrite: bool = False,
) -> list[Path]:
    r"""Write features for the Embedding Projector: all files or none.

    ``tensors.tsv`` holds a row a picture, ``metadata.tsv`` its name and labels. Load both at projector.tensorflow.org
    ("Load"), which keeps them in the browser; or, without leaving the machine, open the folder with
    ``tensorboard --logdir FOLDER`` and its tab Projector: ``projector_config.pbtxt`` tells it the two files. (The
    projector itself asks for one-column metadata without a header line, and for a header line above several columns.)

    Args:
        folder: made if missing.
        features: (N, D); numbers are written so that they read back equal, in float32 at most.
        names: of the pictures. Tabs and line ends in them are written as ``\t``, ``\n`` and so on; an empty name as
            the number of its row.
        labels: a column named "label", or several columns by their names.
        overwrite: replace the files of an earlier call.

    Returns:
        The files.

    Raises:
        UsageError: numbers of rows, names and labels that differ, NaN or infinity (of float32 too), a folder that
            holds such files already or is a file.
    """
    rows = feature_rows(features)
    columns = {"name": names, **_label_columns(labels)}
    for title, column in columns.items():
        if len(column) != len(rows):
            raise UsageError(
                f'features have {len(rows)} rows and the column "{title}" has {len(column)}. Give one a row, in the '
                "same order."
            )
    folder = Path(folder)
    check_report_folder(folder, (TENSORS, METADATA, CONFIG), overwrite=overwrite)
    contents = {TENSORS: _tensors(rows), METADATA: _metadata(columns), CONFIG: _config().encode()}
    return write_together(folder, contents)


def _label_columns(labels: Sequence[object] | Mapping[str, Sequence[object]] | None) -> dict[str, Sequence[object]]:
    if labels is None:
        return {}
    if not isinstance(labels, Mapping):
        return {"label": labels}
    if "name" in labels:
        raise UsageError('A column of labels is called "name", as that of the names is. Give it another name.')
    return dict(labels)


def _tensors(rows: np.ndarray) -> bytes:
    """The numbers, each in the fewest digits that read back equal."""
    import pyarrow as pa
    import pyarrow.csv

    with np.errstate(over="ignore"):
        values = rows.astype(np.float32)
    if not np.isfinite(values).all():
        raise UsageError("features hold values beyond float32, in which the projector computes. Scale them down.")
    table = pa.table({str(number): column for number, column in enumerate(np.ascontiguousarray(values.T))})
    buffer = io.BytesIO()
    pyarrow.csv.write_csv(table, buffer, pyarrow.csv.WriteOptions(include_header=False, delimiter="\t"))
    return buffer.getvalue()


def _metadata(columns: Mapping[str, Sequence[object]]) -> bytes:
    cells = [[_cell(value) for value in column] for column in columns.values()]
    # An empty line is no row to some readers, and every row needs one.
    cells[0] = [name if name.strip() else f"row {row}" for row, name in enumerate(cells[0])]
    lines = ["\t".join(line) for line in zip(*cells, strict=True)]
    if len(columns) > 1:
        lines.insert(0, "\t".join(map(_cell, columns)))
    # Names of files that are not UTF-8 come from the system with lone surrogates.
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")


def _cell(value: object) -> str:
    return _BREAKS.sub(lambda found: found[0].encode("unicode_escape").decode(), str(value))


def _config() -> str:
    return f'embeddings {{\n  tensor_name: "features"\n  tensor_path: "{TENSORS}"\n  metadata_path: "{METADATA}"\n}}\n'
