"""The channels of a layer as files: all values, the best as a picture, and the figures of each as table and JSON."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from camapp.explanation import RANDOM_WEIGHTS
from camapp.hooks.report.json_form import json_number
from camapp.images.channels import ChannelGrid
from camapp.images.render import png_bytes, stamp
from camapp.version import versions

if TYPE_CHECKING:
    from camapp.channels.maps import ChannelMaps

FILES = ("channels.npy", "channels.png", "channels.csv", "channels.json")


def contents_of(maps: ChannelMaps, painted: ChannelGrid) -> dict[str, bytes]:
    """What ``FILES`` hold: the values (C, h, w) float32 in the channels' own order, the picture, and the figures."""
    values = io.BytesIO()
    np.save(values, maps.values)
    pixels = stamp(painted.pixels, RANDOM_WEIGHTS) if maps.random_weights else painted.pixels
    facts = {**facts_of(maps), "grid": {"channels": list(painted.channels), "columns": painted.columns}}
    return {
        "channels.npy": values.getvalue(),
        "channels.png": png_bytes(pixels),
        "channels.csv": _table(maps).encode(),
        "channels.json": json.dumps(facts, indent=1, ensure_ascii=False, allow_nan=False).encode(),
    }


def facts_of(maps: ChannelMaps, most: int | None = None) -> dict[str, Any]:
    """Figures and settings, ready for JSON; ``most`` lists only the best channels."""
    spread = maps.histogram()
    return {
        "picture": maps.picture.name,
        "model": maps.model,
        "weights": maps.weights,
        "layer": maps.layer,
        "class": maps.kind,
        "shape": list(maps.values.shape),
        "ranking": maps.ranking,
        "target": maps.target,
        "score": json_number(maps.score),
        "values": int(maps.values.size),
        "zero_share": maps.zero_share,
        "nonfinite": maps.nonfinite,
        "dead_channels": list(maps.dead),
        "histogram": {"counts": list(spread.counts), "edges": list(spread.edges)},
        "channels": [
            {name: json_number(value) if isinstance(value, float) else value for name, value in row.items()}
            for row in _rows(maps, len(maps) if most is None else most)
        ],
        "notes": list(maps.notes),
        "versions": versions(),
    }


def _rows(maps: ChannelMaps, most: int) -> list[dict[str, Any]]:
    broken = (~np.isfinite(maps.values)).sum(axis=(1, 2))
    return [
        {
            "rank": rank + 1,
            "channel": channel,
            "score": float(maps.scores[channel]),
            "mean": float(maps.means[channel]),
            "lowest": float(maps.ranges[channel, 0]),
            "highest": float(maps.ranges[channel, 1]),
            "nonfinite": int(broken[channel]),
        }
        for rank, channel in enumerate(maps.top(most))
    ]


def _table(maps: ChannelMaps) -> str:
    text = io.StringIO()
    rows = _rows(maps, len(maps))
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
