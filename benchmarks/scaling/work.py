"""The exports that are measured: overlays as JPEG, and features, of EfficientNet-Lite0."""

from __future__ import annotations

from pathlib import Path

from camapp.backbones.load import LoadedModel
from camapp.batch.jobs.features import FeatureJob
from camapp.batch.jobs.heatmaps import HeatmapJob
from camapp.batch.jobs.job import Job, ModelChoice, Work
from camapp.batch.records import Item

MODEL = "efficientnet_lite0"
KINDS = ("heatmaps", "features")


def job_of(kind: str, model: str | LoadedModel = MODEL) -> Job:
    """The job of a kind, on the CPU."""
    choice = ModelChoice(model, device="cpu")
    return HeatmapJob(choice, outputs=("overlay",)) if kind == "heatmaps" else FeatureJob(choice)


def work_of(path: Path, number: int = 0) -> Work:
    """A picture's way through a job."""
    return Work(number, Item(path.name, str(path)), path.stem, 0)
