"""A contact sheet: small pictures in rows and columns, each with its caption, under one title. Pillow; no tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from camapp.images.colors import colors_of

INK, FAINT, PAPER, EMPTY = (24, 28, 36), (92, 99, 112), (255, 255, 255), (241, 243, 246)
TEXT, TITLE, LINE = 13, 17, 18
GAP = 16
LEGEND = (160, 10)


@dataclass(frozen=True, eq=False)
class Tile:
    """One place of a contact sheet.

    Args:
        rgb: (H, W, 3) uint8, all tiles of one size; None where there is no picture, and ``note`` says why.
        caption: a line below it.
        note: a fainter line below that, or the reason, wrapped.
    """

    rgb: np.ndarray | None
    caption: str
    note: str = ""


def contact_sheet(
    tiles: Sequence[Tile | None], columns: int, *, size: tuple[int, int], title: str, colormap: str = "viridis"
) -> Image.Image:
    """Tiles row by row on white, with a title above and the colours' scale from 0 to 1 below.

    Args:
        tiles: in reading order; None leaves a place free.
        columns: how many stand beside each other.
        size: width and height of a tile's picture in pixels.
        title: one line.
        colormap: one of ``COLORMAPS``, as the tiles are painted.
    """
    width, height = size
    rows = -(-len(tiles) // columns)
    head, step = TITLE + 2 * GAP, height + 2 * LINE + GAP
    wide = columns * (width + GAP) + GAP
    sheet = Image.new("RGB", (wide, head + rows * step + LEGEND[1] + LINE + GAP), PAPER)
    draw = ImageDraw.Draw(sheet)
    draw.text((GAP, GAP), cut(title, wide - 2 * GAP, TITLE), INK, _font(TITLE))
    for number, tile in enumerate(tiles):
        row, column = divmod(number, columns)
        if tile is not None:
            _draw(sheet, draw, tile, (GAP + column * (width + GAP), head + row * step), size)
    _draw_legend(sheet, draw, head + rows * step, colormap)
    return sheet


def cut(text: str, width: int, size: int = TEXT) -> str:
    """The text, without its middle where it is wider than ``width`` pixels."""
    font = _font(size)
    if font.getlength(text) <= width:
        return text
    kept = len(text)
    while kept > 2 and font.getlength(_without_middle(text, kept)) > width:
        kept -= 1
    return _without_middle(text, kept)


def _draw(
    sheet: Image.Image, draw: ImageDraw.ImageDraw, tile: Tile, corner: tuple[int, int], size: tuple[int, int]
) -> None:
    (left, top), (width, height) = corner, size
    if tile.rgb is None:
        draw.rectangle((left, top, left + width - 1, top + height - 1), EMPTY)
        room = max(1, (height - GAP) // LINE)
        for line, text in enumerate(_wrapped(tile.note, width - GAP, room)):
            draw.text((left + GAP // 2, top + GAP // 2 + line * LINE), text, FAINT, _font(TEXT))
    else:
        sheet.paste(Image.fromarray(tile.rgb), corner)
    draw.text((left, top + height + 4), cut(tile.caption, width), INK, _font(TEXT))
    if tile.rgb is not None and tile.note:
        draw.text((left, top + height + 4 + LINE), cut(tile.note, width), FAINT, _font(TEXT))


def _draw_legend(sheet: Image.Image, draw: ImageDraw.ImageDraw, top: int, colormap: str) -> None:
    ramp = Image.fromarray(colors_of(colormap)[None]).resize(LEGEND, Image.Resampling.NEAREST)
    sheet.paste(ramp, (GAP + 14, top))
    draw.text((GAP, top - 3), "0", FAINT, _font(TEXT))
    draw.text((GAP + LEGEND[0] + 20, top - 3), "1", FAINT, _font(TEXT))


def _wrapped(text: str, width: int, lines: int) -> list[str]:
    """The text in at most so many lines; the last ends in an ellipsis where more would follow."""
    done, line = [], ""
    for word in text.split():
        longer = f"{line} {word}".strip()
        if line and _font(TEXT).getlength(longer) > width:
            done.append(cut(line, width))
            line = word
        else:
            line = longer
    done.append(cut(line, width))
    if len(done) <= lines:
        return done
    return [*done[: lines - 1], cut(f"{done[lines - 1]}…", width)]


def _without_middle(text: str, kept: int) -> str:
    half = kept // 2
    return f"{text[: kept - half]}…{text[len(text) - half :]}"


@lru_cache(maxsize=4)
def _font(size: int) -> ImageFont.FreeTypeFont:
    font = ImageFont.load_default(size)
    assert isinstance(font, ImageFont.FreeTypeFont), "Pillow's wheels come with FreeType"
    return font
