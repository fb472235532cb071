"""Your own network as a LoadedModel."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import camapp
from camapp.cam import GradCAM
from camapp.errors import LayerError, UsageError
from tests.networks import Plain


def picture() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (60, 90, 3), dtype=np.uint8)


def test_a_network_of_ones_own_is_explained_on_a_picture() -> None:
    network = Plain(classes=3).train()
    mine = camapp.wrap_model(network, size=(32, 48), resize=40, labels=["cat", "dog", "bird"], layer=network.last)
    explanation = camapp.explain(mine, picture(), targets=["dog", "bird"])
    assert [one.label for one in explanation.classes] == ["dog", "bird"]
    assert explanation.maps.shape == (2, 60, 90)
    assert explanation.layer == "last"
    inputs, _, _ = mine.prepare(camapp.Picture.from_array(picture()))
    assert inputs.shape == (1, 3, 32, 48)
    np.testing.assert_allclose(explanation.raw, GradCAM(network, "last")(inputs, [[1, 2]]).raw[0].numpy(), atol=1e-7)
    assert network.training
    assert "own" not in repr(explanation)
    assert explanation.to_dict()["weights"]["source"] == "the network as it was given"


def test_without_labels_the_classes_are_counted_and_numbered_and_the_layer_is_found() -> None:
    mine = camapp.wrap_model(Plain(classes=7), size=32)
    assert mine.labels == tuple(f"class {index}" for index in range(7))
    explanation = camapp.explain(mine, picture(), targets=6)
    assert explanation.layer == "last"
    assert explanation.model == "Plain"


def test_half_precision_networks_are_wrapped_too() -> None:
    assert len(camapp.wrap_model(Plain(classes=7).bfloat16(), size=32).labels) == 7


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"labels": ["cat"]}, UsageError, "1 labels for Plain, which gives 5 class scores"),
        ({"size": 0}, UsageError, "size=0"),
        ({"std": (0.0, 1.0, 1.0)}, UsageError, "std"),
        ({"interpolation": "magic"}, UsageError, "magic"),
        ({"layer": "lost"}, LayerError, r"Did you mean last\?"),
    ],
)
def test_what_does_not_fit_the_network_is_refused(
    arguments: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        camapp.wrap_model(Plain(), **{"size": 32, **arguments})  # type: ignore[arg-type]


def test_a_network_without_class_scores_is_refused() -> None:
    with pytest.raises(UsageError, match=r"needed are class scores of shape \(batch, classes\)"):
        camapp.wrap_model(nn.Conv2d(3, 4, 3), size=16)


def test_a_network_that_fails_on_the_size_says_so() -> None:
    with pytest.raises(camapp.ModelError, match="Sequential fails on its own input of 16x16"):
        camapp.wrap_model(nn.Sequential(nn.Flatten(), nn.Linear(3, 2)), size=16)


def test_the_wrapped_network_lists_its_layers() -> None:
    listed = camapp.list_layers(camapp.wrap_model(Plain(), size=32))
    assert [one.name for one in listed if one.recommended] == ["last"]
    assert torch.is_grad_enabled()
