"""The channels of a layer as one picture: a grid of small maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from camapp.errors import UsageError
from camapp.images.colors import colors_of, levels_of, png_bytes

if TYPE_CHECKING:
    import torch

# Between the tiles, on a white page and on a dark one; in none of the colour maps, grey among them.
GAP_COLOR = (176, 181, 196)
# NaN and infinity; far from all colours of the maps.
BROKEN_COLOR = (255, 0, 255)
# Without a wish, tiles are enlarged until the picture is about this wide, but none beyond that.
WIDTH, LARGEST_CELL, SMALLEST_CELL = 800, 256, 48
# A channel whose values differ by less than this part of them is constant, and differs by rounding.
LEAST_PART = 1e-6


@dataclass(frozen=True, eq=False)
class ChannelGrid:
    """Channels side by side.

    Args:
        pixels: (H, W, 3) uint8 RGB.
        channels: the number of the channel in each tile, row by row; rising, unless another order was asked for.
        left_out: how many channels are not shown; those shown vary most, unless others were asked for.
        ranges: (shown, 2) float64, the values painted as the first and the last colour in each tile; the same in all
            tiles on a common scale, NaN where no value is finite.
        constant: the channels shown that are the same everywhere.
        broken: the channels shown that hold NaN or infinity, painted magenta there.
        columns: tiles in a row.
        tile: height and width of a tile in pixels.
        gap: pixels between the tiles, and around them.
    """

    pixels: np.ndarray
    channels: tuple[int, ...]
    left_out: int
    ranges: np.ndarray
    constant: tuple[int, ...]
    broken: tuple[int, ...]
    columns: int
    tile: tuple[int, int]
    gap: int

    def place(self, number: int) -> tuple[slice, slice]:
        """The rows and columns of pixels that tile ``number`` takes, counted from 0."""
        return _place(number, self.columns, self.tile, self.gap)

    def to_png(self) -> bytes:
        """The picture as a file."""
        return png_bytes(self.pixels)

    def _repr_png_(self) -> bytes:
        return self.to_png()

    def __repr__(self) -> str:
        height, width = self.pixels.shape[:2]
        left = f", {self.left_out} left out" if self.left_out else ""
        return f"ChannelGrid({len(self.channels)} channels{left}, {width}x{height})"


def channel_grid(
    maps: np.ndarray | torch.Tensor,
    *,
    scale: Literal["channel", "common"] = "channel",
    columns: int | None = None,
    most: int | None = 64,
    chosen: Sequence[int] | None = None,
    gap: int = 1,
    cell: int | None = None,
    colormap: str = "viridis",
) -> ChannelGrid:
    """Paint the channels of a layer for one picture as one picture, a tile a channel.

    Each value is a square of its own: tiles are enlarged by a whole number, without smoothing. NaN and infinity are
    magenta. A channel that is the same everywhere is flat, and on a scale of its own, where its value has no colour,
    crossed out.

    Args:
        maps: (C, h, w) of real numbers, or (1, C, h, w).
        scale: ``"channel"``: each from its own smallest to its own largest value; ``"common"``: all from the smallest
            to the largest value of those shown, so that strong channels look strong.
        columns: tiles in a row; by default as many as make the picture most nearly square.
        most: show at most so many, those of the greatest variance, in the order of the channels; those with NaN or
            infinity come before all others. None shows all.
        chosen: show these channels instead, in this order.
        gap: pixels between tiles and around them, 0 and up.
        cell: about how many pixels the longer side of a tile shall have; by default the picture is about 800 wide.
        colormap: one of ``camapp.images.render.COLORMAPS``.

    Raises:
        UsageError: other shapes, no real numbers, an unknown scale or colour map, numbers out of range.

    Example:
        >>> channel_grid(capture["layer2"].activation[0]).to_png()
    """
    values = _checked(maps)
    if scale not in ("channel", "common"):
        raise UsageError(f'No scale "{scale}". Scales: channel, common.')
    for name, given, least in (("columns", columns, 1), ("most", most, 1), ("gap", gap, 0), ("cell", cell, 1)):
        _check_number(name, given, least)
    colors = colors_of(colormap)
    if chosen is None:
        channels = _most_varied(values, len(values) if most is None else most)
    else:
        channels = _checked_choice(chosen, len(values))
    shown = values[list(channels)]
    finite = np.isfinite(shown)
    low, high = _ranges(shown, finite)
    flat = is_flat(low, high)
    if scale == "common" and not np.isnan(low).all():
        low, high = np.full_like(low, np.nanmin(low)), np.full_like(high, np.nanmax(high))
    tiles = colors[channel_levels(shown, low, high)]
    tiles[~finite] = BROKEN_COLOR
    height, width = shown.shape[1:]
    columns = min(len(shown), columns or max(1, ceil(sqrt(len(shown) * height / width) - 1e-9)))
    factor = _factor(max(height, width), columns * width / max(height, width), cell)
    tiles = tiles.repeat(factor, axis=1).repeat(factor, axis=2)
    if scale == "channel":
        for at in np.flatnonzero(flat & finite.all(axis=(1, 2))):
            _cross_out(tiles[at])
    return ChannelGrid(
        pixels=_laid_out(tiles, columns, gap),
        channels=channels,
        left_out=len(values) - len(channels),
        ranges=np.stack([low, high], axis=1),
        constant=tuple(channels[i] for i in np.flatnonzero(flat)),
        broken=tuple(channels[i] for i in np.flatnonzero(~finite.all(axis=(1, 2)))),
        columns=columns,
        tile=(height * factor, width * factor),
        gap=gap,
    )


def is_flat(low: np.ndarray | float, high: np.ndarray | float) -> Any:
    """Whether channels from ``low`` to ``high`` are the same everywhere but for rounding; False where they are NaN.

    Args:
        low: (C,) or a number.
        high: likewise.

    Returns:
        (C,) bool, or one.
    """
    return np.subtract(high, low) <= LEAST_PART * np.maximum(np.abs(low), np.abs(high))


def channel_levels(maps: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Channels as levels of their colours.

    Args:
        maps: (C, h, w).
        low: (C,), the value of each that becomes 0.
        high: (C,), the value of each that becomes 255.

    Returns:
        (C, h, w) uint8; 0 in a flat channel, and where a value is not finite.
    """
    span = np.where(is_flat(low, high), np.inf, high - low)
    with np.errstate(invalid="ignore"):
        stretched = (maps - low[:, None, None]) / span[:, None, None]
    return levels_of(np.nan_to_num(stretched, nan=0, posinf=0, neginf=0))


