"""Substitute hands a layer's output through a function, and nothing else changes."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from camapp.errors import LayerError
from camapp.hooks.as_found import as_found
from camapp.hooks.substitute import Substitute
from tests.hooks.test_capture import hooks_on
from tests.networks import InPlaceAfter, Plain, Reused


def test_the_network_goes_on_with_what_the_function_returns() -> None:
    model, inputs = Plain().eval(), torch.randn(2, 3, 16, 16)
    with as_found(model), Substitute(model, "last", torch.zeros_like) as substitute:
        output = model(inputs)
    assert torch.equal(output, model.head.bias.expand(2, 5))
    assert substitute.altered == 1
    assert not output.requires_grad
    assert hooks_on(model) == 0


def test_more_rows_run_behind_the_layer_than_before_it() -> None:
    model, inputs = Plain().eval(), torch.randn(1, 3, 16, 16)
    rows: dict[str, int] = {}
    model.stem.register_forward_hook(lambda module, args, output: rows.update(stem=len(output)))
    with as_found(model), Substitute(model, "last", lambda output: output.repeat(7, 1, 1, 1)):
        output = model(inputs)
    assert rows == {"stem": 1}
    torch.testing.assert_close(output, model(inputs).expand(7, 5))


def test_the_rows_own_their_memory_so_that_in_place_operations_do_not_meet() -> None:
    model, inputs = InPlaceAfter().eval(), torch.randn(1, 3, 16, 16)
    factors = torch.tensor([1.0, -2.0, 3.0])

    def scaled(output: torch.Tensor) -> torch.Tensor:
        return output.repeat(3, 1, 1, 1) * factors.view(3, 1, 1, 1)

    with as_found(model), Substitute(model, "last", scaled):
        together = model(inputs)
    for number, factor in enumerate(factors):
        with as_found(model), Substitute(model, "last", lambda output, f=factor: output * f):
            torch.testing.assert_close(together[number : number + 1], model(inputs))


def test_one_call_of_a_layer_that_runs_several_times_is_altered_alone() -> None:
    model, inputs = Reused().eval(), torch.randn(1, 3, 8, 8)
    x = F.relu(model.one(inputs))
    x = 2 * F.relu(model.two(x))
    wanted = model.head(F.relu(x - 0.1).mean((2, 3)))
    with as_found(model), Substitute(model, "relu@1", lambda output: 2 * output) as substitute:
        torch.testing.assert_close(model(inputs), wanted)
    assert substitute.altered == 1


def test_what_goes_into_a_layer_can_be_altered() -> None:
    model, inputs = Plain().eval(), torch.randn(1, 3, 16, 16)
    with as_found(model), Substitute(model, "last:input", torch.zeros_like):
        output = model(inputs)
    torch.testing.assert_close(output, model.head(F.relu(model.last(torch.zeros(1, 6, 8, 8))).mean((2, 3))))


class Pair(NamedTuple):
    maps: torch.Tensor
    extra: str


class GivesPair(nn.Module):
    def forward(self, x: torch.Tensor) -> Pair:
        return Pair(x + 1, "kept")


class UsesPair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pair = GivesPair()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pair = self.pair(x)
        assert pair.extra == "kept"
        return pair.maps


def test_of_a_tuple_the_first_tensor_is_altered_and_the_rest_is_handed_on() -> None:
    model = UsesPair()
    with as_found(model), Substitute(model, "pair", lambda output: output * 10):
        assert torch.equal(model(torch.ones(1, 2)), torch.full((1, 2), 20.0))


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_the_hook_goes_when_the_function_raises(error: type[BaseException]) -> None:
    model = Plain().eval()

    def broken(output: torch.Tensor) -> Any:
        raise error

    with pytest.raises(error), as_found(model), Substitute(model, "last", broken):
        model(torch.randn(1, 3, 16, 16))
    assert hooks_on(model) == 0
    assert torch.is_grad_enabled()


def test_a_layer_that_there_is_not_is_refused() -> None:
    with pytest.raises(LayerError, match="Did you mean last"):
        Substitute(Plain(), "lasst", torch.zeros_like)
