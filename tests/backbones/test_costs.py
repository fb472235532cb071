"""measure_costs: numbers that a hand can compute, for every way in which a network multiplies."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import camapp
from camapp.backbones.costs import Costs, measure_costs
from camapp.errors import ModelError, UsageError
from tests.networks import Reused


def costs_of(network: nn.Module, *shape: int) -> Costs:
    return measure_costs(network, torch.zeros(1, *shape))


def macs(network: nn.Module, *shape: int) -> int:
    return costs_of(network, *shape).macs


class Attention(nn.Module):
    """Attention over 10 tokens of 8 numbers with 2 heads, by torch's function and nothing else."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = x.unflatten(-1, (2, 4)).transpose(1, 2)
        return F.scaled_dot_product_attention(heads, heads, heads)


class Holder(nn.Module):
    """Two layers that share one weight, and a matrix product of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4, bias=False)
        self.second = nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight
        self.mixing = nn.Parameter(torch.ones(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x)) @ self.mixing


@pytest.mark.parametrize(
    ("layer", "shape", "expected"),
    [
        pytest.param(nn.Conv2d(3, 8, 3, padding=1), (3, 10, 12), 3 * 3 * 3 * 8 * 10 * 12, id="convolution"),
        pytest.param(nn.Conv2d(3, 8, 3, stride=2, padding=1), (3, 10, 12), 3 * 3 * 3 * 8 * 5 * 6, id="strided"),
        pytest.param(nn.Conv2d(8, 8, 3, padding=1, groups=8), (8, 5, 7), 3 * 3 * 8 * 5 * 7, id="depthwise"),
        pytest.param(nn.Conv2d(8, 4, 1, groups=2), (8, 5, 7), 8 * 4 // 2 * 5 * 7, id="two groups"),
        pytest.param(nn.Conv1d(2, 4, 5), (2, 20), 5 * 2 * 4 * 16, id="signals"),
        pytest.param(nn.Conv3d(1, 2, 3), (1, 5, 5, 5), 27 * 2 * 27, id="volumes"),
        pytest.param(nn.ConvTranspose2d(4, 2, 2, stride=2), (4, 3, 3), 2 * 2 * 4 * 2 * 9, id="transposed"),
        pytest.param(nn.Linear(6, 5), (6,), 6 * 5, id="linear"),
        pytest.param(nn.Linear(6, 5), (7, 6), 7 * 6 * 5, id="linear of tokens"),
        pytest.param(Attention(), (10, 8), 2 * (10 * 10 * 4) * 2, id="attention"),
        pytest.param(nn.BatchNorm2d(3), (3, 4, 4), 0, id="norms count nothing"),
    ],
)
def test_multiply_accumulates_are_those_counted_by_hand(
    layer: nn.Module, shape: tuple[int, ...], expected: int
) -> None:
    assert macs(layer.eval(), *shape) == expected


def test_attention_of_torch_counts_its_projections_and_both_products() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.attention(x, x, x, need_weights=False)[0]

    projections, products = 10 * 8 * 24 + 10 * 8 * 8, 2 * (10 * 10 * 4) * 2
    assert macs(Own(), 10, 8) == projections + products


def test_a_functional_call_counts_for_the_module_whose_forward_makes_it() -> None:
    costs = costs_of(Holder(), 3, 4)
    assert costs.macs == 3 * 3 * 4 * 4
    assert costs["first"].macs == costs["second"].macs == 3 * 4 * 4
    assert costs["first"].share == pytest.approx(1 / 3)


def test_what_is_shared_counts_once_in_the_whole_and_in_each_module_that_holds_it() -> None:
    costs = costs_of(Holder(), 3, 4)
    assert costs.parameters == 32
    assert [costs[name].parameters for name in ("first", "second")] == [16, 16]
    assert costs[""].own_parameters == 16


def test_a_layer_that_runs_three_times_counts_three_times_and_one_that_never_runs_nothing() -> None:
    network = nn.Sequential(Reused())
    costs = costs_of(network, 3, 6, 6)
    assert costs["0.relu"].calls == 3
    assert (costs["0.unused"].calls, costs["0.unused"].macs, costs["0.unused"].shape) == (0, 0, None)
    assert costs["0.unused"].parameters == 4 * 4 + 4


def test_a_module_that_calls_itself_counts_its_work_once() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor, again: bool = True) -> torch.Tensor:
            x = self.inner(x)
            return self(x, again=False) if again else x

    costs = costs_of(Twice(), 4)
    assert costs.macs == costs["inner"].macs == 2 * 16


def test_the_tree_has_each_module_under_the_one_that_holds_it() -> None:
    network = nn.Sequential(nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU()), nn.Flatten(), nn.Linear(16, 2))
    costs = costs_of(network, 3, 2, 2)
    assert [(one.name, one.depth) for one in costs] == [("", 0), ("0", 1), ("0.0", 2), ("0.1", 2), ("1", 1), ("2", 1)]
    assert costs[""].children == ("0", "1", "2")
    assert costs["0"].children == ("0.0", "0.1")
    assert (costs["0"].kind, costs["0"].shape, costs["0"].short_name) == ("Sequential", (4, 2, 2), "0")
    assert costs["0"].macs == costs["0.0"].macs == 3 * 4 * 4
    assert sum(costs[name].share for name in costs[""].children) == pytest.approx(1)


def test_names_with_no_module_between_them_hang_under_the_nearest_that_is_one() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleDict({"a": nn.Linear(2, 2)})

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.parts["a"](x)

    costs = costs_of(Odd(), 2)
    assert [(one.name, one.depth, one.calls) for one in costs] == [("", 0, 1), ("parts", 1, 0), ("parts.a", 2, 1)]


def test_figures_are_of_one_picture_however_many_are_given() -> None:
    network = nn.Conv2d(3, 4, 3)
    assert measure_costs(network, torch.zeros(5, 3, 8, 8)).macs == macs(network, 3, 8, 8)


def test_the_default_model_costs_what_torchs_own_counter_says() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    model = camapp.load_model("efficientnet_lite0", device="cpu")
    costs = measure_costs(model)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.module(torch.zeros(1, 3, 224, 224))
    assert costs.macs == counter.get_total_flops() // 2
    assert costs.size == (224, 224)
    leaves = [one for one in costs if not one.children]
    assert sum(one.macs for one in leaves) == costs.macs
    assert sum(one.own_parameters for one in costs) == costs.parameters == 4_652_008


def test_the_network_is_left_as_it_was_found() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(), nn.Flatten(), nn.Linear(144, 2))
    network.train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    state = torch.get_rng_state()
    costs_of(network, 3, 8, 8)
    assert network.training
    assert network[2].training
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in network.modules())


def test_a_network_that_fails_leaves_no_hook_behind() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Linear(5, 2))
    with pytest.raises(RuntimeError):
        costs_of(network, 3, 8, 8)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in network.modules())


def test_forwards_of_other_threads_count_nothing() -> None:
    inner = nn.Linear(4, 4)

    class Asking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            other = threading.Thread(target=lambda: inner(torch.zeros(100, 4)))
            other.start()
            other.join()
            return self.inner(x)

    costs = costs_of(Asking(), 4)
    assert (costs.macs, costs["inner"].calls) == (16, 1)


def test_a_plain_network_needs_inputs() -> None:
    with pytest.raises(UsageError, match="give inputs"):
        measure_costs(nn.Linear(2, 2))


def test_a_model_that_fails_on_its_own_input_is_named() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(192, 2))
    model = camapp.wrap_model(network, size=8, labels=["a", "b"])
    network[1] = nn.Linear(5, 2)
    with pytest.raises(ModelError, match="fails on its own input of 8x8"):
        measure_costs(model)


def test_costs_go_to_json_and_show_themselves() -> None:
    costs = costs_of(nn.Sequential(nn.Linear(4, 4)), 4)
    facts: dict[str, Any] = json.loads(json.dumps(costs.to_dict()))
    assert facts["modules"][1]["macs"] == 16
    assert "1 layers, 20 parameters, 16 MACs" in repr(costs)
