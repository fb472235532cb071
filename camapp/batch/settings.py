"""The settings of an export: all that decides on the files that come out, as run.json holds it."""

from __future__ import annotations

import hashlib
from dataclasses import fields
from typing import Any

import torch

from camapp.backbones.load import LoadedModel
from camapp.batch.jobs.features import FeatureJob
from camapp.batch.jobs.heatmaps import HeatmapJob


def settings_of(job: HeatmapJob | FeatureJob, kind: str, model: LoadedModel) -> dict[str, Any]:
    """What decides on the files that come out: a run with other settings is another run.

    Args:
        job: whose options decide.
        kind: "heatmaps" or "features".
        model: that it runs.
    """
    own = {one.name: getattr(job, one.name) for one in fields(job) if one.compare and one.name != "choice"}
    return {
        "kind": kind,
        "model": model.name,
        "weights": weights_of(model),
        "input": {**model.card.input.model_dump(mode="json"), "fit": job.fit or model.card.preprocessing.fit},
        **{name: list(value) if isinstance(value, tuple) else value for name, value in own.items()},
    }


def weights_of(model: LoadedModel) -> dict[str, Any]:
    """Which weights a model has: where they are from, their SHA-256, and whether they are random."""
    return {
        "source": model.weights.source,
        "sha256": model.weights.sha256 or _digest(model.module),
        "random": model.weights.random,
    }


def _digest(module: torch.nn.Module) -> str:
    """What tells the weights of one network of the user's own from another's: 64 hex digits."""
    digest = hashlib.sha256(f"{type(module).__module__}.{type(module).__qualname__}".encode())
    for name, value in sorted(module.state_dict().items()):
        if isinstance(value, torch.Tensor):
            plain = value.detach().cpu().contiguous().reshape(-1)
            digest.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
            digest.update(plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b"")
    return digest.hexdigest()
