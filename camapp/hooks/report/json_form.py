"""A snapshot as strict JSON holds it, and back: what is NaN or infinite becomes a word."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any

from camapp.errors import UsageError
from camapp.hooks.report.measured import Measured, TensorStatistics, Verdict

# As Python's and JavaScript's own parsers of numbers read them; JSON itself has no such numbers.
_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def to_json_form(measured: Measured) -> dict[str, Any]:
    """What was measured as dicts, lists, words and finite numbers; figures that a tensor has none of are left out."""
    return {
        "step": measured.step,
        "loss": json_number(measured.loss),
        "statistics": [
            {name: _plain(value) for name, value in vars(one).items() if value is not None}
            for one in measured.statistics
        ],
        "verdicts": [dict(vars(one)) for one in measured.verdicts],
        "without_gradient": list(measured.without_gradient),
    }


def from_json_form(facts: Any) -> dict[str, Any]:
    """The fields of what ``to_json_form`` gave; keys of later versions and of other owners are left alone.

    Raises:
        UsageError: something else.
    """
    try:
        loss = facts["loss"]
        return {
            "step": int(facts["step"]),
            "loss": None if loss is None else _number(loss),
            "statistics": tuple(_made(TensorStatistics, one) for one in facts["statistics"]),
            "verdicts": tuple(_made(Verdict, one) for one in facts.get("verdicts", ())),
            "without_gradient": tuple(map(str, facts.get("without_gradient", ()))),
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise UsageError(
            f"This is no snapshot of an inspection: {reason}. Give what Snapshot.to_dict() or a JsonLines writer made."
        ) from error


def json_number(value: float | None) -> float | str | None:
    """A number as strict JSON holds it: "NaN", "Infinity" and "-Infinity" for those it has no signs for."""
    if value is None or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return json_number(value)
    return list(value) if isinstance(value, tuple) else value


def _number(value: Any) -> float:
    if isinstance(value, str):
        if value not in _WORDS:
            raise ValueError(f'"{value}" is not a number')
        return _WORDS[value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is not a number")
    return float(value)


_READ: dict[str, Callable[[Any], Any]] = {
    "int": int,
    "float": _number,
    "float | None": lambda value: None if value is None else _number(value),
    "tuple[int, ...]": lambda value: tuple(map(int, value)),
}


def _made(kind: type[Any], facts: Mapping[str, Any]) -> Any:
    values = {}
    for field in fields(kind):
        if field.name in facts:
            values[field.name] = _READ.get(str(field.type), str)(facts[field.name])
        elif field.default is MISSING:
            raise KeyError(field.name)
    return kind(**values)
