"""The picture of a confusion matrix: its colours are the shares, whatever the number and the names of classes."""

from __future__ import annotations

import io
import warnings

import numpy as np
import pytest
from matplotlib import colormaps
from PIL import Image

from camapp.features.probe.confusion import confusion_png


def pixels(confusion: np.ndarray, classes: list[str]) -> np.ndarray:
    with Image.open(io.BytesIO(confusion_png(confusion, classes))) as picture:
        return np.asarray(picture.convert("RGB"))


def share_of(picture: np.ndarray, value: float) -> float:
    """The part of the picture that has the colour of a share."""
    color = np.array(colormaps["Blues"](value**0.5)[:3]) * 255
    return float((np.abs(picture - color).max(2) < 1.5).mean())


@pytest.mark.parametrize("count", [2, 10, 100, 300])
def test_the_diagonal_is_as_dark_as_the_recall(count: int) -> None:
    confusion = np.eye(count, dtype=np.int64) * 49
    confusion[np.arange(count), (np.arange(count) + 1) % count] = 51
    picture = pixels(confusion, [f"class {place}" for place in range(count)])
    for recall in (0.49, 0.51):
        found = share_of(picture, recall)
        assert 0.2 / count < found < 1.1 / count
    assert share_of(picture, 0.8) < 0.01


def test_rare_classes_are_coloured_by_their_own_pictures() -> None:
    picture = pixels(np.array([[1000, 0], [1, 1]]), ["common", "rare"])
    assert share_of(picture, 0.5) > 0.1


def test_classes_without_pictures_are_white_and_no_warning_is_raised() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        picture = pixels(np.array([[3, 0], [0, 0]]), ["seen", "unseen"])
    assert share_of(picture, 1.0) > 0.05


@pytest.mark.parametrize("name", ["$\\frac{$", "a\nb\tc", "猫", "x" * 500, " ", "%s {0} \\"])
def test_any_name_is_drawn(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        height, width, _ = pixels(np.array([[3, 1], [0, 2]]), ["dog", name]).shape
    assert max(height, width) < 900


def test_the_same_matrix_gives_the_same_bytes() -> None:
    confusion = np.array([[3, 1], [0, 2]])
    assert confusion_png(confusion, ["a", "b"]) == confusion_png(confusion, ["a", "b"])


def test_pyplot_is_not_touched() -> None:
    import matplotlib.pyplot as plt

    before = plt.get_fignums()
    confusion_png(np.eye(3, dtype=np.int64), ["a", "b", "c"])
    assert plt.get_fignums() == before
