"""Edits against gradients computed by hand, in float64, wherever they are put and however the loop is built."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from camapp.errors import LayerError, UsageError
from camapp.hooks import edits
from camapp.hooks.manager import HookManager

X = torch.tensor([[1.0, -2.0], [3.0, 0.5]], dtype=torch.float64)


class Hand(nn.Module):
    """y = sum(c * relu_(A x)): with relu in place behind the layer, and gradients that fit on a line.

    With A = I the layer gives x, and the gradient of its output is c where x > 0, else 0; that of A is its product
    with x.
    """

    def __init__(self, inplace: bool = True) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2, bias=False).double()
        nn.init.eye_(self.layer.weight)
        self.inplace = inplace
        self.register_buffer("c", torch.tensor([3.0, 4.0], dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        y = y.relu_() if self.inplace else y.relu()
        return (self.c * y).sum()


# dL/dy = c * [x > 0] = [[3, 0], [3, 4]]
GRADIENT = torch.tensor([[3.0, 0.0], [3.0, 4.0]], dtype=torch.float64)
NORM = 34**0.5  # of it: sqrt(9 + 9 + 16)
WEIGHT = GRADIENT.T @ X  # dL/dA


CASES: list[tuple[str, tuple[Any, ...], torch.Tensor]] = [
    ("clip_value", (3.5,), torch.tensor([[3.0, 0.0], [3.0, 3.5]], dtype=torch.float64)),
    ("clip_norm", (1.0,), GRADIENT / NORM),
    ("clip_norm", (100.0,), GRADIENT),
    ("scale", (0.1,), GRADIENT * 0.1),
    ("reverse", (), -GRADIENT),
    ("reverse", (0.5,), GRADIENT * -0.5),
    ("zero", (), GRADIENT * 0),
    ("replace", (lambda gradient: gradient + 1,), GRADIENT + 1),
]


@pytest.mark.parametrize("inplace", [True, False])
@pytest.mark.parametrize(("edit", "args", "wanted"), CASES)
def test_an_edit_of_a_layers_gradient(edit: str, args: Any, wanted: torch.Tensor, inplace: bool) -> None:
    model = Hand(inplace)
    with HookManager(model) as hooks:
        getattr(hooks, edit)("layer", *args)
        hooks.record("layer", of="gradient")
        model(X).backward()
    torch.testing.assert_close(hooks.gradients["layer"], wanted, rtol=1e-14, atol=0)
    torch.testing.assert_close(model.layer.weight.grad, wanted.T @ X, rtol=1e-14, atol=0)


@pytest.mark.parametrize(("edit", "args", "wanted"), CASES)
def test_an_edit_of_a_tensors_gradient(edit: str, args: Any, wanted: torch.Tensor) -> None:
    model = Hand()
    features = model.layer(X)
    with HookManager(model) as hooks:
        getattr(hooks, edit)(features, *args)
        y = features.relu_()  # in place, after the hook is on
        (model.c * y).sum().backward()
        assert [one.place for one in hooks.registered] == ["tensor"]
    torch.testing.assert_close(model.layer.weight.grad, wanted.T @ X, rtol=1e-14, atol=0)


def clip(gradient: torch.Tensor, limit: float) -> torch.Tensor:
    return gradient * min(1.0, limit / gradient.norm().item())


@pytest.mark.parametrize(
    ("edit", "args", "changed"),
    [
        ("clip_value", (2.0,), lambda g: g.clamp(-2, 2)),
        ("clip_norm", (1.0,), lambda g: clip(g, 1.0)),
        ("scale", (0.1,), lambda g: g * 0.1),
        ("reverse", (), lambda g: -g),
        ("zero", (), lambda g: g * 0),
    ],
)
def test_an_edit_of_a_parameters_gradient_is_made_in_each_of_three_micro_batches(
    edit: str, args: Any, changed: Any
) -> None:
    model = Hand()
    batches = [X, X * 2, X[:1]]
    with HookManager(model) as hooks:
        getattr(hooks, edit)("layer.weight", *args)
        for batch in batches:
            model(batch).backward()
    each = [(model.c * (batch > 0)).T @ batch for batch in batches]
    torch.testing.assert_close(model.layer.weight.grad, sum(map(changed, each)), rtol=1e-14, atol=1e-14)


def test_the_norm_over_three_micro_batches_is_clipped_once_they_are_added_up():
    model = Hand()
    clipper = HookManager(model).clip_total_norm(0.5)
    for batch in (X, X * 2, X[:1]):
        model(batch).backward()
    total = sum((model.c * (batch > 0)).T @ batch for batch in (X, X * 2, X[:1]))
    norm = clipper.step()
    torch.testing.assert_close(norm, total.norm(), rtol=1e-14, atol=0)
    torch.testing.assert_close(model.layer.weight.grad, total * 0.5 / total.norm(), rtol=1e-14, atol=0)


@pytest.mark.parametrize("unscaled_before", [False, True])
def test_the_total_norm_under_a_scaler_is_that_of_the_loss_itself(unscaled_before: bool) -> None:
    model = Hand()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    with HookManager(model) as hooks:
        clipper = hooks.clip_total_norm(0.5, "layer.*")
        for batch in (X, X * 2):
            scaler.scale(model(batch)).backward()
        if unscaled_before:
            scaler.unscale_(optimizer)
        norm = clipper.step(optimizer, scaler=scaler)
        total = sum((model.c * (batch > 0)).T @ batch for batch in (X, X * 2))
        torch.testing.assert_close(norm, total.norm(), rtol=1e-14, atol=0)
        torch.testing.assert_close(model.layer.weight.grad, total * 0.5 / total.norm(), rtol=1e-14, atol=0)
        scaler.step(optimizer)
        scaler.update()
        wanted = torch.eye(2, dtype=torch.float64) - total * 0.5 / total.norm()
        torch.testing.assert_close(model.layer.weight.detach(), wanted, rtol=1e-14, atol=1e-15)


def test_a_norm_that_is_not_finite_is_left_for_the_scaler_to_skip():
    model = Hand()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    scaler.scale(model(X * float("inf"))).backward()
    clipper = HookManager(model).clip_total_norm(1.0)
    before = model.layer.weight.detach().clone()
    assert not clipper.step(optimizer, scaler=scaler).isfinite()
    scaler.step(optimizer)
    assert torch.equal(model.layer.weight, before)


def test_a_scaler_needs_its_optimizer():
    model = Hand()
    clipper = HookManager(model).clip_total_norm(1.0)
    with pytest.raises(UsageError, match="unscaled for an optimizer"):
        clipper.step(scaler=torch.amp.GradScaler("cpu"))
    assert clipper.step().item() == 0.0, "there is no gradient yet"


@pytest.mark.parametrize("place", ["layer", "layer.weight"])
@pytest.mark.parametrize(("edit", "args"), [("clip_value", (2.0,)), ("clip_norm", (1.0,)), ("scale", (0.1,))])
def test_limits_and_records_under_a_scaler_are_in_units_of_the_loss(place: str, edit: str, args: Any) -> None:
    def run(scaler: Any) -> tuple[torch.Tensor, torch.Tensor]:
        model = Hand()
        with HookManager(model, scaler=scaler) as hooks:
            getattr(hooks, edit)(place, *args)
            hooks.record(place, of="gradient")
            loss = model(X)
            (loss if scaler is None else scaler.scale(loss)).backward()
        scale = 1.0 if scaler is None else scaler.get_scale()
        return model.layer.weight.grad / scale, hooks.gradients[place]

    scaled, plain = run(torch.amp.GradScaler("cpu", init_scale=4096.0)), run(None)
    torch.testing.assert_close(scaled[0], plain[0], rtol=1e-14, atol=0)
    torch.testing.assert_close(scaled[1], plain[1], rtol=1e-14, atol=0)


def test_two_edits_at_one_place_are_made_in_the_order_of_declaration():
    for order, wanted in (("clip first", GRADIENT / NORM * 10), ("scale first", GRADIENT / NORM)):
        model = Hand()
        with HookManager(model) as hooks:
            both = [lambda: hooks.clip_norm("layer", 1.0), lambda: hooks.scale("layer", 10.0)]
            for declare in both if order == "clip first" else both[::-1]:
                declare()
            loss = model(X)
            assert hooks.remaining() == 4, "two at the model, one hook at the layer, and one on its output"
            loss.backward()
        torch.testing.assert_close(model.layer.weight.grad, wanted.T @ X, rtol=1e-14, atol=0)
    model = Hand()
    with HookManager(model) as hooks:
        hooks.edit("layer", edits.clip_norm(1.0), edits.scale(10.0), name="both")
        assert [one.name for one in hooks.registered] == ["both", "both 2"]
        model(X).backward()
    torch.testing.assert_close(model.layer.weight.grad, (GRADIENT / NORM * 10).T @ X, rtol=1e-14, atol=0)


def test_noise_has_the_deviation_asked_for_and_none_on_average():
    model = nn.Linear(1, 1, bias=False).double()
    generator = torch.Generator().manual_seed(1)
    with HookManager(model) as hooks:
        hooks.add_noise("weight", 0.5, generator=generator)
        hooks.store_gradients(keep=4000)
        for _ in range(4000):
            model(torch.ones(1, 1, dtype=torch.float64)).sum().backward()
    noise = torch.stack([value for _, value in hooks.gradients.steps("weight")]).flatten() - 1
    assert abs(noise.mean().item()) < 4 * 0.5 / 4000**0.5
    assert noise.std().item() == pytest.approx(0.5, rel=0.05)


def test_outputs_and_inputs_are_replaced_wherever_they_stand():
    model = Hand()
    with HookManager(model) as hooks:
        hooks.edit_output("layer", lambda y: y + 10)
        assert model(X).item() == (model.c * (X + 10)).sum().item()
    with HookManager(model) as hooks:
        hooks.edit_input("layer", lambda x: x * 2)
        assert model(X).item() == (model.c * (X * 2).relu()).sum().item()
    with HookManager(model) as hooks:
        hooks.zero("layer", of="activation")
        assert model(X).item() == 0.0
    with HookManager(model) as hooks:
        hooks.edit_output("layer", lambda y: y[:1], any_shape=True)
        assert model(X).item() == (model.c * X[:1].relu()).sum().item()
    assert model(X).item() == (model.c * X.relu()).sum().item()


def test_one_part_or_every_part_of_an_lstm_is_changed():
    torch.manual_seed(0)
    lstm = nn.Sequential()
    lstm.add_module("rnn", nn.LSTM(2, 3))
    inputs = torch.randn(4, 1, 2)
    plain, (hidden, cell) = lstm(inputs)
    with HookManager(lstm) as hooks:
        hooks.edit_output("rnn#1.0", torch.zeros_like)
        output, (zeroed, same) = lstm(inputs)
        assert torch.equal(output, plain)
        assert torch.equal(zeroed, torch.zeros_like(hidden))
        assert torch.equal(same, cell)
    with HookManager(lstm) as hooks:
        hooks.edit_output("rnn", torch.zeros_like)
        output, (zeroed, same) = lstm(inputs)
        assert [part.any().item() for part in (output, zeroed, same)] == [False] * 3


def test_a_rule_asks_what_was_recorded_and_holds_only_while_it_is_so():
    model = Hand()
    with HookManager(model) as hooks:
        hooks.record("layer", of="gradient", reduce="norm")
        hooks.scale("layer.weight", 0.1, when=lambda seen: seen.gradients["layer"] > 10)
        model(X).backward()  # the norm is sqrt(34) < 10
        torch.testing.assert_close(model.layer.weight.grad, WEIGHT, rtol=1e-14, atol=0)
        model.zero_grad()
        model(X).mul(2).backward()  # 2 sqrt(34) > 10
        torch.testing.assert_close(model.layer.weight.grad, 0.1 * 2 * WEIGHT, rtol=1e-14, atol=0)


def test_a_rule_may_answer_with_a_bool_and_does_nothing_before_its_record_is_there():
    model, asked = Hand(), []

    def rule(seen: Any) -> bool:
        asked.append(1)
        return float(seen.gradients["layer.weight"]) > 0

    with HookManager(model) as hooks:
        hooks.zero("layer", when=rule)
        hooks.record("layer.weight", reduce="norm")
        model(X).backward()
        torch.testing.assert_close(model.layer.weight.grad, WEIGHT, rtol=1e-14, atol=0)
        model(X).backward()
    assert len(asked) == 2
    torch.testing.assert_close(model.layer.weight.grad, WEIGHT, rtol=1e-14, atol=0)


def test_a_rule_that_asks_for_what_nobody_records_is_an_error():
    model = Hand()
    with HookManager(model) as hooks:
        hooks.record("layer", of="gradient")
        hooks.zero("layer", when=lambda seen: seen.gradients["lair"] > 0)
        with pytest.raises(LayerError, match=r"A rule asked for what is not recorded.*Did you mean layer"):
            model(X).backward()


def test_an_edit_at_every_second_step_only():
    model, seen = Hand(), []
    with HookManager(model) as hooks:
        hooks.zero("layer", every=2)
        for _ in range(4):
            model.zero_grad()
            model(X).backward()
            seen.append(bool(model.layer.weight.grad.any()))
    assert seen == [False, True, False, True]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_gradients_stay_half_and_norms_do_not_overflow(dtype: torch.dtype) -> None:
    large = torch.full((1000,), 3e4).to(dtype)  # the sum of squares overflows float16, the norm too
    clipped = edits.clip_norm(1.0)(large)
    assert clipped.dtype == dtype
    torch.testing.assert_close(clipped.float().norm(), torch.tensor(1.0), rtol=2e-2, atol=0)
    scaled = edits.clip_value(0.5)(large, torch.tensor(4.0))
    assert scaled.dtype == dtype
    assert (scaled == 2.0).all()


values = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=6)
limits = st.floats(1e-6, 10) | st.just(0.0)


@given(values, limits)
def test_clipping_keeps_the_direction_and_the_limit(elements: list[float], limit: float) -> None:
    tensor = torch.tensor(elements, dtype=torch.float64)
    before = tensor.clone()
    by_norm, by_value = edits.clip_norm(limit)(tensor), edits.clip_value(limit)(tensor)
    assert torch.equal(tensor, before)
    assert by_norm.norm() <= limit * (1 + 1e-12) or torch.equal(by_norm, tensor)
    torch.testing.assert_close(by_norm * tensor.norm(), tensor * by_norm.norm(), rtol=1e-9, atol=1e-9)
    assert torch.equal(by_value, tensor.clamp(-limit, limit))


def test_what_is_not_finite_is_neither_hidden_nor_spread():
    broken = torch.tensor([1.0, float("nan"), 5.0])
    assert edits.clip_norm(1.0)(broken).isnan().tolist() == [False, True, False]
    assert edits.clip_norm(1.0)(broken)[2] == 5.0
    assert edits.clip_value(2.0)(broken)[2] == 2.0
    assert edits.clip_value(2.0)(broken)[1].isnan()
    assert edits.zero()(broken).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda g: g[:1], 'returned 1x2 float64 on cpu for the gradient of "layer", which is 2x2 float64 on cpu'),
        (lambda g: g.float(), "returned 2x2 float32"),
        (lambda g: 3.0, "returned float for the gradient"),
        (lambda g: g.norm(), "returned a scalar float64"),
    ],
)
def test_an_edit_that_returns_something_else_is_named(function: Any, message: str) -> None:
    model = Hand()
    with HookManager(model) as hooks:
        hooks.replace("layer", function)
        with pytest.raises(UsageError, match=message):
            model(X).backward()
    model(X).backward()
    torch.testing.assert_close(model.layer.weight.grad, WEIGHT)


def test_an_edit_that_writes_into_the_gradient_is_named():
    model = Hand()

    def careless(gradient: torch.Tensor) -> torch.Tensor:
        gradient.mul_(0)
        return gradient.clone()

    with HookManager(model) as hooks:
        hooks.replace("layer", careless, name="mine")
        with pytest.raises(UsageError, match='"mine" changed the gradient of "layer" in place'):
            model(X).backward()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda hooks: hooks.edit("layer"), "one or more edits"),
        (lambda hooks: hooks.edit("layer", torch.zeros_like), "one or more edits"),
        (lambda hooks: hooks.clip_norm("layer", -1), "max_norm is a finite number from 0"),
        (lambda hooks: hooks.clip_value("layer", float("nan")), "limit is a finite number"),
        (lambda hooks: hooks.scale("layer", "0.1"), "factor is a finite number"),
        (lambda hooks: hooks.add_noise("layer", float("inf")), "std is a finite number"),
        (lambda hooks: hooks.replace("layer", 3), "takes a function"),
        (lambda hooks: hooks.scale("layer", 1.0, of="input"), "of is"),
        (lambda hooks: hooks.scale("layer.weight", 1.0, of="activation"), "has no activation"),
        (lambda hooks: hooks.clip_total_norm(-1.0), "max_norm"),
        (lambda hooks: hooks.scale(torch.ones(2), 1.0), "requires no gradient"),
    ],
)
def test_edits_that_cannot_be_meant_are_refused_before_anything_is_hooked(call: Any, message: str) -> None:
    with HookManager(Hand()) as hooks:
        before = hooks.remaining()
        with pytest.raises(UsageError, match=message):
            call(hooks)
        assert (hooks.registered, hooks.remaining()) == ([], before)
