"""Sick networks get the verdicts they deserve, and numbers near a threshold the right side of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import timm
import torch
from torch import nn
from torch.nn import functional as F

from camapp.hooks.inspector import Inspector, Thresholds, inspect_once, verdicts
from camapp.hooks.report.records import Snapshot, TensorStatistics


def deep(depth: int, act: Callable[[], nn.Module], gain: float = 1.0, width: int = 32) -> nn.Sequential:
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), act()]
    model = nn.Sequential(*layers, nn.Linear(width, 10))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(gain)
    return model


def one_step(model: nn.Module, x: torch.Tensor) -> Snapshot:
    with Inspector(model, every=1) as inspector:
        loss = F.cross_entropy(model(x), torch.arange(len(x)) % 3)
        loss.backward()
        snapshot = inspector.step(loss)
    assert snapshot is not None
    return snapshot


def found(snapshot: Snapshot) -> set[tuple[str, str]]:
    return {(verdict.what, verdict.name) for verdict in snapshot.verdicts}


def test_gradients_vanish_in_forty_layers_of_sigmoids() -> None:
    snapshot = one_step(deep(40, nn.Sigmoid), torch.randn(16, 32))
    wrong = found(snapshot)
    assert ("vanishing", "0.weight") in wrong or ("vanishing", "0.bias") in wrong
    assert not any(name.startswith(("78.", "80.")) for _, name in wrong)  # the last layers learn
    assert {what for what, _ in wrong} == {"vanishing"}
    (first,) = [entry for entry in snapshot.of("parameter gradient") if entry.name == "0.weight"]
    assert 0 < first.norm < 1e-20  # in float32 its squares are all 0


@pytest.mark.parametrize("act", [nn.Sigmoid, nn.Tanh, nn.Hardsigmoid, nn.Hardtanh, nn.Softsign])
def test_bounded_functions_with_large_inputs_are_saturated(act: Callable[[], nn.Module]) -> None:
    model = deep(3, act, gain=1000.0)
    assert {name for what, name in found(one_step(model, torch.randn(16, 32))) if what == "saturated"} == {
        "1",
        "3",
        "5",
    }
    healthy = found(one_step(deep(3, act), torch.randn(16, 32)))
    assert not any(what == "saturated" for what, _ in healthy)


def test_the_upper_limit_of_relu6_saturates_and_its_zeros_do_not() -> None:
    model = nn.Sequential(nn.Linear(4, 64), nn.ReLU6())
    x = torch.randn(16, 4)
    nn.init.constant_(model[0].bias, -0.5)
    assert not any(what == "saturated" for what, _ in found(one_step(model, x)))
    nn.init.constant_(model[0].bias, 50.0)
    assert ("saturated", "1") in found(one_step(model, x))


def test_large_weights_explode() -> None:
    wrong = found(one_step(deep(20, nn.ReLU, gain=10.0), torch.randn(16, 32)))
    assert ("exploding", "40") in wrong
    assert ("exploding", "0") not in wrong


def test_units_behind_a_bias_of_minus_a_hundred_are_dead() -> None:
    for act in (nn.ReLU, nn.GELU, nn.SiLU):
        model = nn.Sequential(nn.Conv2d(3, 8, 3), act(), nn.Conv2d(8, 8, 3), act(), nn.Flatten(), nn.LazyLinear(4))
        model(torch.zeros(1, 3, 8, 8))
        nn.init.constant_(model[2].bias, -1000.0)
        wrong = found(one_step(model, torch.randn(4, 3, 8, 8)))
        assert ("dead", "3") in wrong
        assert ("dead", "1") not in wrong


def test_a_gradient_of_zero_is_told_from_the_second_step_on_or_where_there_is_none() -> None:
    """The residual branches of timm's networks begin at 0, and get no gradient at the first step."""
    model = timm.create_model("resnet18", num_classes=4)
    x = torch.randn(4, 3, 32, 32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with Inspector(model, every=1) as inspector:
        for _ in range(2):
            loss = F.cross_entropy(model(x), torch.arange(4))
            loss.backward()
            inspector.step(loss)
            optimizer.step()
            optimizer.zero_grad()
    assert inspector.history[0].verdicts == ()
    assert any(entry.norm == 0 for entry in inspector.history[0].of("parameter gradient"))
    cut = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    nn.init.constant_(cut[0].bias, -100.0)
    once = inspect_once(cut, lambda: cut(torch.randn(9, 3)).square().sum())
    assert {("dead", "1"), ("vanishing", "0.weight")} <= found(once)


def statistics(name: str, rms: float, of: str = "parameter gradient", **changed: float) -> TensorStatistics:
    entry = TensorStatistics(name, of, "Linear", (10, 10), rms * 10, 0.0, rms * 3, 0.0, 0, rms, rms, rms)  # type: ignore[arg-type]
    return replace(entry, **changed)  # type: ignore[arg-type]


def snapshot(*entries: TensorStatistics, step: int = 0, loss: float | None = 1.0) -> Snapshot:
    return Snapshot(step, loss, entries)


def test_a_layer_is_judged_with_all_its_parameters() -> None:
    """The bias of attention's keys has a gradient of rounding errors only, and its layer is well."""
    layers = [statistics(f"{number}.weight", 1e-3) for number in range(4)]
    well = snapshot(*layers, statistics("k.weight", 1e-3), statistics("k.bias", 1e-12))
    assert verdicts(well) == ()
    (ill,) = verdicts(snapshot(*layers, statistics("k.weight", 1e-9), statistics("k.bias", 1e-12)))
    assert (ill.what, ill.name) == ("vanishing", "k.weight")
    assert "7.1e-10" in ill.why
    assert "0.001" in ill.why


def test_a_norm_explodes_against_its_own_past() -> None:
    def at(rms: float, step: int) -> Snapshot:
        return snapshot(statistics("a.weight", rms), statistics("b.weight", 1e-3), step=step)

    past = [at(1e-3 * (1 + step % 3), step) for step in range(6)]
    assert verdicts(at(0.15, 6), past) == ()
    (told,) = verdicts(at(0.25, 6), past)
    assert (told.what, told.name) == ("exploding", "a.weight")
    assert verdicts(at(0.25, 6), past[:4]) == ()  # too little of a past
    assert verdicts(at(0.15, 6), past, thresholds=Thresholds(exploding_rise=10)) != ()
    rising = [at(1e-9, step) for step in range(6)]
    assert not any(verdict.what == "exploding" for verdict in verdicts(at(1e-3, 6), rising))  # up to where others are


def test_what_nears_the_end_of_its_dtype_explodes() -> None:
    entry = statistics("0", 1.0, "activation", abs_max=7000.0)
    assert verdicts(snapshot(entry)) == ()
    (told,) = verdicts(snapshot(entry), largest={("0", "activation"): torch.finfo(torch.float16).max})
    assert told.what == "exploding"
    assert "6.6e+04" in told.why


def test_what_is_not_finite_comes_first_in_the_order_in_which_it_spread() -> None:
    bad = {"nonfinite": 3, "norm": math.nan}
    entries = (
        statistics("0", 1.0, "activation"),
        statistics("0", 1.0, "gradient", **bad),
        statistics("1", 1.0, "activation", **bad),
        statistics("1", 1.0, "gradient", **bad),
        statistics("0.weight", 1.0, **bad),
        statistics("1.weight", 0.0),
    )
    told = verdicts(snapshot(*entries, loss=math.nan))
    assert [(verdict.name, verdict.of) for verdict in told if verdict.what == "non-finite"] == [
        ("loss", "activation"),
        ("1", "activation"),
        ("1", "gradient"),
        ("0", "gradient"),
        ("0.weight", "parameter gradient"),
    ]
    assert "3 of 100" in told[1].why
    assert told[-1].what == "vanishing"


def test_a_few_vectors_do_not_tell_dead_units() -> None:
    entry = replace(statistics("1", 1.0, "activation", dead_units=0.95, zero_share=0.95), shape=(2, 50))
    assert verdicts(snapshot(entry)) == ()
    assert [one.what for one in verdicts(snapshot(replace(entry, shape=(8, 50))))] == ["dead"]
    assert [one.what for one in verdicts(snapshot(replace(entry, shape=(2, 50, 7, 7))))] == ["dead"]
