"""Fitted: what the fit of any kind of probe leaves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Fitted:
    """A head's tensors, and how they came about.

    Args:
        tensors: by name, as ``Probe`` keeps them.
        settings: chosen and given, ready for JSON.
        notes: what a user should know.
    """

    tensors: dict[str, Tensor]
    settings: dict[str, Any]
    notes: tuple[str, ...] = ()
