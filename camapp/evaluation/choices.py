"""What a run is asked for, checked before its first picture: methods, layers, metrics, baselines."""

from __future__ import annotations

from collections.abc import Sequence

from camapp.backbones.load import LoadedModel
from camapp.cam.methods import METHODS, find_method
from camapp.cam.metrics import BASELINES, METRICS, Metric, find_metrics
from camapp.errors import UsageError, did_you_mean
from camapp.hooks.layers import find_layer


def chosen_methods(given: str | Sequence[str]) -> list[str]:
    """Names of methods, none twice; ``"all"`` is every one.

    Raises:
        UsageError: one does not exist.
    """
    wanted = [given] if isinstance(given, str) else list(given)
    if wanted == ["all"]:
        return list(METHODS)
    if not wanted:
        raise UsageError("No method to evaluate. Name one or more, or all.")
    return list(dict.fromkeys(find_method(name).name for name in wanted))


def chosen_layers(loaded: LoadedModel, given: str | Sequence[str] | None) -> list[str | None]:
    """The target layers; None is the recommended one.

    Raises:
        LayerError: the model has no such layer.
    """
    if given is None:
        return [None]
    wanted = [given] if isinstance(given, str) else list(given)
    for layer in wanted:
        find_layer(loaded.module, layer)
    return list(dict.fromkeys(wanted)) or [None]


def chosen_baselines(given: Sequence[str]) -> list[str]:
    """Names of baselines, none twice.

    Raises:
        UsageError: one does not exist.
    """
    for name in given:
        if name not in BASELINES:
            raise UsageError(f'No baseline "{name}".{did_you_mean(name, BASELINES)} Baselines: {", ".join(BASELINES)}.')
    return list(dict.fromkeys(given))


def chosen_metrics(given: str | Sequence[str] | None, boxes: bool) -> tuple[list[type[Metric]], list[str]]:
    """The metrics that can be computed, and notes about those of a group that cannot.

    Args:
        given: names of metrics or of groups; None for the cheap ones.
        boxes: whether there are boxes.

    Raises:
        UsageError: one does not exist, one named needs what is not given, or none is left.
    """
    wanted = ["cheap"] if given is None else [given] if isinstance(given, str) else list(given)
    kinds = find_metrics(wanted)
    lacking = {kind.name: lack for kind in kinds if (lack := _lack(kind, boxes))}
    for name in wanted:
        if name.lower() in lacking:
            raise UsageError(f'The metric "{name}" needs {lacking[name.lower()]}.')
    by_lack: dict[str, list[str]] = {}
    for name, lack in lacking.items():
        by_lack.setdefault(lack, []).append(name)
    notes = [f"left out: {', '.join(names)}, for want of {lack}" for lack, names in by_lack.items()]
    kept = [kind for kind in kinds if kind.name not in lacking]
    if not kept:
        raise UsageError(f"No metric is left to compute. Metrics: {', '.join(METRICS)}.")
    return kept, notes


def _lack(kind: type[Metric], boxes: bool) -> str | None:
    """What a metric needs and does not get."""
    if "boxes" in kind.needs and not boxes:
        return "boxes of the objects: --boxes FILE (boxes=)"
    if "masks" in kind.needs:
        return "masks of the objects, which no file of boxes has; give them to the metric in Python"
    return None
