"""What is explained: a class, a difference of classes, a region, a box, a likeness, or any number of the output."""

from __future__ import annotations

from camapp.cam.targets.classes import (
    BinaryScore,
    ClassDifference,
    ClassProbability,
    ClassScore,
    ResidualScore,
    SeveralClasses,
)
from camapp.cam.targets.places import DetectedBox, SegmentationRegion
from camapp.cam.targets.plan import ClassName, Plan, Targets, TopClasses, plan_targets
from camapp.cam.targets.target import CallableTarget, Target
from camapp.cam.targets.values import EmbeddingSimilarity, OutputValue

__all__ = [
    "BinaryScore",
    "CallableTarget",
    "ClassDifference",
    "ClassName",
    "ClassProbability",
    "ClassScore",
    "DetectedBox",
    "EmbeddingSimilarity",
    "OutputValue",
    "Plan",
    "ResidualScore",
    "SegmentationRegion",
    "SeveralClasses",
    "Target",
    "Targets",
    "TopClasses",
    "plan_targets",
]
