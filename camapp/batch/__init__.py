"""Many pictures: sources of any size, exported shard by shard, each input accounted for, resumed anywhere."""

from camapp.batch.export import export_features, export_heatmaps
from camapp.batch.jobs.raw_maps import RawMap, read_raw_maps
from camapp.batch.ledger import iterate_manifest, read_manifest, read_run
from camapp.batch.running import Columns, ExportReport, RunOptions, TooManyFailures

__all__ = [
    "Columns",
    "ExportReport",
    "RawMap",
    "RunOptions",
    "TooManyFailures",
    "export_features",
    "export_heatmaps",
    "iterate_manifest",
    "read_manifest",
    "read_raw_maps",
    "read_run",
]
