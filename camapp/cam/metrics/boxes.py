"""Boxes in pixels: what they cover, how far a pixel is from them, how two overlap, and which ones a map draws."""

from __future__ import annotations

import cv2
import numpy as np
import torch
from torch import Tensor


def covered(boxes: Tensor, size: tuple[int, int]) -> Tensor:
    """The pixels (H, W), bool, whose centres lie in any of the boxes (n, 4), given as x0, y0, x1, y1 with far edges."""
    rows, columns = (torch.arange(side, device=boxes.device) + 0.5 for side in size)
    inside_y = (rows >= boxes[:, 1:2]) & (rows < boxes[:, 3:4])
    inside_x = (columns >= boxes[:, 0:1]) & (columns < boxes[:, 2:3])
    return (inside_y[:, :, None] & inside_x[:, None, :]).any(0)


def squared_distance(boxes: Tensor, size: tuple[int, int]) -> Tensor:
    """The squared distance (H, W) float64 of each pixel to the nearest pixel of the boxes (n, 4), centre to centre."""
    boxes = boxes.double()
    across, down = (
        _outside(torch.arange(side, dtype=torch.float64, device=boxes.device), boxes[:, near], boxes[:, near + 2])
        for near, side in ((0, size[1]), (1, size[0]))
    )
    return (down[:, :, None] ** 2 + across[:, None, :] ** 2).amin(0)


def overlaps(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The intersection over union of boxes (n, 4) and (m, 4): (n, m).

    As in the WSOL evaluation every length is the difference of the coordinates plus 1, whatever the coordinates mean.

    Source: Choe et al., CVPR 2020, the authors' evaluation.py.
    """
    one, other = first[:, None].astype(np.float64), second[None].astype(np.float64)
    shared = _area(np.maximum(one[..., :2], other[..., :2]), np.minimum(one[..., 2:], other[..., 2:]))
    return shared / (_area(one[..., :2], one[..., 2:]) + _area(other[..., :2], other[..., 2:]) - shared)


def largest_component_box(shown: np.ndarray) -> np.ndarray:
    """The box (4,) around the component of the most pixels of ``shown`` (H, W), bool, diagonal neighbours joined.

    Given by its edges, the far ones behind the last pixel. The first from the top where several are as large; zeros
    where nothing is shown.
    """
    count, _, facts, _ = cv2.connectedComponentsWithStats(shown.astype(np.uint8), connectivity=8)
    if count == 1:  # the background
        return np.zeros(4)
    x, y, width, height, _ = facts[1 + int(np.argmax(facts[1:, cv2.CC_STAT_AREA]))]
    return np.array([x, y, x + width, y + height], np.float64)


def boxes_at_levels(heat: np.ndarray, *, largest: bool) -> list[np.ndarray]:
    """The boxes around the contours of a map above each of the 256 levels 0 to 255.

    Args:
        heat: (H, W) uint8.
        largest: only the contour that encloses the most.

    Returns:
        For each level (n, 4); one box of zeros where nothing lies above it.
    """
    boxes: list[np.ndarray] = []
    present = np.zeros(257, bool)
    present[np.unique(heat)] = True
    for level in range(256):
        # Between two values that occur nothing changes.
        boxes.append(_contour_boxes(heat > level, largest) if level == 0 or present[level] else boxes[-1])
    return boxes


def _contour_boxes(shown: np.ndarray, largest: bool) -> np.ndarray:
    contours, _ = cv2.findContours(shown.astype(np.uint8), cv2.RETR_TREE, cv2.CHAIN_APPROX_SIMPLE)
    if not contours:
        return np.zeros((1, 4))
    if largest:
        contours = [max(contours, key=cv2.contourArea)]
    around = [cv2.boundingRect(contour) for contour in contours]
    return np.stack([_clipped(x, y, width, height, shown.shape) for x, y, width, height in around])


def _clipped(x: int, y: int, width: int, height: int, size: tuple[int, ...]) -> np.ndarray:
    """Far edges, but no farther than the last pixel's number: as in the WSOL evaluation."""
    return np.array([x, y, min(x + width, size[1] - 1), min(y + height, size[0] - 1)], np.float64)


def _area(near: np.ndarray, far: np.ndarray) -> np.ndarray:
    sides: np.ndarray = np.maximum(0.0, far - near + 1)
    return sides[..., 0] * sides[..., 1]


def _outside(pixels: Tensor, near: Tensor, far: Tensor) -> Tensor:
    """How far each pixel (P,) is from the pixels of intervals [near, far) (n,): (n, P)."""
    first, last = near[:, None], torch.maximum(far - 1, near)[:, None]
    return torch.maximum(first - pixels, pixels - last).clamp(min=0)
