"""Every method under a default device of the caller's own: maps are made where the model is."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch

from camapp.cam.methods import METHODS
from tests.cam.methods.transformers import timm_vit
from tests.networks import Staged

QUICK: dict[str, dict[str, Any]] = {
    "sess": {"scales": 2},
    "smooth": {"noise": 0.1, "samples": 2},
    "sscam": {"samples": 3},
    "iscam": {"steps": 2},
}


@pytest.mark.parametrize("name", METHODS)
def test_the_default_device_changes_no_map(name: str) -> None:
    transformer = name in ("rollout", "legrad")
    model = timm_vit() if transformer else Staged().eval()
    inputs = torch.randn(2, 3, 32, 32)
    wanted = METHODS[name](deepcopy(model), **QUICK.get(name, {}))(inputs, [[1, 2]] * 2)
    with torch.device("meta"):  # a layer is found anew, too: nothing is known of this copy
        found = METHODS[name](deepcopy(model), **QUICK.get(name, {}))(inputs, [[1, 2]] * 2)
    torch.testing.assert_close(found.raw, wanted.raw)
    torch.testing.assert_close(found.maps, wanted.maps)
    assert wanted.maps.any()


def test_the_default_device_changes_no_map_of_a_transformers_recommended_layer() -> None:
    model, inputs = timm_vit(), torch.randn(1, 3, 32, 32)
    wanted = METHODS["gradcam"](deepcopy(model))(inputs, 1)
    with torch.device("meta"):
        found = METHODS["gradcam"](deepcopy(model))(inputs, 1)
    assert found.layer == wanted.layer
    torch.testing.assert_close(found.maps, wanted.maps)
