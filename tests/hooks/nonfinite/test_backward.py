"""NaN and infinities that only a backward makes are found where they were planted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from camapp.errors import UsageError
from camapp.hooks.nonfinite import Finding, locate
from tests.hooks.nonfinite.planted import Scale, ScaleGradient, located, network, pictures

NAN, INF = float("nan"), float("inf")


def name(finding: Finding | None) -> str | None:
    assert finding is not None
    return None if finding.module is None else finding.module.name


def names(finding: Finding | None) -> list[str | None]:
    assert finding is not None
    return [None if call is None else call.name for call in (finding.module, finding.before, finding.after)]


@pytest.mark.parametrize("factor", [NAN, INF])
@pytest.mark.parametrize("place", range(1, 7))
@pytest.mark.parametrize("own_backward", [False, True])
def test_the_module_whose_backward_makes_it_is_named_wherever_it_is(
    place: int, factor: float, own_backward: bool
) -> None:
    model, x = network(ScaleGradient(factor), place), pictures()

    def step() -> torch.Tensor | None:
        loss = model(x).pow(2).sum()
        return loss.backward() if own_backward else loss

    finding = located(model, step)
    assert finding is not None
    assert (finding.place, finding.phase, finding.operation) == ("module", "backward", "aten.mul.Tensor")
    assert finding.autograd == "_ScaledGradientBackward"
    assert name(finding) == str(place)
    assert finding.inputs[0].nan == finding.inputs[0].inf == 0
    assert finding.line is not None
    assert "planted.py" in finding.line


def test_neighbours_in_a_backward_are_in_its_own_order() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), ScaleGradient(NAN), nn.Sigmoid(), nn.Linear(3, 1))
    x = torch.randn(2, 3)
    assert names(located(model, lambda: model(x).sum())) == ["2", "3", "1"]


def test_a_square_root_at_zero_is_named_by_its_module_and_its_node() -> None:
    class Norm(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.pow(2).sum(1, keepdim=True).sqrt()

    model = nn.Sequential(nn.Linear(3, 3, bias=False), Norm(), nn.Linear(1, 1))
    x = torch.tensor([[0.0, 0.0, 0.0], [1.0, 2.0, 3.0]])
    finding = located(model, lambda: model(x).sum())
    assert name(finding) == "1"
    assert finding is not None
    assert (finding.phase, finding.autograd, finding.operation) == ("backward", "SqrtBackward0", "aten.div.Tensor")
    assert (finding.nan, finding.inf) == (0, 1)
    assert finding.line is None  # autograd itself calls it


def test_a_square_root_between_modules_is_its_containers() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(3, 3, bias=False), nn.Linear(1, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.two(self.one(x).pow(2).sum(1, keepdim=True).sqrt())

    model = nn.Sequential(nn.Linear(3, 3, bias=False), Net())
    x = torch.zeros(2, 3)
    finding = located(model, lambda: model(x).sum())
    assert names(finding) == ["1", "1.two", "1.one"]
    assert finding is not None
    assert (finding.place, finding.phase, finding.autograd) == ("between modules", "backward", "SqrtBackward0")


def test_where_picks_a_finite_value_but_the_gradient_is_nan_because_of_the_forward() -> None:
    class Inverse(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.where(x > 0, 1 / x, torch.zeros(()))

    model = nn.Sequential(nn.Linear(3, 3, bias=False), Inverse(), nn.Linear(3, 1))
    x = torch.tensor([[0.0, 0.0, 0.0], [1.0, 2.0, 3.0]])
    assert model(x).isfinite().all()
    finding = located(model, lambda: model(x).sum())
    assert name(finding) == "1"
    assert finding is not None
    assert (finding.phase, finding.operation, finding.inf) == ("forward", "aten.reciprocal.default", 3)


def test_a_network_whose_input_wants_no_gradient_and_one_whose_input_wants_one_give_the_same() -> None:
    model, x = network(ScaleGradient(NAN), 3), pictures()
    wanting = x.clone().requires_grad_()
    assert name(located(model, lambda: model(x).sum())) == "3"
    assert name(located(model, lambda: model(wanting).sum())) == "3"
    assert wanting.grad is None


def test_the_gradient_of_an_input_stays_the_object_and_the_value_that_it_was() -> None:
    model, x = network(ScaleGradient(NAN), 3), pictures().requires_grad_()
    x.grad = gradient = torch.ones_like(x)
    one = torch.ones(())
    for step in (
        lambda: model(x).sum(),
        lambda: model(x).sum().backward(),
        lambda: model(x).sum().backward(gradient=one),
    ):
        assert name(located(model, step)) == "3"
        assert x.grad is gradient
        assert torch.equal(gradient, torch.ones_like(x))


def test_frozen_parameters_hide_nothing() -> None:
    model, x = network(ScaleGradient(NAN), 3), pictures()
    for parameter in model[4:].parameters():
        parameter.requires_grad_(False)
    assert name(located(model, lambda: model(x).sum())) == "3"
    for parameter in model[:2].parameters():
        parameter.requires_grad_(False)
    assert located(model, lambda: model(x).sum().requires_grad_()) is None  # its backward does not run at all
    wanting = x.clone().requires_grad_()
    assert name(located(model, lambda: model(wanting).sum())) == "3"  # the gradient of the pictures


@pytest.mark.parametrize("own_backward", [False, True])
def test_a_gradient_that_a_tensor_hook_spoils_is_said_to_be_a_hooks(own_backward: bool) -> None:
    class Hooked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(3, 4), nn.Linear(4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.one(x)
            x.register_hook(lambda gradient: gradient / 0.0)
            return self.two(x)

    model, x = Hooked(), torch.randn(2, 3)

    def step() -> torch.Tensor | None:
        loss = model(x).sum()
        return loss.backward() if own_backward else loss

    finding = located(model, step)
    assert finding is not None
    assert (finding.place, finding.phase, finding.operation) == ("hook", "backward", "aten.div.Tensor")
    assert name(finding) == "one"
    assert finding.line is not None
    assert finding.line.startswith(__file__)
    assert "in a hook, on the gradient of the output of one (Linear)" in str(finding)


@pytest.mark.parametrize("after", [False, True])
def test_a_parameters_hook_is_named_with_the_parameter(after: bool) -> None:
    model, x = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1)), torch.randn(2, 3)
    weight = model[0].weight
    if after:

        def spoil(parameter: torch.Tensor) -> None:
            assert parameter.grad is not None
            parameter.grad.mul_(NAN)

        weight.register_post_accumulate_grad_hook(spoil)
    else:
        weight.register_hook(lambda gradient: gradient * NAN)
    finding = located(model, lambda: model(x).sum())
    assert finding is not None
    assert (finding.place, finding.tensor, name(finding)) == ("hook", "0.weight", "0")


def test_a_full_backward_hook_that_spoils_the_gradient_is_said_to_be_one() -> None:
    model, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), torch.randn(2, 3)
    model[1].register_full_backward_hook(lambda module, given, _: tuple(gradient * NAN for gradient in given))
    finding = located(model, lambda: model(x).sum())
    assert finding is not None
    assert (finding.place, finding.phase) == ("hook", "backward")
    assert name(finding) == "1"


def test_what_a_hook_computes_for_itself_does_no_harm() -> None:
    model, x = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1)), torch.randn(2, 3)
    seen = []
    model[0].weight.register_hook(lambda gradient: seen.append((gradient * 0).log()))
    assert located(model, lambda: model(x).sum()) is None
    assert seen[0].isinf().all()


def recomputing(function: Callable[..., Any], reentrant: bool, *args: Any) -> Any:
    return checkpoint(function, *args, use_reentrant=reentrant)


class Checkpointed(nn.Module):
    """Two segments that are recomputed in the backward, with a module of each kind in them."""

    def __init__(self, planted: nn.Module, reentrant: bool) -> None:
        super().__init__()
        self.stem = nn.Linear(3, 4)
        self.first = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), planted, nn.Linear(4, 4))
        self.second = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        self.head = nn.Linear(4, 1)
        self.reentrant = reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x = recomputing(self.first, self.reentrant, x)
        x = recomputing(self.second, self.reentrant, x)
        return self.head(x)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("own_backward", [False, True])
def test_checkpointed_segments_are_seen_through(reentrant: bool, own_backward: bool) -> None:
    x = torch.randn(2, 3)

    def finding_with(planted: nn.Module) -> Finding | None:
        model = Checkpointed(planted, reentrant)

        def step() -> torch.Tensor | None:
            loss = model(x).sum()
            return loss.backward() if own_backward else loss

        return located(model, step)

    in_forward = finding_with(Scale(NAN))
    assert names(in_forward) == ["first.2", "first.1", "first.3"]
    assert in_forward is not None
    assert in_forward.phase == "forward"
    in_backward = finding_with(ScaleGradient(NAN))
    assert names(in_backward) == ["first.2", "first.3", "first.1"]
    assert in_backward is not None
    assert (in_backward.place, in_backward.phase) == ("module", "backward")
    assert in_backward.module is not None
    assert (in_backward.module.call, in_backward.module.calls) == (0, 1)
    assert finding_with(Scale(2.0)) is None


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_value_that_only_the_recomputed_forward_makes_is_said_to_be_its(reentrant: bool) -> None:
    class Wavering(Scale):
        """Finite the first time it runs, NaN ever after."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return x * (1.0 if self.calls == 1 else NAN)

    model, x = Checkpointed(Wavering(0.0), reentrant), torch.randn(2, 3)
    finding = located(model, lambda: model(x).sum())
    assert finding is not None
    assert (finding.phase, finding.place, name(finding)) == ("recomputation", "module", "first.2")
    assert "recomputed forward of first.2 (Wavering)" in str(finding)


