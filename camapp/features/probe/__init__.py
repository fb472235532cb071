"""Classifiers trained on frozen features: fitting, trying, comparing, and the heads that they become."""

from __future__ import annotations

from camapp.features.probe.comparison import Compared, Comparison, compare
from camapp.features.probe.fitting import KINDS, fit_probe
from camapp.features.probe.knn import Neighbours
from camapp.features.probe.measures import ClassMeasures
from camapp.features.probe.probe import Probe
from camapp.features.probe.report import Misclassified, ProbeReport, evaluate_probe
from camapp.features.probe.splitting import split

__all__ = [
    "KINDS",
    "ClassMeasures",
    "Compared",
    "Comparison",
    "Misclassified",
    "Neighbours",
    "Probe",
    "ProbeReport",
    "compare",
    "evaluate_probe",
    "fit_probe",
    "split",
]
