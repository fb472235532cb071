"""Several methods on the same pictures, with what they have in common done once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from camapp.backbones.load import LoadedModel
from camapp.cam.engine import LayerChoice, Method
from camapp.cam.evidence import Evidence
from camapp.cam.layer_method import LayerMethod, read_evidence, shoot
from camapp.cam.methods import find_method
from camapp.cam.passes import Passes
from camapp.cam.result import CamResult, Normalize, Sign, checked_look
from camapp.cam.targets import Targets
from camapp.cam.targets.output import How
from camapp.cam.watch import Progress, Watch
from camapp.errors import UsageError
from camapp.hooks.as_found import as_found


def compare(
    model: nn.Module | LoadedModel,
    inputs: torch.Tensor,
    targets: Targets | None = None,
    *,
    methods: Sequence[str | type[Method] | Method],
    layer: LayerChoice = None,
    output: How = None,
    sign: Sign = "positive",
    normalize: Normalize | None = "minmax",
    progress: Progress | None = None,
    deadline: float | None = None,
    cancel: Any | None = None,
) -> dict[str, CamResult]:
    """Explain a batch by several methods; those that read the same layers share one forward and one backward.

    Args:
        model: as for the methods.
        inputs: as for the methods.
        targets: as for the methods.
        methods: names or classes, or methods made for this model (with a layer and options of their own).
        layer: for the methods given by name or class; those that look at the whole network do without.
        output: as for the methods.
        sign: as for the methods.
        normalize: as for the methods.
        progress: as for the methods, over all of them.
        deadline: as for the methods, over all of them.
        cancel: as for the methods.

    Returns:
        The results by the methods' names, in the order given; of a name that comes again, ``name 2`` and so on.

    Raises:
        UsageError: no methods, or one made for another model.
        LayerError, TargetError, OutputError, StoppedError: as the methods.

    Example:
        >>> results = camapp.cam.compare(model, inputs, methods=["gradcam", "layercam", "eigencam"], layer="layer4")
        >>> results["layercam"].maps
    """
    if not methods:
        raise UsageError("methods is empty. Name one or more, such as gradcam.")
    engines = [_engine(method, model, layer, output) for method in methods]
    checked_look(sign, normalize)
    results: dict[str, CamResult] = {}
    for result in run_together(engines, inputs, targets, Watch(progress, deadline, cancel), sign, normalize):
        count = 1 + sum(name.partition(" ")[0] == result.method for name in results)
        results[result.method if count == 1 else f"{result.method} {count}"] = result
    return results


def run_together(
    engines: Sequence[Method],
    inputs: torch.Tensor,
    targets: Targets | None,
    watch: Watch,
    sign: Sign = "positive",
    normalize: Normalize | None = "minmax",
) -> list[CamResult]:
    """``compare`` of methods that are made already, in their order; all of one model."""
    ready = [engine.ready(inputs, targets, False, watch) for engine in engines]
    with as_found(engines[0].model):
        passes = [make() for make in ready]
        return [
            engine.result(evidence, run, sign, normalize)
            for engine, run, evidence in zip(engines, passes, _evidence(engines, passes), strict=True)
        ]


def shares_passes(method: type[Method]) -> bool:
    """Whether a method runs the model together with others of its kind that read the same layers."""
    return method.evidence is LayerMethod.evidence


def _engine(
    method: str | type[Method] | Method, model: nn.Module | LoadedModel, layer: LayerChoice, output: How
) -> Method:
    if not isinstance(method, Method):
        kind = method if isinstance(method, type) and issubclass(method, Method) else find_method(str(method))
        return kind(model, layer if kind.takes_layer else None, output=output)
    method.check_made_for(model)
    return method


def _evidence(engines: Sequence[Method], passes: list[Passes]) -> list[Evidence]:
    """What each method finds; one shot for all methods of the same layers and the same output."""
    found: dict[int, Evidence] = {}
    for number, (engine, run) in enumerate(zip(engines, passes, strict=True)):
        if number in found:
            continue
        if not shares_passes(type(engine)):
            found[number] = engine.evidence(run)
            continue
        alike = [
            other
            for other in range(number, len(engines))
            if shares_passes(type(engines[other]))
            and passes[other].layers == run.layers
            and engines[other].output == engine.output
        ]
        shot = shoot(run, [engines[other] for other in alike])  # type: ignore[misc]
        found.update({other: read_evidence(shot, place) for place, other in enumerate(alike)})
    return [found[number] for number in range(len(engines))]