def test_a_step_with_two_backwards_is_followed_in_both() -> None:
    model, x = network(ScaleGradient(NAN), 3), pictures()

    def step() -> None:
        model(x)[0].sum().backward()
        model(x)[1].sum().backward()

    finding = located(model, step)
    assert finding is not None
    assert finding.module is not None
    assert (finding.module.name, finding.module.call, finding.module.calls) == ("3", 0, 2)


def test_a_step_that_went_backward_and_returns_its_loss_is_not_sent_backward_again() -> None:
    model, x = network(ScaleGradient(NAN), 3), pictures()

    def step() -> torch.Tensor:
        loss = model(x).sum()
        loss.backward()
        return loss

    assert name(located(model, step)) == "3"


def test_gradients_that_the_step_throws_away_are_still_seen() -> None:
    model, x = network(ScaleGradient(NAN), 3), pictures()

    def step() -> None:
        model(x).sum().backward()
        model.zero_grad(set_to_none=True)

    assert name(located(model, step)) == "3"


def test_a_penalty_on_gradients_is_no_backward_of_the_step_and_the_loss_is_sent_back():
    model, x = nn.Linear(3, 1), torch.randn(4, 3, requires_grad=True)

    def step() -> torch.Tensor:
        output = model(x)
        (gradient,) = torch.autograd.grad(output.sum(), x, create_graph=True)
        return (output * 0).sqrt().sum() + gradient.pow(2).sum()

    finding = locate(model, step)
    assert finding is not None
    assert "SqrtBackward0" in str(finding)


def test_gradients_that_a_step_takes_without_writing_them_may_leave_a_graph_that_is_gone():
    model, x = nn.Linear(3, 1), torch.randn(4, 3)

    def step() -> torch.Tensor:
        loss = model(x).tanh().sum()
        torch.autograd.grad(loss, list(model.parameters()))
        return loss

    assert locate(model, step) is None


def test_a_step_that_returns_nothing_and_runs_no_backward_is_an_error():
    model = nn.Linear(3, 1)
    with pytest.raises(UsageError, match="Return the loss"):
        locate(model, lambda: (model(torch.randn(4, 3)).sum(), None)[1])
