"""load_model: a backbone by its card, or a classifier trained on features by its file."""

from __future__ import annotations

from pathlib import Path

import torch

from camapp.backbones.cards import ModelCard
from camapp.backbones.load import DEFAULT_MODEL, LoadedModel, load_backbone
from camapp.features.saved import SUFFIX, load_probe


def load_model(
    model: str | Path | ModelCard = DEFAULT_MODEL,
    *,
    random_weights: bool = False,
    device: str | torch.device = "auto",
    models: str | Path | None = None,
    download: bool = True,
) -> LoadedModel:
    """Load a backbone by its card, or a classifier that ``camapp probe`` trained.

    Args:
        model: a card's name, the path of a card (``.toml``), a card, or the path of a trained classifier
            (``.camapp``).
        random_weights: leave the card's weights alone and initialise the architecture, the same way each time: to try
            things out, or for the sanity check of a heatmap.
        device: ``"auto"`` (CUDA where there is a GPU, else the CPU) or a name that torch knows.
        models: a folder of the user's own cards; by default the one that ``CAMAPP_MODELS`` names, if any.
        download: whether weights that are not on this machine may be fetched from their publisher.

    Returns:
        The model, in eval mode. The caller's random number generators are left as they were.

    Raises:
        ModelError: no such card, a wrong card, an unknown architecture, or a damaged file.
        WeightsError: weights that are missing, damaged, or of another architecture.
        UsageError: a device that this machine does not have.
    """
    if isinstance(model, str | Path) and Path(model).suffix.lower() == SUFFIX:
        return load_probe(model, random_weights=random_weights, device=device, download=download)
    return load_backbone(model, random_weights=random_weights, device=device, models=models, download=download)
