"""How good heatmaps are, in numbers."""

from __future__ import annotations

from collections.abc import Sequence

from camapp.cam.metrics.adcc import ADCC, Coherency, Complexity
from camapp.cam.metrics.baselines import BASELINES, baseline_maps
from camapp.cam.metrics.box_accuracy import MaxBoxAcc, MaxBoxAccV2
from camapp.cam.metrics.comparison import win_rate
from camapp.cam.metrics.confidence import AverageDrop, Increase
from camapp.cam.metrics.insertion_deletion import Deletion, Insertion
from camapp.cam.metrics.localisation import Energy, IoU, Pointing
from camapp.cam.metrics.metric import Metric
from camapp.cam.metrics.pxap import PxAP
from camapp.cam.metrics.randomisation import Randomisation, cascading_randomisation
from camapp.cam.metrics.road import ROAD
from camapp.cam.metrics.robustness import Infidelity, MaxSensitivity
from camapp.cam.metrics.sample import Explain, Sample, Score, class_probability
from camapp.errors import UsageError, did_you_mean

METRICS: dict[str, type[Metric]] = {
    metric.name: metric
    for metric in (
        AverageDrop,
        Increase,
        Insertion,
        Deletion,
        ROAD,
        Coherency,
        Complexity,
        ADCC,
        Pointing,
        Energy,
        IoU,
        MaxBoxAcc,
        MaxBoxAccV2,
        PxAP,
        Infidelity,
        MaxSensitivity,
    )
}

__all__ = [
    "ADCC",
    "BASELINES",
    "METRICS",
    "ROAD",
    "AverageDrop",
    "Coherency",
    "Complexity",
    "Deletion",
    "Energy",
    "Explain",
    "Increase",
    "Infidelity",
    "Insertion",
    "IoU",
    "MaxBoxAcc",
    "MaxBoxAccV2",
    "MaxSensitivity",
    "Metric",
    "Pointing",
    "PxAP",
    "Randomisation",
    "Sample",
    "Score",
    "baseline_maps",
    "cascading_randomisation",
    "class_probability",
    "find_metrics",
    "win_rate",
]


def find_metrics(names: str | Sequence[str]) -> list[type[Metric]]:
    """The metrics that are named, in that order, each once.

    Args:
        names: names of metrics, ``"cheap"`` for those that cost a forward a picture or less, ``"all"``.

    Raises:
        UsageError: there is no such metric, or none is named; the message names those that are.
    """
    found: list[type[Metric]] = []
    for name in [names] if isinstance(names, str) else names:
        key = name.lower() if isinstance(name, str) else name
        if key in ("all", "cheap"):
            found += [metric for metric in METRICS.values() if key == "all" or metric.cheap]
        elif key in METRICS:
            found.append(METRICS[key])
        else:
            hint = did_you_mean(str(name), METRICS)
            raise UsageError(f'No metric "{name}".{hint} Metrics: cheap, all, {", ".join(METRICS)}.')
    if not found:
        raise UsageError(f"No metric is named. Metrics: cheap, all, {', '.join(METRICS)}.")
    return list(dict.fromkeys(found))
