"""Win %: two methods on the same pictures."""

from __future__ import annotations

import torch
from torch import Tensor

from camapp.cam.metrics.metric import Direction
from camapp.errors import UsageError


def win_rate(values_a: Tensor, values_b: Tensor, direction: Direction) -> float:
    """Win %: on how many percent of the pictures A is better than B.

    A draw counts half, so that the rates of A and B add up to 100. Pictures on which one of them has no value are left
    out.

    Source: Chattopadhyay et al., "Grad-CAM++", WACV 2018, section 5.1 (iii), for Average Drop, without a word on draws.

    Args:
        values_a: (N,), what ``Metric.update`` gave for A.
        values_b: (N,), for B, the same pictures in the same order.
        direction: the metric's.

    Returns:
        0 to 100; NaN where no picture has both values.

    Raises:
        UsageError: unequal lengths, or no such direction.
    """
    if values_a.shape != values_b.shape:
        raise UsageError(f"{tuple(values_a.shape)} against {tuple(values_b.shape)}: values of other pictures.")
    if direction not in ("higher", "lower"):
        raise UsageError(f'direction = {direction!r} is neither "higher" nor "lower".')
    ahead = (values_a - values_b).double() * (1 if direction == "higher" else -1)
    wins = torch.where(ahead.isnan(), torch.nan, (ahead.sign() + 1) / 2)
    return float(100 * wins.nanmean())
