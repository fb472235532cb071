"""The shards of an export: a worker's way to the inputs of one, and to saying that it is done."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from camapp.batch.ledger.manifest import MARK, PARQUET_OPTIONS, manifest_schema, rows_to_table
from camapp.batch.ledger.plan import Plan, Planned
from camapp.batch.records import Row
from camapp.files import whole_file

if TYPE_CHECKING:
    import pyarrow as pa

# Of the metadata of a shard's schema: which run it is of, and how many of its inputs failed.
RUN = b"camapp.run"
FAILED = b"camapp.failed"


@dataclass(frozen=True)
class ShardHandle:
    """Reads and finishes shards, in any process; small to pickle, and holds no lock.

    A shard is done if and only if its file is there, which is written last and whole. Finishing one twice does no harm:
    the second file takes the first one's place.

    Args:
        folder: where the plan and the shards are.
        run: the digest of settings and source; a shard of another run is none of this one.
        shard_size: how many inputs a shard has; the last may have fewer.
        total: how many inputs there are.
    """

    folder: Path
    run: str
    shard_size: int
    total: int

    @property
    def count(self) -> int:
        """How many shards there are."""
        return -(-self.total // self.shard_size)

    def numbers(self, shard: int) -> range:
        """The numbers of a shard's inputs."""
        return range(shard * self.shard_size, min((shard + 1) * self.shard_size, self.total))

    def items(self, shard: int) -> list[Planned]:
        """The inputs of a shard, in order: ``(number, item, stem)``; reads no others."""
        return self._plan.items(shard)

    def finish_shard(self, shard: int, rows: Sequence[Row]) -> None:
        """Say that a shard is done; all its outputs must have been written before.

        Args:
            shard: its number.
            rows: one for each of its inputs, in order; their ``shard`` is set here.

        Raises:
            ValueError: the rows are not those of the shard's inputs.
            OSError: the file could not be written; the shard is not done.
        """
        import pyarrow.parquet as pq

        if [row.number for row in rows] != list(self.numbers(shard)):
            raise ValueError(
                f"Shard {shard} has the inputs {self.numbers(shard)}, one row each and in order; these are the rows "
                f"{[row.number for row in rows[:5]]} ({len(rows)} in all)."
            )
        failed = sum(row.status == "failed" for row in rows)
        table = rows_to_table(replace(row, shard=shard) for row in rows)
        table = table.replace_schema_metadata({**MARK, RUN: self.run.encode(), FAILED: str(failed).encode()})
        with whole_file(self.path(shard)) as part:
            pq.write_table(table, part, **PARQUET_OPTIONS)

    def read(self, shard: int) -> pa.Table:
        """The rows of a shard that is done, with the columns of a manifest."""
        import pyarrow.parquet as pq

        with pq.ParquetFile(self.path(shard)) as file:
            return file.read(use_threads=False).replace_schema_metadata(manifest_schema().metadata)

    def failed(self, shard: int) -> int | None:
        """How many inputs of a shard failed; None where its file is damaged or of another run."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with pq.ParquetFile(self.path(shard)) as file:
                rows, facts = file.metadata.num_rows, file.schema_arrow.metadata or {}
        except (OSError, pa.ArrowInvalid):
            return None
        if facts.get(RUN) != self.run.encode() or rows != len(self.numbers(shard)):
            return None
        return int(facts[FAILED])

    def done(self) -> list[int]:
        """The numbers of the shards whose files are there, sorted."""
        with os.scandir(self.shards_folder) as entries:
            stems = [entry.name.removesuffix(".parquet") for entry in entries if entry.name.endswith(".parquet")]
        return sorted(int(stem) for stem in stems if stem.isdecimal() and int(stem) < self.count)

    @property
    def shards_folder(self) -> Path:
        """Where the files of the shards are."""
        return self.folder / "shards"

    def path(self, shard: int) -> Path:
        """The file of a shard."""
        return self.shards_folder / f"{shard:05d}.parquet"

    def close(self) -> None:
        """Close the plan, if it was opened."""
        plan = self.__dict__.pop("_plan", None)
        if plan is not None:
            plan.close()

    @cached_property
    def _plan(self) -> Plan:
        return Plan(self.folder / "plan.parquet", self.shard_size)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_plan"}
