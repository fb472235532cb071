"""Numbers as the views write them."""

from __future__ import annotations

import math
from collections.abc import Iterable


def percent(probability: float) -> str:
    """A probability as a percentage that does not pretend to be 0 or 100."""
    if 0 < probability < 0.001:
        return "< 0.1%"
    if 0.999 < probability < 1:
        return "> 99.9%"
    return f"{probability:.1%}"


def shape_text(shape: Iterable[int] | None) -> str:
    """A shape as people read it: 1280 × 7 × 7; "" for none."""
    return " × ".join(map(str, shape or ()))


def figure(value: float) -> str:
    """Three digits, as people write them: 0.0446, 5.45, 10,700; powers of ten only where they are needed.

    Args:
        value: any number; what is not finite is written as a word.
    """
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "infinite" if value > 0 else "-infinite"
    if value == 0:
        return "0"
    if not 1e-3 <= abs(value) < 1e6:
        return f"{value:.2e}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{float(f'{value:.3g}'):,.{digits}f}"


def amount(count: int) -> str:
    """A number of operations in words: 385 million."""
    for size, word in ((10**9, "billion"), (10**6, "million"), (10**3, "thousand")):
        if count >= size:
            return f"{figure(count / size)} {word}"
    return str(count)
