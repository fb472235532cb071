"""The channel view: tiles of a layer's best channels, one of them on the picture, and how the values are spread."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import gradio as gr
import numpy as np

from camapp.channels import RANKINGS, ChannelMaps
from camapp.hooks.report.table import percent
from camapp.images.channels import BROKEN_COLOR, channel_levels
from camapp.images.render import VEIL
from camapp.ui.frame.component import view
from camapp.ui.frame.look import encoded_colormaps
from camapp.ui.frame.pictures import png_url, shown
from camapp.ui.frame.words import figure

LONGEST_SIDE = 720

# What the tiles may have together; of larger maps the page gets coarser ones.
MOST_VALUES = 1_200_000

_HERE = Path(__file__).parent


def channels_view(**options: Any) -> gr.HTML:
    """The component; its value is made by ``channels_of``, ``{"error": message}``, or ``{"waiting": true}``.

    It triggers ``wanted`` where it is seen and has no result.
    """
    return view(_HERE, "channels", veil=VEIL, broken=BROKEN_COLOR, colormaps=encoded_colormaps(), **options)


def channels_of(maps: ChannelMaps, most: int, scale: str, token: str) -> dict[str, Any]:
    """What the view shows: plain data, which the page writes as text.

    Args:
        maps: the layer's channels.
        most: how many are shown at most.
        scale: "channel" or "common".
        token: under which the files are kept for download.

    Returns:
        The picture, at most ``LONGEST_SIDE`` long; the maps of the best channels, one under the other, as levels of
        each channel's own range; where they lie in the picture; and all figures in words.
    """
    picture, geometry = shown(maps.picture, maps.geometry, LONGEST_SIDE)
    best = maps.top(most)
    levels = _levels(maps, best)
    ranges = maps.ranges[list(best)]
    finite = ranges[np.isfinite(ranges).all(axis=1)]
    low, high = (float(finite[:, 0].min()), float(finite[:, 1].max())) if len(finite) else (0.0, 0.0)
    channels, height, width = maps.values.shape
    return {
        "layer": maps.layer,
        "shape": f"{channels} × {height} × {width}",
        "kind": maps.kind,
        "ranking": RANKINGS[maps.ranking],
        "of_target": "" if maps.target is None else f" for {maps.target}",
        "channels": channels,
        "scale": scale,
        "common": [low, high],
        "common_text": [figure(low), figure(high)],
        "levels": png_url(levels),
        "tile": [levels.shape[1], levels.shape[0] // len(best)],
        "tiles": [_tile(maps, channel) for channel in best],
        **picture,
        "origin": [geometry.left, geometry.top],
        "extent": [geometry.step_x * geometry.model[0], geometry.step_y * geometry.model[1]],
        "histogram": _histogram(maps),
        "facts": _facts(maps),
        "warnings": _warnings(maps),
        "token": token,
    }


def _tile(maps: ChannelMaps, channel: int) -> dict[str, Any]:
    low, high = (float(value) for value in maps.ranges[channel])
    broken = int((~np.isfinite(maps.values[channel])).sum())
    peak = maps.peak(channel)
    if broken:
        badge, note = "NaN/Inf", _broken_in_words(broken)
    elif channel in maps.dead:
        badge, note = "dead", "dead: 0 everywhere"
    elif peak is None:
        badge, note = "flat", "the same everywhere"
    else:
        badge = note = ""
    where = "" if peak is None else f"Strongest at {peak[0]:.0%} across, {peak[1]:.0%} down. "
    values = (
        "" if np.isnan(low) else f"From {figure(low)} to {figure(high)}, mean {figure(float(maps.means[channel]))}. "
    )
    return {
        "channel": channel,
        "score": figure(float(maps.scores[channel])),
        "low": low if np.isfinite(low) else None,
        "high": high if np.isfinite(high) else None,
        "flat": peak is None,
        "badge": badge,
        "note": note,
        "words": f"{where}{values}{note[:1].upper()}{note[1:]}{'.' if note else ''}".strip(),
    }


def _levels(maps: ChannelMaps, chosen: tuple[int, ...]) -> np.ndarray:
    """(K * h, w, 3) uint8: red is the level in the channel's own range, green marks what is not finite."""
    values = maps.values[list(chosen)].astype(np.float64)
    pixels = np.zeros((*values.shape, 3), np.uint8)
    pixels[..., 0] = channel_levels(values, *maps.ranges[list(chosen)].T)
    pixels[..., 1] = np.where(np.isfinite(values), 0, 255)
    factor = int(np.ceil(np.sqrt(values.size / MOST_VALUES)))
    if factor > 1:
        size = tuple(max(1, side // factor) for side in (values.shape[2], values.shape[1]))
        pixels = np.stack([cv2.resize(one, size, interpolation=cv2.INTER_AREA) for one in pixels])
    return pixels.reshape(-1, *pixels.shape[2:])


def _histogram(maps: ChannelMaps) -> dict[str, Any]:
    spread = maps.histogram()
    values = int(maps.values.size)
    return {
        "counts": list(spread.counts),
        "edges": list(spread.edges),
        "title": f"Activations of {maps.layer}: {values:,} values",
        "words": _spread_in_words(maps),
    }


def _spread_in_words(maps: ChannelMaps) -> str:
    finite = maps.values[np.isfinite(maps.values)]
    if not finite.size:
        return "None of the values is finite."
    middle = figure(float(np.median(finite)))
    zeros = f"{percent(maps.zero_share)} are exactly 0" if maps.zero_share else "none is exactly 0"
    return f"From {figure(float(finite.min()))} to {figure(float(finite.max()))}, median {middle}; {zeros}."


def _broken_in_words(count: int) -> str:
    return "1 value is NaN or infinite" if count == 1 else f"{count:,} values are NaN or infinite"


def _facts(maps: ChannelMaps) -> list[list[str]]:
    channels = len(maps)
    facts = [
        ["Layer", f"{maps.layer} ({maps.kind})"],
        ["Channels", f"{channels:,} of {maps.values.shape[1]} × {maps.values.shape[2]} places"],
        ["Dead channels", f"{len(maps.dead):,} of {channels:,} ({percent(len(maps.dead) / channels)})"],
        ["Values exactly 0", percent(maps.zero_share)],
        ["NaN or infinite", f"{maps.nonfinite:,} of {maps.values.size:,}"],
    ]
    if maps.target is not None and maps.score is not None:
        facts.append(["Gradient of", f"{maps.target}, score {figure(maps.score)}"])
    return facts


def _warnings(maps: ChannelMaps) -> list[str]:
    found = []
    if maps.nonfinite:
        found.append(f"{_broken_in_words(maps.nonfinite)}: channels that hold such values come first.")
    if len(maps.dead) == len(maps):
        found.append("All channels are dead: the layer is 0 everywhere in this picture.")
    if maps.random_weights:
        found.append("Random weights: what the channels show means nothing.")
    return found
