"""The ledger of an export: what is to be done, what is done, and what became of each input, whenever it is killed."""

from camapp.batch.ledger.ledger import Counts, Ledger
from camapp.batch.ledger.manifest import iterate_manifest, manifest_schema, read_manifest, rows_to_table
from camapp.batch.ledger.names import Stems
from camapp.batch.ledger.plan import Planned
from camapp.batch.ledger.run_file import read_run
from camapp.batch.ledger.shards import ShardHandle

__all__ = [
    "Counts",
    "Ledger",
    "Planned",
    "ShardHandle",
    "Stems",
    "iterate_manifest",
    "manifest_schema",
    "read_manifest",
    "read_run",
    "rows_to_table",
]
