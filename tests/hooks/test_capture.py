"""Capture: exact activations and gradients, keyed by call, and no hook left."""

from __future__ import annotations

import gc
import threading
import warnings

import pytest
import torch
from torch import nn

from camapp.errors import LayerError
from camapp.hooks.as_found import as_found
from camapp.hooks.capture import Capture
from tests.autograd_oracle import full_autograd
from tests.networks import InPlaceAfter, PassThrough, Plain, Reused


def hooks_on(model: nn.Module) -> int:
    return sum(
        len(module._forward_hooks) + len(module._forward_pre_hooks) + len(module._backward_hooks)
        for module in model.modules()
    )


def capture_one(
    model: nn.Module, layer: str, inputs: torch.Tensor, classes: list[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    with as_found(model):
        with Capture(model, [layer]) as capture:
            logits = model(inputs)
        capture.backward(logits[torch.arange(len(inputs)), classes])
        tap = capture[layer]
    assert tap.gradient is not None
    return tap.activation, tap.gradient


@pytest.mark.parametrize("network", [Plain, InPlaceAfter])
@pytest.mark.parametrize("layer", ["stem", "norm", "last"])
def test_activation_and_gradient_equal_full_autograd(network: type[nn.Module], layer: str) -> None:
    model, inputs = network().eval(), torch.randn(2, 3, 16, 12)
    expected = full_autograd(model, layer, inputs, [1, 3])
    for ours, theirs in zip(capture_one(model, layer, inputs, [1, 3]), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def test_in_place_operations_behind_the_layer_raise_no_warning_and_leave_negatives_in_the_activation() -> None:
    model = InPlaceAfter().eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        activation, _ = capture_one(model, "last", torch.randn(1, 3, 16, 16), [0])
    assert (activation < 0).any()


def test_a_layer_that_returns_its_own_input_is_safe_from_later_writes_to_it() -> None:
    model = PassThrough().eval()
    inputs = torch.randn(1, 3, 16, 16)
    activation, _ = capture_one(model, "drop", inputs, [0])
    wanted = model.last(torch.relu(model.norm(model.stem(inputs))))
    torch.testing.assert_close(activation, wanted.detach())


def test_several_layers_in_any_order_equal_one_at_a_time() -> None:
    model, inputs = Plain().eval(), torch.randn(2, 3, 16, 16)
    alone = {layer: capture_one(model, layer, inputs, [0, 1]) for layer in ("stem", "norm", "last")}
    for order in (["last", "stem", "norm"], ["norm", "last", "stem"]):
        with as_found(model):
            with Capture(model, order) as capture:
                logits = model(inputs)
            capture.backward(logits[[0, 1], [0, 1]])
            for layer in order:
                torch.testing.assert_close(capture[layer].activation, alone[layer][0], rtol=0, atol=0)
                torch.testing.assert_close(capture[layer].gradient, alone[layer][1], rtol=0, atol=0)


def test_each_call_of_a_reused_layer_is_a_tap_of_its_own_and_the_bare_name_is_the_last() -> None:
    model, inputs = Reused().eval(), torch.randn(1, 3, 8, 8)
    names = ["relu@0", "relu@1", "relu@2", "relu"]
    with as_found(model):
        with Capture(model, names) as capture:
            logits = model(inputs)
        capture.backward(logits[:, 1])
    first = torch.relu(model.one(inputs))
    second = torch.relu(model.two(first))
    third = torch.relu(second - 0.1)
    for name, wanted in zip(names, [first, second, third, third], strict=True):
        torch.testing.assert_close(capture[name].activation, wanted.detach())
    grads = torch.autograd.grad(model.head(third.mean((2, 3)))[0, 1], [first, second, third])
    for name, wanted in zip(names, [*grads, grads[-1]], strict=True):
        torch.testing.assert_close(capture[name].gradient, wanted)


def test_a_layer_that_never_ran_and_a_call_too_many_are_named_errors() -> None:
    model = Reused().eval()
    with as_found(model), Capture(model, ["unused", "relu@3"]) as capture:
        model(torch.randn(1, 3, 8, 8))
    with pytest.raises(LayerError, match='"unused" was never called'):
        capture["unused"]
    with pytest.raises(LayerError, match=r'"relu@3" was called 3 time\(s\)'):
        capture["relu@3"]


def test_an_unknown_layer_names_the_closest() -> None:
    with pytest.raises(LayerError, match=r'No layer "stm" in Plain. Did you mean stem\?'):
        Capture(Plain(), ["stm"])


def test_a_score_that_does_not_depend_on_the_layer_says_so() -> None:
    model = Plain().eval()
    with as_found(model):
        with Capture(model, ["last"]) as capture:
            logits = model(torch.randn(1, 3, 8, 8))
        with pytest.raises(LayerError, match="does not depend on last"):
            capture.backward(logits.detach())


def test_backward_writes_no_parameter_gradient() -> None:
    model = Plain().eval()
    kept = torch.full_like(model.head.weight, 7.0)
    model.head.weight.grad = kept
    capture_one(model, "last", torch.randn(1, 3, 8, 8), [0])
    assert model.head.weight.grad is kept
    assert torch.equal(kept, torch.full_like(kept, 7.0))
    assert all(p.grad is None for name, p in model.named_parameters() if name != "head.weight")


def test_nothing_before_the_layer_is_in_the_graph() -> None:
    model, inputs = Plain().eval(), torch.randn(4, 3, 64, 64)
    seen: list[tuple[int, ...]] = []
    with (
        as_found(model),
        Capture(model, ["last"]),
        torch.autograd.graph.saved_tensors_hooks(
            lambda tensor: seen.append(tuple(tensor.shape)) or tensor, lambda tensor: tensor
        ),
    ):
        model(inputs)
    assert seen  # the part behind the layer saves something,
    assert not [shape for shape in seen if shape[-2:] == (32, 32)]  # and the stem's 32x32 maps are not among it


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_hooks_are_gone_after_an_error_and_foreign_hooks_stay(error: type[BaseException]) -> None:
    model = Plain().eval()

    def interrupt(module: nn.Module, args: object, output: object) -> None:
        raise error

    foreign = model.norm.register_forward_hook(lambda *_: None)
    bomb = model.last.register_forward_hook(interrupt)
    before = hooks_on(model)
    with pytest.raises(error), as_found(model), Capture(model, ["stem", "last"]):
        model(torch.randn(1, 3, 8, 8))
    assert hooks_on(model) == before
    foreign.remove()
    bomb.remove()
    assert hooks_on(model) == 0


def test_another_threads_forward_is_not_recorded() -> None:
    model, mine, theirs = Plain().eval(), torch.randn(1, 3, 8, 8), torch.randn(3, 3, 8, 8)
    with as_found(model), Capture(model, ["last"]) as capture:
        model(mine)
        other = threading.Thread(target=lambda: model(theirs))
        other.start()
        other.join()
    assert capture.calls["last"] == 1
    assert len(capture["last"].activation) == 1


def test_two_hundred_captures_leave_no_tensor_behind() -> None:
    model, inputs = InPlaceAfter().eval(), torch.randn(1, 3, 16, 16)

    def tensors() -> int:
        gc.collect()
        return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())

    capture_one(model, "last", inputs, [0])
    before = tensors()
    gc.disable()  # what is left must go by reference count alone: a cycle would hold memory until the collector runs
    try:
        for _ in range(200):
            capture_one(model, "last", inputs, [0])
        grown = sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects()) - before
    finally:
        gc.enable()
    assert grown <= 2, f"{grown} tensors left"
    assert hooks_on(model) == 0


class TupleOut(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.LSTM(4, 4, batch_first=True)
        self.head = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x)[0].mean(1))


