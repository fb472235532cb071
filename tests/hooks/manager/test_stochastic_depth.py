"""Stochastic depth keeps the expectation, rests in eval mode, and is for blocks that keep their shape."""

from __future__ import annotations

import pytest
import torch
import torchvision
from torch import nn

from camapp.errors import LayerError, UsageError
from camapp.hooks.manager import HookManager


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(3, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.block(x)


@pytest.mark.parametrize(("mode", "rows"), [("row", 4), ("batch", 1)])
def test_the_expectation_over_two_thousand_passes_is_the_blocks_output(mode: str, rows: int) -> None:
    torch.manual_seed(0)
    model, x = Residual().double(), torch.randn(rows, 3, dtype=torch.float64)
    wanted = model(x).detach()
    generator = torch.Generator().manual_seed(7)
    with HookManager(model) as hooks, torch.no_grad():
        hooks.stochastic_depth("block", 0.3, mode=mode, generator=generator)
        passes = torch.stack([model(x) for _ in range(2000)])
        assert hooks.registered[0].fired == 2000
    error = passes.std(0) / 2000**0.5
    assert ((passes.mean(0) - wanted).abs() < 3 * error).all()
    kept = x + (wanted - x) / 0.7
    dropped = (passes == x).all(-1)
    torch.testing.assert_close(passes[~dropped], kept.expand(2000, rows, 3)[~dropped])
    assert abs(dropped.double().mean().item() - 0.3) < 3 * (0.21 / (2000 * rows)) ** 0.5


def test_rows_are_drawn_one_by_one_and_batches_as_one():
    model, x = Residual(), torch.randn(64, 3)
    for mode, wanted in (("row", {False, True}), ("batch", {False})):
        with HookManager(model) as hooks, torch.no_grad():
            hooks.stochastic_depth("block", 0.5, mode=mode)
            mixed = {0 < (model(x) == x).all(-1).sum().item() < 64 for _ in range(20)}
        assert mixed <= wanted
        assert (True in mixed) == (mode == "row")


def test_in_eval_mode_and_at_probability_0_nothing_happens():
    model, x = Residual(), torch.randn(4, 3)
    wanted = model(x)
    with HookManager(model) as hooks:
        hooks.stochastic_depth("block", 0.9)
        model.eval()
        assert all(torch.equal(model(x), wanted) for _ in range(20))
    model.train()
    with HookManager(model) as hooks:
        hooks.stochastic_depth("block", 0.0)
        assert torch.equal(model(x), wanted)


def test_gradients_flow_by_the_block_where_it_is_passed_by():
    model, x = Residual(), torch.randn(1, 3, requires_grad=True)
    with HookManager(model) as hooks:
        hooks.stochastic_depth("block", 0.999999)
        model(x).sum().backward()
    assert torch.equal(x.grad, torch.ones(1, 3))
    assert not model.block[0].weight.grad.any()


def test_blocks_of_a_resnet_that_change_the_shape_are_refused_and_the_others_are_not():
    model, x = torchvision.models.resnet18(num_classes=2), torch.randn(2, 3, 64, 64)
    with HookManager(model) as hooks:
        hooks.stochastic_depth(["layer1.0", "layer1.1", "layer2.1"], 0.5)
        model(x).sum().backward()
        assert [one.fired for one in hooks.registered] == [1, 1, 1]
    with HookManager(model) as hooks:
        hooks.stochastic_depth("layer2.0", 0.5)
        with pytest.raises(LayerError, match=r'"layer2\.0" takes 2x64x16x16 float32 and gives 2x128x8x8 float32'):
            model(x)
        model.eval()(x)


def test_a_block_that_writes_to_its_input_is_passed_by_with_the_input_as_it_was():
    model = nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.ReLU(inplace=True)))
    x = torch.randn(8, 3)
    with HookManager(model) as hooks:
        hooks.stochastic_depth("1", 0.999999)
        assert torch.equal(model(x), model[0](x))
        assert (model(x) < 0).any()


@pytest.mark.parametrize(
    ("p", "mode", "message"),
    [(1.0, "row", "p is a"), (-0.1, "row", "p is a"), ("a", "row", "p is a"), (0.5, "x", "mode")],
)
def test_options_that_cannot_be_meant_are_refused(p: float, mode: str, message: str) -> None:
    with HookManager(Residual()) as hooks:
        with pytest.raises(UsageError, match=message):
            hooks.stochastic_depth("block", p, mode=mode)
        with pytest.raises(UsageError, match="for blocks"):
            hooks.stochastic_depth("block.0.weight", 0.5)
        assert hooks.registered == []
