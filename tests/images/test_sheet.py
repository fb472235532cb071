"""The contact sheet: each tile in its place, captions that fit."""

from __future__ import annotations

import numpy as np

from camapp.images.colors import colors_of
from camapp.images.sheet import EMPTY, GAP, TEXT, TITLE, Tile, contact_sheet, cut


def _tile(level: int) -> Tile:
    return Tile(np.full((20, 30, 3), level, np.uint8), f"tile {level}")


def test_tiles_lie_row_by_row_and_a_free_place_stays_paper() -> None:
    sheet = np.asarray(contact_sheet([_tile(10), None, _tile(30), _tile(40)], 2, size=(30, 20), title="title"))
    head, step = TITLE + 2 * GAP, (sheet.shape[0] - (TITLE + 2 * GAP)) // 3
    found = {int(level): np.argwhere((sheet == level).all(2)) for level in (10, 30, 40)}
    assert tuple(found[10].min(0)) == (head, GAP)
    assert found[30].min(0)[0] == found[40].min(0)[0] > head + step // 2
    assert found[40].min(0)[1] == 2 * GAP + 30
    assert all(len(places) >= 600 for places in found.values())
    assert (sheet[head : head + 20, 2 * GAP + 30 : 2 * GAP + 60] == 255).all()


def test_a_tile_without_a_picture_says_why_inside_it() -> None:
    sheet = np.asarray(contact_sheet([Tile(None, "CAM", "no linear head " * 40)], 1, size=(200, 90), title="title"))
    head = TITLE + 2 * GAP
    inside = sheet[head : head + 90, GAP : GAP + 200]
    assert (inside == EMPTY).all(2).any()
    assert (inside != EMPTY).any(2).sum() > 100, "letters"
    assert (inside[-GAP // 2 + 2 :] == EMPTY).all(), "they stay inside"


def test_the_legend_is_the_colour_map_from_first_to_last() -> None:
    sheet = np.asarray(contact_sheet([_tile(10)], 1, size=(300, 20), title="t", colormap="magma"))
    colors = colors_of("magma")
    row = next(row for row in sheet[::-1] if (row == colors[255]).all(1).any())
    assert (row == colors[0]).all(1).any()


def test_a_long_caption_loses_its_middle_and_keeps_both_ends() -> None:
    text = "blocks.3.layers.11.attention.output.dense"
    shorter = cut(text, 120, TEXT)
    assert "…" in shorter
    assert text.startswith(shorter.split("…")[0])
    assert text.endswith(shorter.split("…")[1])
    assert cut("short", 120) == "short"
