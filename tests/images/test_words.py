"""A map in words says where it is hottest and how much is hot, as a count of its pixels gives it."""

from __future__ import annotations

import numpy as np

from camapp.images.words import describe_difference, describe_map, peak_of, place_of


def test_the_hottest_place_is_told_by_its_centre_and_the_hot_part_by_its_share() -> None:
    heatmap = np.zeros((10, 20))
    heatmap[2, 15], heatmap[2, 14], heatmap[3, 15] = 1.0, 0.9, 0.89
    assert peak_of(heatmap) == (15, 2)
    assert place_of(heatmap) == "at 78% across, 25% down"
    assert describe_map(heatmap, None) == "Hottest at 78% across, 25% down; the top 10% covers 1% of the picture."


def test_little_is_not_told_as_nothing() -> None:
    heatmap = np.zeros((100, 100))
    assert "covers 0% of" in describe_map(heatmap, None)
    heatmap[0, 0] = 1
    assert "covers less than 1% of" in describe_map(heatmap, None)


def test_a_blank_map_says_why() -> None:
    assert describe_map(np.zeros((2, 2)), "no gradient") == "The map is blank: no gradient."
    told = describe_difference(np.zeros((2, 2)), "cat", "dog", "both are the same")
    assert told == "The map is blank: both are the same."


def test_a_difference_tells_both_sides_and_where_there_is_none() -> None:
    heatmap = np.zeros((10, 10))
    heatmap[2, 4] = 1
    told = describe_difference(heatmap, "cat", "dog", None)
    assert told == "Orange speaks for cat, strongest at 45% across, 25% down. Nowhere does more speak for dog."
    heatmap[9, 0] = -0.5
    assert "Blue speaks for dog, strongest at 5% across, 95% down." in describe_difference(heatmap, "cat", "dog", None)
