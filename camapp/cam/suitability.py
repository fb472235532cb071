"""Which methods have a meaning for a network: found by asking the choosy ones."""

from __future__ import annotations

import torch

from camapp.backbones.load import LoadedModel
from camapp.cam.methods import METHODS
from camapp.errors import LayerError, ModelError, OutputError, UsageError


def unsuitable_methods(model: LoadedModel) -> dict[str, str]:
    """The methods that refuse a model at its recommended layer, by name, each with its reason.

    Those made for some kinds of networks only (``Method.selective``) are run once, on a grey picture; all others take
    every network.

    Raises:
        ModelError: the model fails on its own input.
    """
    height, width = model.card.input.size
    inputs = torch.zeros(1, 3, height, width, device=model.device)
    reasons: dict[str, str] = {}
    for name, kind in METHODS.items():
        if not kind.selective:
            continue
        try:
            with model.named_failures():
                kind(model)(inputs)
        except ModelError:
            raise
        except (LayerError, OutputError, UsageError) as error:
            reasons[name] = str(error)
    return reasons
