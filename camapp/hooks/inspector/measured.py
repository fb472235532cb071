"""A snapshot out of what was seen of the layers, and of the gradients of the parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn

from camapp.hooks.inspector.figures import Figures, Reading, measurable, measure, read
from camapp.hooks.inspector.forward import Seen
from camapp.hooks.inspector.judging import Thresholds, verdicts
from camapp.hooks.inspector.updates import Moves
from camapp.hooks.nonfinite import nonfinite_flag
from camapp.hooks.report.records import Of, Snapshot, TensorStatistics, Verdict


@dataclass(frozen=True)
class Parameters:
    """The parameters of a model: by name, and the class of the layer that each belongs to."""

    named: dict[str, nn.Parameter]
    kinds: dict[str, str]

    @classmethod
    def of(cls, model: nn.Module) -> Parameters:
        """Those of ``model``, each once."""
        named, kinds = {}, {}
        for name, parameter in model.named_parameters():
            owner = model.get_submodule(name.rpartition(".")[0])
            named[name], kinds[name] = parameter, type(owner).__name__
        return cls(named, kinds)

    def trained(self) -> dict[str, nn.Parameter]:
        """Those that require a gradient."""
        return {name: parameter for name, parameter in self.named.items() if parameter.requires_grad}


@dataclass(frozen=True)
class Judged:
    """What a snapshot is judged by beside its own numbers."""

    history: Sequence[Snapshot] | None
    thresholds: Thresholds


def compose(
    step: int,
    loss: torch.Tensor | float | None,
    seen: Sequence[Seen],
    parameters: Parameters,
    gradients: Mapping[str, torch.Tensor],
    judged: Judged,
    *,
    most: int,
    moves: Moves | None = None,
    scale: torch.Tensor | None = None,
    unscaled: bool = False,
) -> Snapshot:
    """Read all that was measured with one transfer, and judge it.

    Args:
        step: the number of the step.
        loss: the loss, if it is known.
        seen: of the layers.
        parameters: those that are watched.
        gradients: of the parameters, by name.
        judged: what the verdicts rest on beside the numbers.
        most: how many elements of a tensor the quantiles may rest on.
        moves: the last update.
        scale: what the loss was multiplied by before the backward.
        unscaled: whether the gradients of the parameters have been divided by it since.
    """
    items: list[tuple[str, Of, str, Reading]] = []
    for one in seen:
        items.append((one.name, "activation", one.kind, one.activation))
        if one.gradient is not None:
            items.append((one.name, "gradient", one.kind, one.gradient))
    for name, gradient in gradients.items():
        if measurable(gradient) or gradient.layout is torch.sparse_coo:
            items.append((name, "parameter gradient", parameters.kinds[name], measure(gradient, most)))
    moves = moves or Moves({})
    extra = [one for one in (loss, scale) if isinstance(one, torch.Tensor)] + moves.scalars()
    figures, fetched = read([reading for *_, reading in items], [one.reshape(()) for one in extra])
    value = fetched.pop(0) if isinstance(loss, torch.Tensor) else loss
    factor = fetched.pop(0) if scale is not None else 1.0
    ratios = moves.ratios(fetched)
    factors: dict[Of, float] = {
        "activation": 1.0,
        "gradient": factor,
        "parameter gradient": 1.0 if unscaled else factor,
    }
    statistics, largest = [], {}
    for (name, of, kind, reading), found in zip(items, figures, strict=True):
        statistics.append(_statistics(name, of, kind, reading, found.over(factors[of]), ratios))
        largest[name, of] = torch.finfo(reading.dtype).max / factors[of]
    lost = [one.name for one in seen if one.gradient is None]
    lost += [name for name in parameters.trained() if name not in gradients]
    snapshot = Snapshot(step, value, tuple(statistics), (), tuple(lost))
    found_wrong = verdicts(snapshot, judged.history, thresholds=judged.thresholds, largest=largest)
    return replace(snapshot, verdicts=(*_unmeasured(gradients), *found_wrong))


def _unmeasured(gradients: Mapping[str, torch.Tensor]) -> Iterator[Verdict]:
    """What is not finite among gradients that have no figures: complex ones."""
    for name, gradient in gradients.items():
        if gradient.is_complex() and bool(nonfinite_flag([gradient])):
            yield Verdict(name, "parameter gradient", "non-finite", "Some of its complex elements are NaN or infinite.")


def _statistics(
    name: str, of: Of, kind: str, reading: Reading, found: Figures, ratios: Mapping[str, float]
) -> TensorStatistics:
    return TensorStatistics(
        name=name,
        of=of,
        kind=kind,
        shape=reading.shape,
        update_ratio=ratios.get(name) if of == "parameter gradient" else None,
        **vars(found),
    )
