"""A finding reads well in a terminal, and goes into JSON whole."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from camapp.hooks.nonfinite import Finding, ModuleCall, TensorFacts, locate
from tests.hooks.nonfinite.planted import Scale, ScaleGradient, located, network, pictures

NAN, INF = float("nan"), float("inf")

FINDING = Finding(
    place="module",
    phase="forward",
    module=ModuleCall("layer2.0.conv1", "Conv2d"),
    operation="aten.convolution.default",
    autograd="ConvolutionBackward0",
    inputs=(
        TensorFacts("input", (2, 4, 8, 8), "float16", 0, 0, 31000.0),
        TensorFacts("weight", (8, 4, 3, 3), "float16", 0, 0, 2.5),
    ),
    outputs=(TensorFacts("", (2, 8, 8, 8), "float16", 1, 12, 65000.0),),
    largest_input=31000.0,
    overflow=True,
    before=ModuleCall("layer1.1.relu", "ReLU", 1, 2),
    after=ModuleCall("layer2.0.bn1", "BatchNorm2d"),
    line="net.py:34",
)


def test_the_text_says_what_where_by_what_and_between_which() -> None:
    assert str(FINDING).splitlines() == [
        "NaN and Inf first in the forward of layer2.0.conv1 (Conv2d).",
        "  1 NaN and 12 Inf of 1024 elements, float16 (2, 8, 8, 8).",
        "  Made by aten.convolution.default (ConvolutionBackward0) at net.py:34 from input float16 (2, 4, 8, 8), "
        "weight float16 (8, 4, 3, 3).",
        "  The largest finite number that it took is 3.1e+04: an overflow of float16.",
        "  Before it ran layer1.1.relu@1 (ReLU), after it layer2.0.bn1 (BatchNorm2d).",
    ]


def test_the_dict_goes_through_json_and_keeps_all() -> None:
    read = json.loads(json.dumps(FINDING.to_dict(), allow_nan=False))
    assert read["module"] == {"name": "layer2.0.conv1", "kind": "Conv2d", "call": 0, "calls": 1}
    assert read["before"] == {"name": "layer1.1.relu", "kind": "ReLU", "call": 1, "calls": 2}
    assert (read["place"], read["phase"], read["nan"], read["inf"]) == ("module", "forward", 1, 12)
    assert read["outputs"] == [
        {"name": "", "shape": [2, 8, 8, 8], "dtype": "float16", "nan": 1, "inf": 12, "largest": 65000.0}
    ]
    assert (read["largest_input"], read["overflow"], read["line"], read["mask"]) == (31000.0, True, "net.py:34", None)


@pytest.mark.parametrize("planted", [Scale(NAN), Scale(INF), ScaleGradient(NAN)])
def test_every_finding_has_two_to_six_lines_and_goes_into_json(planted: nn.Module) -> None:
    model, x = network(planted, 3), pictures()
    finding = located(model, lambda: model(x).sum())
    assert finding is not None
    assert 2 <= len(str(finding).splitlines()) <= 6
    assert json.loads(json.dumps(finding.to_dict(), allow_nan=False))["module"]["name"] == "3"


def test_the_model_itself_is_called_that() -> None:
    class Bad(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.weight / 0.0

    model = Bad()
    finding = locate(model, lambda: model(torch.ones(2)).sum())
    assert str(finding).startswith("Inf first in the forward of the model (Bad).")
