"""Raw maps of a shard as one column of a Parquet file, in half precision: a tenth of the files, half of the bytes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from camapp.batch.records import Row
from camapp.errors import UsageError
from camapp.files import whole_file

FOLDER = "raw"


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
        if not maps:
            return None
        name = f"{FOLDER}/part-{shard:05d}.parquet"
        (out / FOLDER).mkdir(parents=True, exist_ok=True)
        with whole_file(out / name) as part:
            pq.write_table(_table(maps), part, compression="zstd", version="2.6", use_dictionary=["target"])
        return name


def read_raw_maps(out: str | os.PathLike[str]) -> Iterator[RawMap]:
    """The raw maps of an export that wrote them as Parquet, in the order of the source, one shard in memory at a time.

    Args:
        out: the export's folder.

    Raises:
        UsageError: there are none in it.
    """
    import pyarrow.parquet as pq

    parts = sorted((Path(out) / FOLDER).glob("part-*.parquet"))
    if not parts:
        raise UsageError(
            f"{out} holds no raw maps as Parquet. They are written with outputs=('raw',) and raw_format='parquet' "
            "(camapp heatmaps --outputs raw --raw-format parquet)."
        )
    for part in parts:
        for row in pq.read_table(part, partitioning=None).to_pylist():
            values = np.array(row["map"], np.float16).astype(np.float32) * np.float32(row["scale"])
            yield RawMap(row["number"], row["name"], row["target"], values.reshape(row["height"], row["width"]))


def _table(maps: Sequence[RawMap]) -> object:
    import pyarrow as pa

    scales = np.array([np.abs(one.values).max() or 1 for one in maps], np.float32)
    halves = [(one.values / scale).astype(np.float16).ravel() for one, scale in zip(maps, scales, strict=True)]
    offsets = np.cumsum([0, *map(len, halves)])
    columns = {
        "number": pa.array([one.number for one in maps], pa.int64()),
        "name": pa.array([one.name.encode("utf-8", "backslashreplace").decode() for one in maps]),
        "target": pa.array([one.target for one in maps], pa.string()),
        "height": pa.array([one.values.shape[0] for one in maps], pa.int32()),
        "width": pa.array([one.values.shape[1] for one in maps], pa.int32()),
        "scale": pa.array(scales),
        "map": pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(np.concatenate(halves))),
    }
    return pa.table(columns)
