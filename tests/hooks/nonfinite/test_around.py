"""What is wrong around the model, and what was wrong before the step began, is told from what a module makes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.hooks.nonfinite.planted import Scale, located, network, pictures

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("own_backward", [False, True])
@pytest.mark.parametrize(
    ("loss_of", "operation", "node", "nan", "inf"),
    [
        (lambda scores: (scores.sum() * 0).log(), "aten.log.default", "LogBackward0", 0, 1),
        (lambda scores: scores.sum() / 0.0, "aten.div.Tensor", "DivBackward0", 0, 1),
        (lambda scores: (scores.sum() * 0) / 0.0, "aten.div.Tensor", "DivBackward0", 1, 0),
        (lambda scores: scores.sum() + INF, "aten.add.Tensor", "AddBackward0", 0, 1),
    ],
)
def test_a_loss_that_alone_is_not_finite_is_said_to_be_behind_the_model(
    loss_of: object, operation: str, node: str, nan: int, inf: int, own_backward: bool
) -> None:
    model, x = network(Scale(1.0), 3), pictures()

    def step() -> torch.Tensor | None:
        loss = loss_of(model(x))  # type: ignore[operator]
        return loss.backward() if own_backward else loss

    finding = located(model, step)
    assert finding is not None
    assert (finding.place, finding.phase, finding.module) == ("loss", "forward", None)
    assert (finding.operation, finding.autograd, finding.nan, finding.inf) == (operation, node, nan, inf)
    assert (finding.before and finding.before.name, finding.after) == ("6", None)
    assert "in the forward of the loss, behind the model" in str(finding)
    assert node in str(finding)


def test_a_loss_whose_backward_alone_makes_it_is_said_to_be_behind_the_model() -> None:
    model, x = network(Scale(1.0), 3), pictures()
    finding = located(model, lambda: (model(x) * 0).sum().sqrt())
    assert finding is not None
    assert (finding.place, finding.phase, finding.module, finding.autograd) == (
        "loss",
        "backward",
        None,
        "SqrtBackward0",
    )
    assert finding.after is not None
    assert finding.after.name == "6"


def test_what_the_step_does_before_the_model_is_said_to_be_before_it() -> None:
    model, x = network(Scale(1.0), 3), pictures()
    finding = located(model, lambda: model((x - x) / (x - x)).sum())
    assert finding is not None
    assert (finding.place, finding.module, finding.operation) == ("before the model", None, "aten.div.Tensor")
    assert (finding.before, finding.after and finding.after.name) == (None, "0")


def test_what_the_step_does_between_two_calls_of_modules_is_its_own() -> None:
    model, x = nn.ModuleDict({"body": nn.Linear(3, 3), "head": nn.Linear(3, 1)}), torch.randn(2, 3)
    finding = located(model, lambda: model["head"](model["body"](x) / 0.0).sum())
    assert finding is not None
    assert (finding.place, finding.module, finding.before and finding.before.name) == ("between modules", None, "body")
    assert finding.after is not None
    assert finding.after.name == "head"
    assert "in the code of the step" in str(finding)


def test_what_the_step_does_to_gradients_after_the_backward_is_said_to_be_after_it() -> None:
    model, x = network(Scale(1.0), 3), pictures()

    def step() -> None:
        model(x).sum().backward()
        model[0].weight.grad /= 0.0  # type: ignore[union-attr]

    finding = located(model, step)
    assert finding is not None
    assert (finding.place, finding.operation) == ("after the backward", "aten.div_.Tensor")


@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize(("parameter", "user"), [("0.weight", "0"), ("4.bias", "4"), ("6.weight", "6")])
def test_a_parameter_that_is_not_finite_is_named_with_the_module_that_uses_it(
    parameter: str, user: str, value: float
) -> None:
    model, x = network(Scale(1.0), 3), pictures()
    with torch.no_grad():
        spoiled = model.get_parameter(parameter)
        spoiled.view(-1)[:2] = value
    finding = located(model, lambda: model(x).sum())
    assert finding is not None
    assert (finding.place, finding.tensor) == ("parameter", parameter)
    assert finding.module is not None
    assert finding.module.name == user
    assert (finding.nan, finding.inf) == ((2, 0) if value != value else (0, 2))
    assert finding.outputs[0].shape == tuple(spoiled.shape)
    assert f"in the parameter {parameter}, which {user} " in str(finding)


def test_a_parameter_that_no_module_uses_does_no_harm() -> None:
    model, x = network(Scale(1.0), 3), pictures()
    model.register_parameter("idle", nn.Parameter(torch.full((2,), NAN)))
    assert located(model, lambda: model(x).sum()) is None


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_statistics_that_are_not_finite_are_said_to_be_a_buffer(value: float) -> None:
    model, x = network(Scale(1.0), 3).eval(), pictures()
    model[1].running_mean[1] = value
    finding = located(model, lambda: model(x).sum())
    assert finding is not None
    assert (finding.place, finding.tensor, finding.nan + finding.inf) == ("buffer", "1.running_mean", 1)
    assert finding.module is not None
    assert finding.module.name == "1"


@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize("scaled", [False, True])
def test_a_batch_that_is_not_finite_is_said_to_be_that(value: float, scaled: bool) -> None:
    model, x = network(Scale(1.0), 3), pictures()
    x[0, 0, 0, :3] = value
    finding = located(model, lambda: model(x / 2 if scaled else x).sum())
    assert finding is not None
    assert (finding.place, finding.nan + finding.inf) == ("batch", 3)
    assert (finding.module and finding.module.name) == (None if scaled else "0")


def test_labels_that_are_not_finite_are_no_modules_fault() -> None:
    model, x = network(Scale(1.0), 3), pictures()
    labels = torch.tensor([[0.0, 1.0, NAN], [0.0, 1.0, 2.0]])
    finding = located(model, lambda: F.mse_loss(model(x), labels))
    assert finding is not None
    assert (finding.place, finding.module, finding.operation) == ("batch", None, "aten.mse_loss.default")
    assert "in a tensor that the step brings along" in str(finding)


def test_numbers_that_torch_did_not_make_are_said_to_come_from_outside() -> None:
    class Foreign(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * torch.from_numpy(np.full(3, np.nan, np.float32))

    model, x = nn.Sequential(nn.Linear(3, 3), Foreign(), nn.Linear(3, 1)), torch.randn(2, 3)
    finding = located(model, lambda: model(x).sum())
    assert finding is not None
    assert (finding.place, finding.module and finding.module.name) == ("constant", "1")


def test_memory_that_was_never_written_is_said_to_be_that() -> None:
    class Careless(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            room = torch.empty(3)
            room.numpy()[:] = np.nan  # what lies in it by chance, unseen by torch
            return x + room

    model, x = nn.Sequential(nn.Linear(3, 3), Careless(), nn.Linear(3, 1)), torch.randn(2, 3)
    finding = located(model, lambda: model(x).sum())
    assert finding is not None
    assert (finding.module and finding.module.name, finding.tensor) == ("1", "uninitialised memory")


def test_a_loss_that_no_operation_made_is_said_to_come_from_outside() -> None:
    model, x = network(Scale(1.0), 3), pictures()

    def step() -> torch.Tensor:
        model(x)
        return torch.tensor(NAN)

    finding = located(model, step)
    assert finding is not None
    assert (finding.place, finding.operation, finding.nan) == ("constant", None, 1)
    assert str(finding)


def test_statistics_of_a_normalisation_are_followed_though_torch_does_not_say_that_it_writes_them() -> None:
    class Uses(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.bad, self.norm = nn.Linear(3, 3), Scale(NAN, call=0), nn.BatchNorm1d(3)
            self.head = nn.Linear(3, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.body(x)
            self.norm(self.bad(x).detach())  # spoils the running statistics, and nothing else
            return self.head(x + self.norm.running_mean)

    model, x = Uses(), torch.randn(4, 3)
    finding = located(model, lambda: model(x).sum())
    assert finding is not None
    assert (finding.place, finding.module and finding.module.name) == ("module", "bad")
