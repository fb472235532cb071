"""Which methods refuse which networks, found without trying them all."""

from __future__ import annotations

import pytest
import torch

from camapp.backbones.load import LoadedModel
from camapp.cam.methods import METHODS
from camapp.cam.suitability import unsuitable_methods
from camapp.errors import CamappError
from camapp.loading import load_model


@pytest.mark.parametrize(
    "name", ["efficientnet_lite0", "mobilenet_v3_large", pytest.param("vit_small_patch16_224", marks=pytest.mark.slow)]
)
def test_just_the_methods_that_refuse_a_network_are_found(name: str) -> None:
    model = load_model(name, random_weights=name != "efficientnet_lite0", device="cpu", download=False)
    reasons = unsuitable_methods(model)
    assert set(reasons) == {kind for kind in METHODS if refuses(model, kind)}
    assert all(reasons.values())


def refuses(model: LoadedModel, method: str) -> bool:
    """Whether a method of one or a few passes refuses the model when it is run; the others take every network."""
    if METHODS[method].runs_many:
        return False
    torch.manual_seed(0)
    height, width = model.card.input.size
    try:
        METHODS[method](model)(torch.randn(1, 3, height, width))
    except CamappError:
        return True
    return False
