"""Guided: the gradient at rectifiers in every form, against the rule written out by hand."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from camapp.hooks.as_found import as_found
from camapp.hooks.guided import Guided

# Inputs on both sides of every kink, each with something positive and something negative from above.
INPUTS = torch.tensor([-4.0, -4.0, -0.5, -0.5, 0.3, 0.3, 0.8, 0.8, 7.0, 7.0], dtype=torch.float64)
ABOVE = torch.tensor([2.0, -3.0] * 5, dtype=torch.float64)

PLAIN: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], Callable[[torch.Tensor], torch.Tensor]]] = {
    "module": (nn.ReLU(), lambda x: x > 0),
    "module in place": (nn.ReLU(inplace=True), lambda x: x > 0),
    "function": (F.relu, lambda x: x > 0),
    "function in place": (lambda x: F.relu(x, inplace=True), lambda x: x > 0),
    "torch.relu": (torch.relu, lambda x: x > 0),
    "torch.relu_": (torch.relu_, lambda x: x > 0),
    "method": (lambda x: x.relu(), lambda x: x > 0),
    "method in place": (lambda x: x.relu_(), lambda x: x > 0),
    "relu6 module": (nn.ReLU6(), lambda x: (x > 0) & (x < 6)),
    "relu6 in place": (nn.ReLU6(inplace=True), lambda x: (x > 0) & (x < 6)),
    "relu6 function": (F.relu6, lambda x: (x > 0) & (x < 6)),
    "hardtanh": (nn.Hardtanh(), lambda x: (x > -1) & (x < 1)),
    "hardtanh in place": (lambda x: F.hardtanh_(x), lambda x: (x > -1) & (x < 1)),
    "threshold": (nn.Threshold(0.5, 0.0), lambda x: x > 0.5),
}
SMOOTH: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu": nn.GELU(),
    "silu": nn.SiLU(),
    "silu in place": nn.SiLU(inplace=True),
    "hardswish": nn.Hardswish(),
    "leaky": nn.LeakyReLU(0.1),
    "leaky in place": nn.LeakyReLU(0.1, inplace=True),
    "elu": nn.ELU(),
    "elu in place": nn.ELU(inplace=True),
    "celu": nn.CELU(),
    "selu": nn.SELU(),
    "mish": nn.Mish(),
    "softplus": nn.Softplus(),
    "prelu": nn.PReLU().double(),
}


def flows_back(network: Callable[[torch.Tensor], torch.Tensor], inputs: torch.Tensor = INPUTS) -> torch.Tensor:
    leaf = inputs.clone().requires_grad_()
    return torch.autograd.grad((network(leaf * 1) * ABOVE).sum(), leaf)[0]


@pytest.mark.parametrize("form", PLAIN)
def test_relus_in_every_form_follow_the_papers_rule(form: str) -> None:
    rectifier, passes = PLAIN[form]
    with Guided() as guided:
        found = flows_back(rectifier)
    assert found.tolist() == (ABOVE.clamp(min=0) * passes(INPUTS)).tolist()
    assert sum(guided.seen.values()) == 1


@pytest.mark.parametrize("form", SMOOTH)
def test_smooth_rectifiers_pass_the_positive_part_by_their_own_derivative(form: str) -> None:
    leaf = INPUTS.clone().requires_grad_()
    (derivative,) = torch.autograd.grad(SMOOTH[form](leaf * 1).sum(), leaf)
    with Guided():
        found = flows_back(SMOOTH[form])
    torch.testing.assert_close(found, derivative * ABOVE.clamp(min=0), rtol=1e-12, atol=1e-12)


def test_what_comes_from_several_branches_is_summed_before_it_is_clamped() -> None:
    def network(x: torch.Tensor) -> torch.Tensor:
        y = F.relu(x)
        return 3 * y - 2 * y  # 1 * ABOVE in all; clamped apart it would be 3 * positive + 2 * negative

    with Guided():
        found = flows_back(network)
    assert found.tolist() == (ABOVE.clamp(min=0) * (INPUTS > 0)).tolist()


def test_changes_in_place_before_and_after_do_not_move_the_clamp() -> None:
    def network(x: torch.Tensor) -> torch.Tensor:
        x.add_(0.4)
        y = F.relu6(x)  # unlike relu it does not keep its output, so that autograd allows the change
        y.mul_(-1)  # turns the sign of what comes from above
        return y

    with Guided():
        found = flows_back(network)
    moved = INPUTS + 0.4
    assert found.tolist() == ((-ABOVE).clamp(min=0) * ((moved > 0) & (moved < 6))).tolist()


def test_a_change_in_place_whose_result_is_not_used_is_guided_too() -> None:
    def network(x: torch.Tensor) -> torch.Tensor:
        F.relu(x, inplace=True)
        return x

    with Guided():
        found = flows_back(network)
    assert found.tolist() == (ABOVE.clamp(min=0) * (INPUTS > 0)).tolist()


@pytest.mark.parametrize("rectify", [lambda v: v.relu_(), lambda v: F.relu(v, inplace=True), nn.ReLU(inplace=True)])
def test_a_view_changed_in_place_is_guided_and_the_rest_of_the_tensor_is_not(rectify: Any) -> None:
    def network(x: torch.Tensor) -> torch.Tensor:
        rectify(x[4:])
        return x

    with Guided():
        found = flows_back(network)
    guided = ABOVE.clamp(min=0) * (INPUTS > 0)
    assert found.tolist() == torch.cat([ABOVE[:4], guided[4:]]).tolist()


def test_forwards_are_not_altered_and_nothing_stays_behind() -> None:
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(inplace=True), nn.Conv2d(3, 2, 3), nn.GELU()).double()
    inputs = torch.randn(2, 1, 8, 8, dtype=torch.float64, requires_grad=True)
    wanted = model(inputs)
    (plain,) = torch.autograd.grad(wanted.sin().sum(), inputs)
    with Guided():
        output = model(inputs)
    assert torch.equal(output, wanted)
    (guided,) = torch.autograd.grad(output.sin().sum(), inputs)
    (after,) = torch.autograd.grad(model(inputs).sin().sum(), inputs)
    assert not torch.equal(guided, plain)
    assert torch.equal(after, plain)


def test_other_threads_and_explanations_nested_in_this_one_are_left_alone() -> None:
    plain = flows_back(F.relu)
    found: list[torch.Tensor] = []
    with Guided():
        thread = threading.Thread(target=lambda: found.append(flows_back(F.relu)))
        thread.start()
        thread.join()
        with as_found(nn.Identity()):
            found.append(flows_back(F.relu))
        assert not torch.equal(flows_back(F.relu), plain)
    assert all(torch.equal(one, plain) for one in found)
