"""What was measured, gathered by layer and by parameter, with the verdicts on each: the rows that tables show."""

from __future__ import annotations

from dataclasses import dataclass, replace

from camapp.hooks.report.measured import Measured, TensorStatistics, Verdict, What


@dataclass(frozen=True)
class LayerRow:
    """One layer, or one of its calls or outputs.

    Args:
        name: as in its statistics.
        activation: the figures of its output; None where they were not taken.
        gradient: the figures of its output's gradient; None where it got none.
        verdicts: those on it.
    """

    name: str
    activation: TensorStatistics | None = None
    gradient: TensorStatistics | None = None
    verdicts: tuple[Verdict, ...] = ()

    @property
    def kind(self) -> str:
        """The layer's class."""
        known = self.activation or self.gradient
        return known.kind if known else ""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the layer's output."""
        known = self.activation or self.gradient
        return known.shape if known else ()

    @property
    def what(self) -> tuple[What, ...]:
        """What is wrong with it, each once, worst first."""
        return tuple(dict.fromkeys(verdict.what for verdict in self.verdicts))


@dataclass(frozen=True)
class ParameterRow:
    """One parameter: the figures of its gradient, and the verdicts on it."""

    statistics: TensorStatistics
    verdicts: tuple[Verdict, ...] = ()

    @property
    def what(self) -> tuple[What, ...]:
        """What is wrong with it, each once, worst first."""
        return tuple(dict.fromkeys(verdict.what for verdict in self.verdicts))


def layer_rows(measured: Measured) -> list[LayerRow]:
    """The layers in the order in which they ran."""
    rows: dict[str, LayerRow] = {}
    for one in measured.statistics:
        row = rows.get(one.name) or LayerRow(one.name, verdicts=_verdicts_on(measured, one.name))
        if one.of == "activation":
            rows[one.name] = replace(row, activation=one)
        elif one.of == "gradient":
            rows[one.name] = replace(row, gradient=one)
    return list(rows.values())


def parameter_rows(measured: Measured) -> list[ParameterRow]:
    """The parameters in the model's order."""
    return [
        ParameterRow(
            one, tuple(verdict for verdict in measured.verdicts if (verdict.name, verdict.of) == (one.name, one.of))
        )
        for one in measured.of("parameter gradient")
    ]


def subject(measured: Measured, verdict: Verdict) -> str:
    """What a verdict is about, in words: a tensor of a layer or parameter, or something without figures, the loss."""
    seen = any(one.name == verdict.name for one in measured.statistics)
    return f"{verdict.name} ({verdict.of})" if seen else verdict.name


def _verdicts_on(measured: Measured, layer: str) -> tuple[Verdict, ...]:
    return tuple(one for one in measured.verdicts if one.name == layer and one.of != "parameter gradient")
