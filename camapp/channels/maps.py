"""ChannelMaps: every channel of a layer for one picture, best first; counts, paints and saves itself."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from PIL import Image

from camapp.channels.ranking import Ranking, mean_of
from camapp.channels.saving import FILES, contents_of, facts_of
from camapp.errors import UsageError
from camapp.explanation import RANDOM_WEIGHTS
from camapp.files import check_report_folder, write_together
from camapp.images.channels import ChannelGrid, channel_grid, is_flat
from camapp.images.geometry import Geometry
from camapp.images.picture import Picture
from camapp.images.render import ALPHA, overlay, stamp

Scale: TypeAlias = Literal["channel", "common"]

MOST_SHOWN = 64
BINS = 48


@dataclass(frozen=True)
class Histogram:
    """How many values lie between neighbouring edges; the last range takes its upper edge in.

    Args:
        counts: N whole numbers.
        edges: N + 1 values, rising.
    """

    counts: tuple[int, ...]
    edges: tuple[float, ...]


@dataclass(frozen=True, eq=False, repr=False)
class ChannelMaps:
    """What the channels of one layer gave for one picture.

    Args:
        picture: as it was read.
        model: its name.
        weights: where they are from: ``source``, ``sha256``, ``random``.
        layer: its dotted name, with ``@call`` where one call of several was asked for.
        kind: the class of its module.
        values: (C, h, w) float32, the activations.
        gradients: (C, h, w) float32, of the target's score; None unless ranked by them.
        target: what was scored, in words; None unless ranked by gradients.
        score: the score, before any softmax; None likewise.
        ranking: what ``scores`` are, one of ``RANKINGS``.
        scores: (C,) float64, by which the channels are ranked.
        geometry: how the model's input lies in the picture.
        notes: what was done to the picture on the way.
    """

    picture: Picture
    model: str
    weights: dict[str, Any]
    layer: str
    kind: str
    values: np.ndarray
    gradients: np.ndarray | None
    target: str | None
    score: float | None
    ranking: Ranking
    scores: np.ndarray
    geometry: Geometry
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.values)

    @property
    def random_weights(self) -> bool:
        """Whether the model ran without weights, so that nothing here means anything."""
        return bool(self.weights["random"])

    @cached_property
    def order(self) -> np.ndarray:
        """(C,) the channels, those with NaN or infinity first, then by falling score, equal ones by their number."""
        broken = self._nonfinite.any(axis=(1, 2))
        ranked = np.where(np.isfinite(self.scores), self.scores, -np.inf)
        return np.lexsort((-ranked, ~broken))

    def top(self, most: int = MOST_SHOWN) -> tuple[int, ...]:
        """The numbers of the best channels, at most so many, best first."""
        return tuple(int(channel) for channel in self.order[: _checked_count(most)])

    @cached_property
    def dead(self) -> tuple[int, ...]:
        """The channels that are 0 everywhere in this picture."""
        return tuple(int(channel) for channel in np.flatnonzero(~self.values.any(axis=(1, 2))))

    @property
    def zero_share(self) -> float:
        """The share of values that are exactly 0, from 0 to 1."""
        return float((self.values == 0).mean())

    @property
    def nonfinite(self) -> int:
        """How many values are NaN or infinite."""
        return int(self._nonfinite.sum())

    @cached_property
    def ranges(self) -> np.ndarray:
        """(C, 2) float64, the smallest and the largest finite value of each channel; NaN where there is none."""
        low = np.where(self._nonfinite, np.inf, self.values).min(axis=(1, 2)).astype(np.float64)
        high = np.where(self._nonfinite, -np.inf, self.values).max(axis=(1, 2)).astype(np.float64)
        empty = self._nonfinite.all(axis=(1, 2))
        return np.stack([np.where(empty, np.nan, low), np.where(empty, np.nan, high)], axis=1)

    @cached_property
    def means(self) -> np.ndarray:
        """(C,) float64, the mean of each channel; NaN or infinite where a value is."""
        return mean_of(self.values)

    def histogram(self, bins: int = BINS, channel: int | None = None) -> Histogram:
        """How the finite activations are spread, of all channels or of one."""
        values = self.values if channel is None else self.values[self._checked(channel)]
        finite = values[np.isfinite(values)].astype(np.float64)
        if not finite.size:
            return Histogram((), ())
        counts, edges = np.histogram(finite, _checked_count(bins))
        return Histogram(tuple(map(int, counts)), tuple(map(float, edges)))

    def heatmap(self, channel: int, low: float | None = None, high: float | None = None) -> np.ndarray:
        """A channel's map at the picture's own size and place.

        Args:
            channel: its number.
            low: the value that becomes 0; the channel's smallest by default.
            high: the value that becomes 1; the channel's largest by default.

        Returns:
            (H, W) float32 in [0, 1]; 0 where the model saw nothing, where a value is not finite, and everywhere where
            ``low`` and ``high`` are the same but for rounding.
        """
        channel = self._checked(channel)
        bottom, top = self.ranges[channel]
        bottom, top = (bottom if low is None else low), (top if high is None else high)
        if is_flat(bottom, top) or not top > bottom:
            return np.zeros((self.picture.height, self.picture.width), np.float32)
        scaled = (self.values[channel].astype(np.float64) - bottom) / (top - bottom)
        return self.geometry.to_original(np.clip(np.nan_to_num(scaled, nan=0, posinf=0, neginf=0), 0, 1))

    def overlay(self, channel: int, *, alpha: float = ALPHA, colormap: str = "viridis") -> Image.Image:
        """The picture with a channel's map on it, at the picture's own size; a flat map leaves the picture as it is."""
        heatmap = self.heatmap(channel)
        shown = alpha if heatmap.any() else 0.0
        painted = overlay(self.picture.rgb, heatmap, self.geometry, alpha=shown, colormap=colormap)
        return Image.fromarray(stamp(painted, RANDOM_WEIGHTS) if self.random_weights else painted)

    def peak(self, channel: int) -> tuple[float, float] | None:
        """Where in the picture a channel is largest, as shares of its width and height; None for a flat map."""
        low, high = self.ranges[self._checked(channel)]
        if np.isnan(low) or is_flat(low, high):
            return None
        values = np.where(self._nonfinite[channel], -np.inf, self.values[channel])
        height, width = values.shape
        seen = self.geometry
        x = (seen.left + (np.arange(width) + 0.5) * seen.step_x * seen.model[0] / width) / seen.original[0]
        y = (seen.top + (np.arange(height) + 0.5) * seen.step_y * seen.model[1] / height) / seen.original[1]
        inside = ((y >= 0) & (y < 1))[:, None] & ((x >= 0) & (x < 1))  # the rest is what a letterbox padded
        if inside.any():
            values = np.where(inside, values, -np.inf)
        row, column = np.unravel_index(int(values.argmax()), values.shape)
        return float(np.clip(x[column], 0, 1)), float(np.clip(y[row], 0, 1))

    def grid(
        self, most: int = MOST_SHOWN, *, scale: Scale = "channel", colormap: str = "viridis", columns: int | None = None
    ) -> ChannelGrid:
        """The best channels as one picture, best first; see ``camapp.images.channels.channel_grid``."""
        return channel_grid(self.values, chosen=self.top(most), scale=scale, colormap=colormap, columns=columns)

    def to_dict(self, most: int | None = None) -> dict[str, Any]:
        """Figures and settings, ready for JSON; ``most`` lists only the best channels."""
        return facts_of(self, most)

    def files(self, most: int = MOST_SHOWN, *, scale: Scale = "channel", colormap: str = "viridis") -> dict[str, bytes]:
        """The contents of the files that ``save`` writes, by name."""
        return contents_of(self, self.grid(most, scale=scale, colormap=colormap))

    def save(
        self,
        folder: str | os.PathLike[str],
        *,
        most: int = MOST_SHOWN,
        scale: Scale = "channel",
        colormap: str = "viridis",
        overwrite: bool = False,
    ) -> list[Path]:
        """Write channels.npy (all of them, in their own order), .png (the best), .csv and .json; all or none.

        Args:
            folder: made if missing.
            most: how many channels the picture shows.
            scale: ``"channel"``: each from its own smallest to its largest value; ``"common"``: one scale for all.
            colormap: one of ``camapp.images.render.COLORMAPS``.
            overwrite: replace what is there already.

        Returns:
            The files.

        Raises:
            UsageError: they are there already, or ``folder`` is a file; no such scale or colour map.
        """
        check_report_folder(Path(folder), FILES, overwrite=overwrite)
        return write_together(Path(folder), self.files(most, scale=scale, colormap=colormap))

    def _repr_png_(self) -> bytes:
        return self.grid().to_png()

    def __repr__(self) -> str:
        warning = f" {RANDOM_WEIGHTS}" if self.random_weights else ""
        shape = "x".join(map(str, self.values.shape))
        return f"ChannelMaps({self.model}{warning}, {self.layer}: {shape}, {len(self.dead)} dead, by {self.ranking})"

    @cached_property
    def _nonfinite(self) -> np.ndarray:
        return ~np.isfinite(self.values)

    def _checked(self, channel: int) -> int:
        if isinstance(channel, bool) or not isinstance(channel, int | np.integer) or not 0 <= channel < len(self):
            raise UsageError(f"No channel {channel!r} in {self.layer}; it has {len(self)}, counted from 0.")
        return int(channel)


def _checked_count(count: int) -> int:
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
        raise UsageError(f"{count!r} is not a number of 1 and up.")
    return int(count)
