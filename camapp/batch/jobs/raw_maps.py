"""Raw maps of a shard as one column of a Parquet file, in half precision."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from camapp.batch.ledger.manifest import iterate_manifest
from camapp.batch.records import Row
from camapp.errors import UsageError
from camapp.files import whole_file
from camapp.sources.text import printable

FOLDER = "raw"
_PART = re.compile(rf"{FOLDER}/part-\d+\.parquet")
_ROWS_AT_ONCE = 64


@dataclass(frozen=True, eq=False)
class RawMap:
    """The raw map of one class of one picture.

    Args:
        number: of the picture in the source, from 0.
        name: of the picture in the source.
        target: what was explained.
        values: (h, w) float32, the method's signed values at the layer's size.
    """

    number: int
    name: str
    target: str
    values: np.ndarray


@dataclass
class RawMaps:
    """Gathers the raw maps of shards, and writes each shard's as ``raw/part-00012.parquet``.

    The columns are ``number`` (int64), ``name`` and ``target`` (string), ``height`` and ``width`` (int32), ``scale``
    (float32) and ``map`` (list of float16, row by row): a row a map. The raw map is ``map * scale``, where the scale is
    the map's largest absolute value; half precision then keeps it to 2 ** -12 of that, however large or small it is.
    A shard's maps are held in memory until it is whole.
    """

    _shards: dict[int, dict[int, np.ndarray]] = field(default_factory=dict)

    def add(self, shard: int, number: int, raw: np.ndarray) -> None:
        """Keep the raw maps (K, h, w) of one picture until its shard is whole."""
        self._shards.setdefault(shard, {})[number] = raw

    def write(self, out: Path, shard: int, rows: Sequence[Row]) -> str | None:
        """Write the maps of a shard; the file's name in ``out``, or None where there is no map.

        Args:
            out: the export's folder.
            shard: its number.
            rows: of its inputs, in order.
        """
        import pyarrow.parquet as pq

        gathered = self._shards.pop(shard, {})
        maps = [
            RawMap(row.number, row.item.name, target, values)
            for row in rows
            if row.number in gathered
            for target, values in zip(row.explained, gathered[row.number], strict=True)
        ]
        name = f"{FOLDER}/part-{shard:05d}.parquet"
        if not maps:
            (out / name).unlink(missing_ok=True)  # of a run that was killed, and of pictures that were there then
            return None
        (out / FOLDER).mkdir(parents=True, exist_ok=True)
        with whole_file(out / name) as part:
            pq.write_table(
                _table(maps),
                part,
                compression="zstd",
                version="2.6",
                use_dictionary=["target"],
                row_group_size=_ROWS_AT_ONCE,
            )
        return name


def read_raw_maps(out: str | os.PathLike[str]) -> Iterator[RawMap]:
    """The raw maps of a finished export that wrote them as Parquet, in the order of the source, one shard at a time.

    Args:
        out: the export's folder.

    Raises:
        UsageError: the folder holds no finished export, or no such maps.
    """
    for part in _parts_of(out):
        yield from read_part(part)


def read_part(path: Path) -> Iterator[RawMap]:
    """The raw maps in one file that ``RawMaps`` wrote, few of them in memory at a time."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(_ROWS_AT_ONCE):
            halves = batch.column("map")
            for row, facts in enumerate(batch.drop_columns(["map"]).to_pylist()):
                values = halves[row].values.to_numpy(zero_copy_only=False).astype(np.float32)
                values = (values * np.float32(facts["scale"])).reshape(facts["height"], facts["width"])
                yield RawMap(facts["number"], facts["name"], facts["target"], values)


def _parts_of(out: str | os.PathLike[str]) -> list[Path]:
    """The files that the manifest names, in order: others may be left of a run that was killed."""
    named: dict[str, None] = {}
    for row in iterate_manifest(out, columns=["files"]):
        named.update((file, None) for file in row["files"] if _PART.fullmatch(file))
    if not named:
        raise UsageError(
            f"{out} holds no raw maps as Parquet. They are written with outputs=('raw',) and raw_format='parquet' "
            "(camapp heatmaps --outputs raw --raw-format parquet)."
        )
    return [Path(out) / name for name in named]


def _table(maps: Sequence[RawMap]) -> object:
    import pyarrow as pa

    scales = np.array([_largest(one.values) or 1 for one in maps], np.float32)
    halves = [(one.values / scale).astype(np.float16).ravel() for one, scale in zip(maps, scales, strict=True)]
    offsets = np.cumsum([0, *map(len, halves)])
    columns = {
        "number": pa.array([one.number for one in maps], pa.int64()),
        "name": pa.array([printable(one.name) for one in maps]),
        "target": pa.array([one.target for one in maps], pa.string()),
        "height": pa.array([one.values.shape[0] for one in maps], pa.int32()),
        "width": pa.array([one.values.shape[1] for one in maps], pa.int32()),
        "scale": pa.array(scales),
        "map": pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), pa.array(np.concatenate(halves))),
    }
    return pa.table(columns)


def _largest(values: np.ndarray) -> float:
    """The largest absolute value of those that are finite, 0 where none is."""
    return float(np.abs(values[np.isfinite(values)]).max(initial=0.0))