def _checked(maps: np.ndarray | torch.Tensor) -> np.ndarray:
    """The maps as (C, h, w) float64."""
    values = maps.detach().cpu().double().numpy() if hasattr(maps, "detach") else np.asarray(maps)
    if values.dtype.kind not in "fiub":
        raise UsageError(f"Maps of {values.dtype} cannot be painted; wanted are real numbers.")
    if values.ndim == 4 and len(values) == 1:
        values = values[0]
    if values.ndim != 3 or not values.size:
        hint = " Choose one of the batch: maps[0]." if values.ndim == 4 and len(values) else ""
        raise UsageError(f"Maps have the shape {tuple(values.shape)}; wanted are (channels, height, width).{hint}")
    return values.astype(np.float64)


def _check_number(name: str, number: int | None, least: int) -> None:
    if number is None:
        return
    if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < least:
        raise UsageError(f"{name} = {number!r}; wanted is a whole number of {least} and up.")


def _checked_choice(chosen: Sequence[int], count: int) -> tuple[int, ...]:
    wrong = [one for one in chosen if isinstance(one, bool) or not 0 <= one < count]
    if wrong or not len(chosen):
        what = f"no channel {wrong[0]!r} among {count}, counted from 0" if wrong else "no channel is chosen"
        raise UsageError(f"There is nothing to paint: {what}.")
    return tuple(int(one) for one in chosen)


def _most_varied(values: np.ndarray, most: int) -> tuple[int, ...]:
    """The channels to show, rising; of equal ones the first."""
    with np.errstate(invalid="ignore", over="ignore"):
        variance = values.var(axis=(1, 2))
    variance[~np.isfinite(variance)] = np.inf
    return tuple(int(channel) for channel in np.sort(np.argsort(-variance, kind="stable")[:most]))


def _ranges(shown: np.ndarray, finite: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The smallest and the largest finite value of each channel; NaN where there is none."""
    low = np.where(finite, shown, np.inf).min(axis=(1, 2))
    high = np.where(finite, shown, -np.inf).max(axis=(1, 2))
    empty = ~finite.any(axis=(1, 2))
    return np.where(empty, np.nan, low), np.where(empty, np.nan, high)


def _factor(longer: int, columns: float, cell: int | None) -> int:
    wanted = cell or min(LARGEST_CELL, max(SMALLEST_CELL, WIDTH / columns))
    return max(1, round(wanted / longer))


def _cross_out(tile: np.ndarray) -> None:
    """A line from the lower left to the upper right corner, in place."""
    height, width = tile.shape[:2]
    rows, columns = np.ogrid[:height, :width]
    off = np.abs(rows / max(1, height - 1) + columns / max(1, width - 1) - 1) * min(height, width)
    tile[off <= max(1, min(height, width) / 40)] = GAP_COLOR


def _laid_out(tiles: np.ndarray, columns: int, gap: int) -> np.ndarray:
    count, height, width = tiles.shape[:3]
    rows = ceil(count / columns)
    pixels = np.empty((rows * (height + gap) + gap, columns * (width + gap) + gap, 3), np.uint8)
    pixels[:] = GAP_COLOR
    for number, tile in enumerate(tiles):
        pixels[_place(number, columns, (height, width), gap)] = tile
    return pixels


def _place(number: int, columns: int, tile: tuple[int, int], gap: int) -> tuple[slice, slice]:
    row, column = divmod(number, columns)
    top, left = gap + row * (tile[0] + gap), gap + column * (tile[1] + gap)
    return slice(top, top + tile[0]), slice(left, left + tile[1])