def test_the_first_tensor_of_a_tuple_is_tapped_and_the_rest_passes() -> None:
    model, inputs = TupleOut().eval(), torch.randn(2, 5, 4)
    with as_found(model):
        with Capture(model, ["body"]) as capture:
            logits = model(inputs)
        capture.backward(logits[:, 0])
    torch.testing.assert_close(capture["body"].activation, model.body(inputs)[0].detach())
    torch.testing.assert_close(logits, model(inputs))
    wanted = (model.head.weight[0] / 5).expand(2, 5, 4)
    torch.testing.assert_close(capture["body"].gradient, wanted.detach())


def test_a_named_tuple_keeps_its_kind() -> None:
    from collections import namedtuple

    Pair = namedtuple("Pair", "first second")

    class Paired(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.pair = _Pairing(Pair)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            pair = self.pair(self.last(self.norm(self.stem(x))))
            return self.head((pair.first + pair.second).mean((2, 3)))

    model, inputs = Paired().eval(), torch.randn(1, 3, 8, 8)
    with as_found(model):
        with Capture(model, ["pair"]) as capture:
            logits = model(inputs)
        capture.backward(logits[:, 0])
    torch.testing.assert_close(logits, model(inputs))
    assert capture["pair"].gradient is not None


class _Pairing(nn.Module):
    def __init__(self, kind: type) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: torch.Tensor) -> object:
        return self.kind(x * 2, x)


def test_a_capture_may_be_used_again_and_knows_only_the_last_forward() -> None:
    model, inputs = Plain().eval(), torch.randn(2, 3, 8, 8)
    with as_found(model):
        capture = Capture(model, ["last"])
        for batch in (torch.randn(1, 3, 8, 8), inputs):
            with capture:
                logits = model(batch)
        capture.backward(logits[:, 0])
    assert capture.calls == {"last": 1}
    torch.testing.assert_close(capture["last"].activation, full_autograd(model, "last", inputs, [0, 0])[0])


class Branches(nn.Module):
    """Two branches side by side: neither layer lies on the other's way to the scores."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 1)
        self.one = nn.Conv2d(4, 4, 3, padding=1)
        self.two = nn.Conv2d(4, 4, 3, padding=1)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        both = torch.cat([torch.relu(self.one(x)), torch.relu(self.two(x))], dim=1)
        return self.head(both.mean((2, 3)))


@pytest.mark.parametrize("order", [["one", "two"], ["two", "one"], ["two", "stem", "one"]])
def test_layers_on_parallel_branches_each_get_their_gradient(order: list[str]) -> None:
    model, inputs = Branches().eval(), torch.randn(2, 3, 8, 8)
    with as_found(model):
        with Capture(model, order) as capture:
            scores = model(inputs)[:, 1]
        capture.backward(scores)
    for layer in order:
        activation, gradient = full_autograd(model, layer, inputs, [1, 1])
        torch.testing.assert_close(capture[layer].activation, activation)
        torch.testing.assert_close(capture[layer].gradient, gradient)
