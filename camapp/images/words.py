"""Maps in words, for those who do not see them."""

from __future__ import annotations

import numpy as np

# The part of a map that counts as hot: the upper tenth of its range.
HOT = 0.9


def describe_map(heatmap: np.ndarray, blank: str | None) -> str:
    """Where a map is hottest, and how much of the picture is hot.

    Args:
        heatmap: (H, W) in [0, 1], of any size that has the picture's aspect.
        blank: why it is blank, or None.
    """
    if blank:
        return _blank(blank)
    share = float((heatmap >= HOT).mean())
    covered = f"{share:.0%}" if share >= 0.01 or not share else "less than 1%"
    return f"Hottest {place_of(heatmap)}; the top 10% covers {covered} of the picture."


def describe_difference(heatmap: np.ndarray, a: str, b: str, blank: str | None) -> str:
    """Where more speaks for one class, painted orange, and where for another, painted blue.

    Args:
        heatmap: (H, W) in [-1, 1], of any size that has the picture's aspect; positive where more speaks for ``a``.
        a: the name of one class.
        b: the name of the other.
        blank: why it is blank, or None.
    """
    if blank:
        return _blank(blank)
    sides = []
    for color, label, side in (("Orange", a, heatmap), ("Blue", b, -heatmap)):
        strongest = f"{color} speaks for {label}, strongest {place_of(side)}."
        sides.append(strongest if side.max() > 0 else f"Nowhere does more speak for {label}.")
    return " ".join(sides)


def place_of(heatmap: np.ndarray) -> str:
    """Where a map (H, W) is largest, in parts of its width and height."""
    height, width = heatmap.shape
    x, y = peak_of(heatmap)
    return f"at {(x + 0.5) / width:.0%} across, {(y + 0.5) / height:.0%} down"


def peak_of(heatmap: np.ndarray) -> tuple[int, int]:
    """Column and row of the first largest value of a map (H, W)."""
    y, x = np.unravel_index(int(heatmap.argmax()), heatmap.shape)
    return int(x), int(y)


def _blank(reason: str) -> str:
    return f"The map is blank: {reason}."
