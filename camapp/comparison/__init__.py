"""Several methods at several layers on one picture: side by side, and how far they agree."""

from __future__ import annotations

from camapp.comparison.comparing import MOST_LAYERS, MOST_METHODS, compare_maps
from camapp.comparison.comparison import Cell, Comparison, SavedComparison

__all__ = [
    "MOST_LAYERS",
    "MOST_METHODS",
    "Cell",
    "Comparison",
    "SavedComparison",
    "compare_maps",
]
