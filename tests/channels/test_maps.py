"""ChannelMaps: counts, ranges, places and files, of values made by hand."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from camapp.channels import ChannelMaps
from camapp.errors import UsageError
from camapp.images.geometry import Preprocessing, prepare
from camapp.images.picture import Picture

NAN, INF = float("nan"), float("inf")


def made(values: Any, *, picture: tuple[int, int] = (8, 8), fit: Any = "stretch", random: bool = False) -> ChannelMaps:
    """Channels (C, h, w) of a picture of so many rows and columns, ranked by their mean."""
    array = np.asarray(values, np.float32)
    shown = Picture.from_array(np.full((*picture, 3), 100, np.uint8))
    with np.errstate(invalid="ignore"):
        scores = array.mean(axis=(1, 2), dtype=np.float64)
    return ChannelMaps(
        picture=shown,
        model="small",
        weights={"source": "made", "sha256": None, "random": random},
        layer="body",
        kind="Conv2d",
        values=array,
        gradients=None,
        target=None,
        score=None,
        ranking="mean",
        scores=scores,
        geometry=prepare(shown, Preprocessing((8, 8), 8, fit=fit))[1],
    )


FOUR = [
    [[0, 0], [0, 0]],
    [[1, 2], [3, 4]],
    [[-1, 0], [0, 0]],
    [[5, 5], [5, 5]],
]


def test_the_best_come_first_and_of_equal_ones_the_first() -> None:
    assert made(FOUR).top() == (3, 1, 0, 2)
    assert made([[[1.0]], [[2.0]], [[2.0]], [[1.0]]]).top(3) == (1, 2, 0)


def test_channels_with_values_that_are_not_finite_come_before_all_others() -> None:
    maps = made([[[9, 9]], [[NAN, 1]], [[8, 8]], [[1, -INF]]])
    assert maps.top(2) == (1, 3)
    assert maps.top() == (1, 3, 0, 2)
    assert maps.nonfinite == 2


def test_dead_channels_are_those_that_are_zero_everywhere() -> None:
    maps = made(FOUR)
    assert maps.dead == (0,)
    assert maps.zero_share == 7 / 16
    assert made([[[NAN, 0]]]).dead == ()


def test_ranges_are_of_the_finite_values() -> None:
    maps = made([[[1, NAN, 3]], [[INF, NAN, -INF]]])
    np.testing.assert_array_equal(maps.ranges, [[1, 3], [NAN, NAN]])


def test_a_histogram_counts_every_finite_value_once() -> None:
    spread = made([[[0, 1, 2, NAN]], [[3, 4, 4, INF]]]).histogram(4)
    assert spread.counts == (1, 1, 1, 3)
    assert spread.edges == (0.0, 1.0, 2.0, 3.0, 4.0)
    assert made([[[0, 1]], [[3, 4]]]).histogram(2, channel=1).edges == (3.0, 3.5, 4.0)
    assert sum(made([[[7, 7]]]).histogram().counts) == 2
    assert made([[[NAN]]]).histogram().counts == ()


def test_a_heatmap_lies_where_the_model_looked_and_reaches_from_0_to_1() -> None:
    maps = made([[[0, 0], [0, 8]]], picture=(8, 16), fit="crop")  # the model saw columns 4 to 11
    heatmap = maps.heatmap(0)
    assert heatmap.shape == (8, 16)
    assert not heatmap[:, :4].any()
    assert not heatmap[:, 12:].any()
    assert heatmap[7, 11] == 1.0
    assert heatmap[0, 4] == 0.0
    np.testing.assert_allclose(maps.heatmap(0, 0, 16), heatmap / 2, atol=1e-6)


def test_a_flat_channel_has_a_map_of_zeros_and_leaves_the_picture_as_it_is() -> None:
    maps = made(FOUR)
    assert not maps.heatmap(3).any()
    assert maps.peak(3) is None
    np.testing.assert_array_equal(np.asarray(maps.overlay(3)), maps.picture.rgb)
    assert not np.array_equal(np.asarray(maps.overlay(1)), maps.picture.rgb)


def test_peaks_are_shares_of_the_picture_not_of_the_models_crop() -> None:
    assert made([[[0, 1], [0, 0]]]).peak(0) == (0.75, 0.25)
    assert made([[[0, 1], [0, 0]]], picture=(8, 16), fit="crop").peak(0) == (0.625, 0.25)  # column 10 of 16


def test_a_peak_never_lies_in_what_a_letterbox_padded() -> None:
    # 4 rows of a picture of 8 x 16 become rows 2 to 5 of the input: the first and last row of cells lie outside
    maps = made([[[9, 0], [0, 2], [1, 0], [0, 9]]], picture=(8, 16), fit="letterbox")
    assert maps.peak(0) == (0.75, 0.25)


def test_the_grid_shows_the_best_in_their_order() -> None:
    grid = made(FOUR).grid(2, scale="common")
    assert grid.channels == (3, 1)
    np.testing.assert_array_equal(grid.ranges, [[1, 5], [1, 5]])
    assert grid.left_out == 2


def test_what_is_saved_can_be_read_again_and_is_not_overwritten(tmp_path: Path) -> None:
    maps = made([*FOUR, [[NAN, 1], [1, 1]]])
    files = maps.save(tmp_path / "out", most=3)
    assert [file.name for file in files] == ["channels.npy", "channels.png", "channels.csv", "channels.json"]
    np.testing.assert_array_equal(np.load(files[0]), maps.values)
    with Image.open(files[1]) as image:
        np.testing.assert_array_equal(np.asarray(image), maps.grid(3).pixels)
        assert not image.info
    rows = list(csv.DictReader(io.StringIO(files[2].read_text())))
    assert [row["channel"] for row in rows] == ["4", "3", "1", "0", "2"]
    assert (rows[1]["score"], rows[1]["highest"], rows[0]["nonfinite"]) == ("5.0", "5.0", "1")
    facts = json.loads(files[3].read_text())
    assert facts["grid"]["channels"] == [4, 3, 1]
    assert facts["dead_channels"] == [0]
    assert facts["channels"][0]["score"] == "NaN"
    with pytest.raises(UsageError, match="holds a report already"):
        maps.save(tmp_path / "out")
    maps.save(tmp_path / "out", overwrite=True)


def test_random_weights_are_written_across_pictures_and_said() -> None:
    maps = made(np.ones((1, 64, 64)) * np.arange(64), picture=(64, 64), random=True)
    pixels = np.asarray(Image.open(io.BytesIO(maps.files()["channels.png"])))
    assert not np.array_equal(pixels, maps.grid().pixels)
    assert "RANDOM WEIGHTS" in repr(maps)


@pytest.mark.parametrize("channel", [-1, 4, 1.5, True, "1"])
def test_channels_that_there_are_not_are_refused(channel: Any) -> None:
    with pytest.raises(UsageError, match=r"No channel .* in body; it has 4"):
        made(FOUR).heatmap(channel)


@pytest.mark.parametrize("most", [0, -1, 2.5, True])
def test_numbers_of_channels_that_cannot_be_meant_are_refused(most: Any) -> None:
    with pytest.raises(UsageError, match="number of 1 and up"):
        made(FOUR).top(most)
