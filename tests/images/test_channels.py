"""Channel grids: each value at its place in its colour, layout, scales, what is broken, what is left out."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from camapp.errors import UsageError
from camapp.images.channels import BROKEN_COLOR, GAP_COLOR
from camapp.images.render import COLORMAPS, channel_grid, colors_of


def gray(grid: object, number: int, factor: int) -> np.ndarray:
    """The levels of a tile, one a value."""
    tile = grid.pixels[grid.place(number)]  # type: ignore[attr-defined]
    return tile[::factor, ::factor, 0]


def test_two_channels_by_hand() -> None:
    maps = np.array([[[0.0, 1.0], [2.0, 4.0]], [[-1.0, 1.0], [0.0, 0.0]]])
    grid = channel_grid(maps, colormap="gray", cell=4, columns=2)
    assert grid.tile == (4, 4)
    assert grid.pixels.shape == (6, 11, 3)
    assert gray(grid, 0, 2).tolist() == [[0, 64], [128, 255]]
    assert gray(grid, 1, 2).tolist() == [[0, 255], [128, 128]]
    assert grid.ranges.tolist() == [[0, 4], [-1, 1]]
    common = channel_grid(maps, scale="common", colormap="gray", cell=4, columns=2)
    assert gray(common, 0, 2).tolist() == [[51, 102], [153, 255]]
    assert gray(common, 1, 2).tolist() == [[0, 102], [51, 51]]
    assert common.ranges.tolist() == [[-1, 4], [-1, 4]]


@given(
    count=st.integers(1, 12),
    size=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    columns=st.none() | st.integers(1, 15),
    gap=st.integers(0, 3),
    cell=st.integers(1, 12),
)
@settings(max_examples=80, deadline=None)
def test_every_tile_is_at_its_place_and_all_else_is_gap(
    count: int, size: tuple[int, int], columns: int | None, gap: int, cell: int
) -> None:
    maps = np.random.default_rng(0).random((count, *size))
    grid = channel_grid(maps, scale="common", columns=columns, gap=gap, cell=cell, colormap="gray")
    factor = max(1, round(cell / max(size)))
    rest = np.ones(grid.pixels.shape[:2], bool)
    low, high = maps.min(), maps.max()
    for number, channel in enumerate(maps):
        levels = (channel - low) / (high - low) * 255 if high > low else 0 * channel
        wanted = np.kron(levels, np.ones((factor, factor)))
        assert np.abs(grid.pixels[grid.place(number)][..., 0] - wanted).max() <= 0.5 + 1e-9
        rest[grid.place(number)] = False
    assert (grid.pixels[rest] == GAP_COLOR).all()
    across = min(count, columns or grid.columns)
    down = -(-count // across)
    assert grid.columns == across
    assert grid.pixels.shape[:2] == tuple(
        n * (side * factor + gap) + gap for n, side in zip((down, across), size, strict=True)
    )


@given(count=st.integers(1, 200), height=st.integers(1, 30), width=st.integers(1, 30))
@settings(max_examples=80, deadline=None)
def test_the_default_layout_is_no_further_from_a_square_than_a_tile(count: int, height: int, width: int) -> None:
    grid = channel_grid(np.zeros((count, height, width)), gap=0, cell=1, most=None)
    down, across = -(-count // grid.columns) * height, grid.columns * width
    if grid.columns not in (1, count):
        assert down <= across + height
        assert across <= down + max(height, 2 * width)


def test_the_channels_of_greatest_variance_are_shown_in_their_order() -> None:
    noise = np.random.default_rng(0).normal(size=(6, 4, 4))
    strengths = np.array([1, 5, 0.1, 3, 4, 2])
    grid = channel_grid(noise * strengths[:, None, None] + 100 * np.arange(6)[:, None, None], most=3)
    assert grid.channels == (1, 3, 4)
    assert grid.left_out == 3
    assert channel_grid(noise, most=None).channels == tuple(range(6))
    assert channel_grid(np.zeros((9, 2, 2)), most=4).channels == (0, 1, 2, 3)


def test_channels_alone_look_as_they_do_in_the_grid() -> None:
    maps = np.random.default_rng(0).normal(size=(5, 3, 3))
    grid = channel_grid(maps, cell=9)
    for number, channel in enumerate(maps):
        alone = channel_grid(channel[None], cell=9)
        np.testing.assert_array_equal(grid.pixels[grid.place(number)], alone.pixels[alone.place(0)])


@pytest.mark.parametrize("value", [0.0, 7.3, -1e-30])
def test_a_constant_channel_is_flat_and_crossed_out_on_its_own_scale(value: float) -> None:
    maps = np.stack([np.full((4, 4), value), np.arange(16.0).reshape(4, 4)])
    grid = channel_grid(maps, cell=40)
    assert grid.constant == (0,)
    first = colors_of("viridis")[0]
    tile = grid.pixels[grid.place(0)]
    crossed = (tile == GAP_COLOR).all(-1)
    assert crossed[-1, 0]
    assert crossed[0, -1]
    assert 0.01 < crossed.mean() < 0.1
    assert (tile[~crossed] == first).all()
    assert not (grid.pixels[grid.place(1)] == GAP_COLOR).all(-1).any()


def test_rounding_is_not_blown_up_to_a_pattern() -> None:
    maps = np.full((1, 4, 4), 3.3, np.float32)
    maps[0, 1, 2] = np.nextafter(np.float32(3.3), np.float32(4))
    grid = channel_grid(maps)
    assert grid.constant == (0,)
    assert len(np.unique(grid.pixels[grid.place(0)].reshape(-1, 3), axis=0)) == 2  # one level, and the line


def test_on_a_common_scale_a_constant_channel_has_the_colour_of_its_value() -> None:
    maps = np.stack([np.full((2, 2), 5.0), np.array([[0.0, 10], [0, 10]])])
    grid = channel_grid(maps, scale="common", colormap="gray")
    assert (grid.pixels[grid.place(0)] == 128).all()
    assert grid.constant == (0,)


@pytest.mark.parametrize("scale", ["channel", "common"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_broken_values_are_magenta_and_spoil_no_others(value: float, scale: str) -> None:
    maps = np.random.default_rng(0).random((3, 3, 3))
    maps[1, 1, 1] = maps[1].mean()
    wanted = channel_grid(maps, scale=scale, cell=3)
    maps[1, 1, 1] = value
    grid = channel_grid(maps, scale=scale, cell=3)
    top, left = (place.start + 1 for place in grid.place(1))
    assert tuple(grid.pixels[top, left]) == BROKEN_COLOR
    different = (grid.pixels != wanted.pixels).any(-1)
    assert different.sum() == 1
    assert grid.broken == (1,)


def test_broken_channels_are_never_left_out() -> None:
    maps = np.random.default_rng(0).random((5, 3, 3)) * 1000
    maps[3] = np.nan
    grid = channel_grid(maps, most=1)
    assert grid.channels == grid.broken == (3,)
    assert (grid.pixels[grid.place(0)] == BROKEN_COLOR).all()
    assert np.isnan(grid.ranges).all()


@pytest.mark.parametrize("colormap", COLORMAPS)
def test_gaps_and_broken_values_are_in_no_colour_map(colormap: str) -> None:
    colors = colors_of(colormap).astype(int)
    assert np.abs(colors - BROKEN_COLOR).sum(-1).min() > 60
    assert np.abs(colors - GAP_COLOR).sum(-1).min() > 15
    for page in (0, 255):  # a dark page and a white one
        assert np.abs(np.array(GAP_COLOR) - page).min() > 50


def test_small_maps_become_readable_and_large_ones_are_not_enlarged() -> None:
    seven = channel_grid(np.random.default_rng(0).random((64, 7, 7)))
    assert seven.tile == (98, 98)
    assert channel_grid(np.zeros((2048, 7, 7)), most=None).tile == (49, 49)
    assert channel_grid(np.zeros((64, 300, 300))).tile == (300, 300)
    assert channel_grid(np.zeros((1, 7, 7))).tile == (259, 259)


def test_tensors_on_a_graph_in_half_precision_and_a_batch_of_one_are_taken() -> None:
    maps = torch.randn(1, 4, 3, 3)
    wanted = channel_grid(maps[0].numpy()).pixels
    np.testing.assert_array_equal(channel_grid(maps.requires_grad_()).pixels, wanted)
    halves = maps.detach().bfloat16()
    np.testing.assert_array_equal(channel_grid(halves).pixels, channel_grid(halves.float()).pixels)
    np.testing.assert_array_equal(channel_grid(maps[0] > 0).pixels, channel_grid((maps[0] > 0).float()).pixels)


def test_the_file_is_the_picture_and_the_maps_stay_as_they_are() -> None:
    maps = np.random.default_rng(0).random((3, 4, 5))
    before = maps.copy()
    grid = channel_grid(maps)
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(grid.to_png()))), grid.pixels)
    np.testing.assert_array_equal(maps, before)


@pytest.mark.parametrize(
    ("shape", "arguments", "message"),
    [
        ((3, 3), {}, r"\(3, 3\); wanted are \(channels, height, width\)"),
        ((2, 3, 3, 3), {}, r"Choose one of the batch: maps\[0\]"),
        ((0, 3, 3), {}, r"\(0, 3, 3\)"),
        ((2, 3, 3), {"scale": "both"}, 'No scale "both"'),
        ((2, 3, 3), {"colormap": "virdis"}, "Did you mean viridis"),
        ((2, 3, 3), {"columns": 0}, "columns = 0"),
        ((2, 3, 3), {"most": 0}, "most = 0"),
        ((2, 3, 3), {"gap": -1}, "gap = -1"),
        ((2, 3, 3), {"cell": 2.5}, "cell = 2.5"),
        ((2, 3, 3), {"columns": True}, "columns = True"),
    ],
)
def test_what_cannot_be_painted_is_refused(shape: tuple[int, ...], arguments: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        channel_grid(np.zeros(shape), **arguments)  # type: ignore[arg-type]


def test_complex_maps_are_refused() -> None:
    with pytest.raises(UsageError, match="complex128"):
        channel_grid(np.zeros((1, 2, 2), complex))


def test_chosen_channels_are_shown_in_the_order_asked_for() -> None:
    values = np.arange(12.0).reshape(3, 2, 2)
    grid = channel_grid(values, chosen=[2, 0], scale="common", cell=2, columns=2)
    assert grid.channels == (2, 0)
    assert grid.left_out == 1
    np.testing.assert_array_equal(grid.ranges, [[0, 11], [0, 11]])
    alone = channel_grid(values[[2, 0]], scale="common", cell=2, columns=2)
    np.testing.assert_array_equal(grid.pixels, alone.pixels)


@pytest.mark.parametrize("chosen", [[], [3], [-1], [True]])
def test_a_choice_of_no_channel_or_of_one_that_is_not_there_is_refused(chosen: list[int]) -> None:
    with pytest.raises(UsageError, match="There is nothing to paint"):
        channel_grid(np.zeros((3, 2, 2)), chosen=chosen)
