"""What goes wrong in practice ends in an error or a reason that says what, why and what to do."""

from __future__ import annotations

from typing import Any

import pytest
import timm
import torch
from torch import nn
from torch.nn import functional as F

from camapp.cam import GradCAM
from camapp.errors import LayerError, OutputError, TargetError
from tests.networks import Plain


def test_weights_that_are_not_finite_are_named() -> None:
    model = Plain().eval()
    with torch.no_grad():
        model.last.weight[0, 0, 0, 0] = float("nan")
    result = GradCAM(model, "last")(torch.randn(1, 3, 16, 16), 0)
    assert result.reasons == [
        'not finite: activations or gradients at "last" hold NaN or infinity; look at the input and weights '
        '(the weights are broken: "last.weight" holds NaN or infinity)'
    ]
    assert not result.maps.any()


def test_an_input_that_is_not_finite_does_not_blame_the_weights() -> None:
    result = GradCAM(Plain().eval(), "last")(torch.full((1, 3, 16, 16), float("nan")), 0)
    assert str(result.reasons[0]).endswith("look at the input and weights")


def test_the_last_block_of_a_transformer_is_blank_and_the_layer_that_works_is_offered() -> None:
    torch.manual_seed(0)
    model = timm.create_model(
        "vit_tiny_patch16_224", img_size=32, patch_size=8, depth=2, embed_dim=16, num_heads=2, num_classes=3
    ).eval()
    inputs = torch.randn(1, 3, 32, 32)
    result = GradCAM(model, "blocks.1")(inputs, 0)
    assert str(result.reasons[0]).startswith('no gradient: the score does not depend on this map of "blocks.1"')
    assert str(result.reasons[0]).endswith('choose an earlier layer, such as "blocks.1.norm1"')
    assert GradCAM(model, "blocks.1.norm1")(inputs, 0).reasons == [None]


class Beside(Plain):
    """``side`` runs and is not used."""

    def __init__(self) -> None:
        super().__init__()
        self.side = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.side(x)
        return super().forward(x)


@pytest.mark.parametrize("targets", [0, [[0, 1]]])
@pytest.mark.parametrize("layer", ["side", ["last", "side"]])
def test_a_layer_without_gradient_is_named(layer: Any, targets: Any) -> None:
    with pytest.raises(LayerError, match=r"does not depend on side through a graph: .* Choose a layer after"):
        GradCAM(Beside().eval(), layer)(torch.randn(1, 3, 16, 16), targets)


class DetachedHead(Plain):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(F.relu(self.last(F.relu(self.stem(x)))).mean((2, 3)).detach())


def test_a_detached_head_is_explained() -> None:
    with pytest.raises(LayerError, match=r"does not depend on last through a graph: .* the model detaches"):
        GradCAM(DetachedHead().eval(), "last")(torch.randn(1, 3, 16, 16), 0)


class Returns(Plain):
    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value

    def forward(self, x: torch.Tensor) -> Any:
        super().forward(x)
        return self.value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "a NoneType, which contains no class scores. Say by output="),
        ("cat", "a str"),
        ([], "a list of 0"),
        ({"x": 1}, "a dict with the keys x"),
        (torch.tensor(1.0), r"shape \(\) for a batch of 1"),
    ],
)
def test_a_model_that_returns_no_scores_is_told_what_it_returned(value: Any, message: str) -> None:
    with pytest.raises(OutputError, match=message):
        GradCAM(Returns(value).eval(), "last")(torch.randn(1, 3, 16, 16), 0)


def test_whole_number_scores_have_no_gradient() -> None:
    class Decides(Plain):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.one_hot(super().forward(x).argmax(1), 5)

    with pytest.raises(LayerError, match="does not depend on last through a graph"):
        GradCAM(Decides().eval(), "last")(torch.randn(1, 3, 16, 16), 0)


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ([0, 1, 2], r"3 target\(s\) for a batch of 2"),
        (torch.zeros(2, 5), "0.0 is not a class index"),
        (torch.zeros(2, 5, dtype=torch.bool), "set 0, 0 classes"),
        ([[0, 1], [0]], "same number of classes"),
        ({1, 2}, "is not a class index"),
    ],
)
def test_targets_of_the_wrong_size_are_refused(targets: Any, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        GradCAM(Plain().eval(), "last")(torch.randn(2, 3, 16, 16), targets)
