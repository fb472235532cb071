"""Writer: where snapshots go while a model trains; and a snapshot as figures under the names that dashboards show."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Protocol

from camapp.hooks.report.measured import Measured, Of, TensorStatistics
from camapp.hooks.report.records import Snapshot

# The group of each kind of tensor, and its figures: under which name, which field. The norm of a parameter's gradient
# is not called its norm.
_GROUPS: dict[Of, tuple[str, dict[str, str]]] = {
    "activation": (
        "activation",
        {
            "norm": "norm",
            "abs_max": "abs_max",
            "zero_share": "zero_share",
            "p50": "p50",
            "p95": "p95",
            "p99": "p99",
            "dead_units": "dead_units",
            "saturated": "saturated",
        },
    ),
    "gradient": (
        "grad",
        {"norm": "norm", "abs_max": "abs_max", "zero_share": "zero_share", "p50": "p50", "p95": "p95", "p99": "p99"},
    ),
    "parameter gradient": (
        "param",
        {
            "grad_norm": "norm",
            "grad_abs_max": "abs_max",
            "grad_p50": "p50",
            "grad_p95": "p95",
            "grad_p99": "p99",
            "update_ratio": "update_ratio",
        },
    ),
}


class Writer(Protocol):
    """What takes the snapshots of an inspection; ``JsonLines``, ``TensorBoard`` and ``WandB`` do, and so may yours."""

    def write(self, snapshot: Snapshot) -> None:
        """Take one snapshot."""

    def close(self) -> None:
        """Finish; called once no more snapshots come, perhaps twice."""


def scalars(measured: Measured) -> dict[str, float]:
    """The figures of one step by tag, all of them finite.

    Tags are ``loss``, ``grad/norm/LAYER`` (likewise ``abs_max``, ``zero_share``, ``p50``, ``p95``, ``p99``),
    ``activation/norm/LAYER`` (likewise, and ``dead_units``, ``saturated``), ``param/grad_norm/PARAMETER`` (likewise
    ``grad_abs_max``, ``grad_p50``, ``grad_p95``, ``grad_p99``) and ``param/update_ratio/PARAMETER``. A figure that is
    NaN or infinite is left out: charts cannot show it, histograms and averages break on it. How many elements were is
    always there, as ``grad/nonfinite/LAYER``, ``activation/nonfinite/LAYER``, ``param/nonfinite/PARAMETER`` and, 0 or
    1, ``loss_nonfinite``.
    """
    found = {}
    if measured.loss is not None:
        if math.isfinite(measured.loss):
            found["loss"] = measured.loss
        found["loss_nonfinite"] = float(not math.isfinite(measured.loss))
    for one in measured.statistics:
        found.update(_figures(one))
    return found


def _figures(one: TensorStatistics) -> Iterator[tuple[str, float]]:
    group, fields = _GROUPS[one.of]
    for name, field in fields.items():
        value = getattr(one, field)
        if value is not None and math.isfinite(value):
            yield f"{group}/{name}/{one.name}", float(value)
    yield f"{group}/nonfinite/{one.name}", float(one.nonfinite)
