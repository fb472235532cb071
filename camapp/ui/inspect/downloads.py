"""The files of what was inspected, made when they are downloaded."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np

from camapp.channels import ChannelMaps
from camapp.errors import UsageError
from camapp.files import safe_name, safe_stem, zipped
from camapp.images.render import ALPHA, png_bytes
from camapp.inspection import Inspection
from camapp.ui.environment import private_folder
from camapp.ui.frame.results import Results
from camapp.ui.inspect.choices import Choices

Query = Mapping[str, str]


def keep_channels(results: Results, maps: ChannelMaps, choices: Choices, owner: str = "") -> str:
    """Keep the channels of a layer, of a visitor's, for download: an overlay of each, and a zip of all; the token."""
    files = {"overlay.png": partial(_overlay, maps), "channels.zip": partial(_channels, maps, choices)}
    label = f"{safe_stem(maps.picture.name)}-{safe_name(maps.layer)[:60]}"
    return results.keep_files(files, label, size=maps.values.nbytes + maps.picture.rgb.nbytes, owner=owner)


def keep_inspection(results: Results, inspection: Inspection, owner: str = "") -> str:
    """Keep the figures of all layers, of a visitor's, for download; the token."""
    label = f"{safe_stem(inspection.pictures[0].name)}-{safe_name(inspection.model)[:60]}"
    return results.keep_files({"inspection.zip": partial(_inspection, inspection)}, label, size=2**20, owner=owner)


def _overlay(maps: ChannelMaps, query: Query) -> bytes:
    channel = query.get("channel", str(maps.top(1)[0]))
    if not channel.isascii() or not channel.isdigit() or len(channel) > 9:
        raise UsageError(f'"{channel[:20]}" is no number of a channel.')
    return png_bytes(np.asarray(maps.overlay(int(channel), alpha=float(query.get("opacity", ALPHA)))))


def _channels(maps: ChannelMaps, choices: Choices, query: Query) -> bytes:
    return zipped(maps.files(choices.most, scale="common" if choices.scale == "common" else "channel"))


def _inspection(inspection: Inspection, query: Query) -> bytes:
    with tempfile.TemporaryDirectory(dir=private_folder()) as folder:
        return zipped({path.name: path.read_bytes() for path in inspection.save(Path(folder))})
