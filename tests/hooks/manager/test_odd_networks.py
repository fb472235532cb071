"""Records and edits are right in networks and loops that are unlike the ordinary one."""

from __future__ import annotations

import copy
import threading
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import camapp
from camapp.errors import LayerError, ModelError, UsageError
from camapp.hooks.manager import HookManager
from tests.hooks.test_handles import hooks_of
from tests.networks import Plain

X = torch.tensor([[1.0, 2.0]], dtype=torch.float64)


class Net(nn.Module):
    """A network made of a function of itself and its layers."""

    def __init__(self, forward: Any, **layers: nn.Module) -> None:
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer.double())
        self._function = forward

    def forward(self, *args: Any) -> Any:
        return self._function(self, *args)


class Twice(nn.Module):
    """Gives one tensor at two places, as models with ``last_hidden_state`` and ``hidden_states`` do."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, tuple[torch.Tensor]]:
        y = x * 1
        return y, (y,)


def test_a_tensor_at_two_places_of_an_output_is_edited_once_and_found_at_both():
    model = Net(lambda self, x: self.b(x)[0] + self.b(x)[1][0], b=Twice())
    x = X.clone().requires_grad_()
    with HookManager(model) as hooks:
        hooks.record("b", of="gradient")
        hooks.reverse("b")
        model(x).sum().backward()
    assert torch.equal(x.grad, torch.full_like(X, -2.0))
    assert sorted(hooks.gradients) == ["b@0#0", "b@0#1.0", "b@1#0", "b@1#1.0"]


def test_a_module_with_two_names_is_edited_once_and_found_under_both():
    act = nn.Tanh()
    model = nn.ModuleDict({"one": nn.Sequential(act), "two": nn.Sequential(act)})
    model.forward = lambda x: model["two"](model["one"](x)).sum()  # type: ignore[method-assign]
    x, plain = X.clone().requires_grad_(), X.clone().requires_grad_()
    torch.tanh(torch.tanh(plain)).sum().backward()
    with HookManager(model) as hooks:
        hooks.record(["one.0", "two.0"])
        hooks.scale("*.0", 0.5)
        model(x).backward()
    torch.testing.assert_close(x.grad, plain.grad / 4)
    assert torch.equal(hooks.activations["two.0"], hooks.activations["one.0"])
    tied = nn.ModuleDict({"e": nn.Linear(2, 2, bias=False), "h": nn.Linear(2, 2, bias=False)})
    tied["h"].weight = tied["e"].weight
    tied.forward = lambda x: tied["h"](tied["e"](x)).sum()  # type: ignore[method-assign]
    with HookManager(tied) as hooks:
        hooks.record("e.weight")
        hooks.record("h.weight", reduce="norm", name="second")
        tied(torch.ones(1, 2)).backward()
        assert torch.equal(hooks.gradients["h.weight"], hooks.gradients["e.weight"])


class Mark(nn.Module):
    """Gives what it is given, as Identity and Dropout that predicts do."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def test_the_gradient_of_a_layer_that_hands_on_its_input_is_its_own():
    model = Net(lambda self, x: (y := x * 1.0).sum() + 10 * self.mark(y).sum(), mark=Mark())
    x = X.clone().requires_grad_()
    with HookManager(model) as hooks:
        hooks.record("mark", of="gradient")
        hooks.reverse("mark")
        model(x).backward()
    assert torch.equal(hooks.gradients["mark"], torch.full_like(X, 10.0))
    assert torch.equal(x.grad, torch.full_like(X, 1.0 - 10.0))


def add_in_place(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a.add_(1)
    return a * b


class AddInPlace(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return add_in_place(a, b)


class DoubledThenFlat(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2).flatten(1)


@pytest.mark.parametrize(
    ("layer", "forward"),
    [
        (AddInPlace(), lambda self, x: self.k(y := x * 1, y).sum()),
        (DoubledThenFlat(), lambda self, x: self.k(z := x * 1).sum() + z.add_(1).sum()),
        (nn.ReLU(inplace=True), lambda self, x: self.k(z := x - 1.5).sum() + (z * 3).sum()),
    ],
)
def test_recording_inputs_changes_nothing_of_what_a_layer_writes_to_them(layer: nn.Module, forward: Any) -> None:
    plain, watched = X.clone().requires_grad_(), X.clone().requires_grad_()
    model = Net(forward, k=layer)
    wanted = model(plain)
    wanted.backward()
    with HookManager(model) as hooks:
        hooks.record("k:input", of="gradient")
        found = model(watched)
        found.backward()
        assert len(hooks.gradients) > 0
    assert torch.equal(found, wanted)
    assert torch.equal(watched.grad, plain.grad)


def test_a_backward_after_the_next_forward_files_under_its_own_step():
    model = Net(lambda self, x: self.l(x).sum(), l=nn.Linear(2, 2, bias=False))
    with HookManager(model) as hooks:
        hooks.record("l", of="gradient", every=2, keep=9)
        losses = [model(X) * (1 + number) for number in range(4)]
        for loss in losses:
            loss.backward()
    assert [(step, value[0, 0].item()) for step, value in hooks.gradients.steps("l")] == [(0, 1.0), (2, 3.0)]


def reused(reentrant: bool) -> Net:
    def forward(self: Net, x: torch.Tensor) -> torch.Tensor:
        for factor in (2.0, 3.0):
            x = checkpoint(lambda x, factor=factor: self.act(x * 1) * factor, x, use_reentrant=reentrant)
        return x.sum()

    return Net(forward, act=Scaled())


class Scaled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 1.5


def test_calls_of_a_checkpointed_layer_are_told_apart_or_refused():
    x = X.clone().requires_grad_()
    with HookManager(model := reused(False)) as hooks:
        hooks.record("act", of="gradient")
        model(x).backward()
        assert [hooks.gradients["act", call][0, 0].item() for call in (0, 1)] == [2 * 1.5 * 3.0, 3.0]
    with HookManager(model := reused(True)) as hooks:
        hooks.record("act", of="gradient")
        with pytest.raises(LayerError, match="runs several times and is checkpointed"):
            model(x).backward()


def test_an_edit_of_one_call_of_a_checkpointed_layer_is_refused_and_of_all_calls_made():
    def forward(self: Net, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = checkpoint(lambda x: self.act(x * 1).exp(), x, use_reentrant=False)
        return x.sum()

    x, plain = X.clone().requires_grad_(), X.clone().requires_grad_()
    with HookManager(model := Net(forward, act=Scaled())) as hooks:
        hooks.edit_output("act@0", lambda tensor: tensor * 2)
        with pytest.raises(LayerError, match="Name no call"):
            model(x).backward()
    with HookManager(model := Net(forward, act=Scaled())) as hooks:
        hooks.edit_output("act", lambda tensor: tensor * 0.1)
        model(x).backward()
    ((plain * 0.15).exp() * 0.15).exp().sum().backward()
    torch.testing.assert_close(x.grad, plain.grad)


@pytest.mark.parametrize("reentrant", [False, True])
def test_edits_that_a_recomputed_forward_would_make_otherwise_are_refused(reentrant: bool) -> None:
    def forward(self: Net, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(lambda x: self.l(x * 1).exp(), x, use_reentrant=reentrant).sum()

    x, generator = X.clone().requires_grad_(), torch.Generator().manual_seed(1)
    model = Net(forward, l=nn.Linear(2, 2)).train()
    with HookManager(model) as hooks:
        hooks.add_noise("l", 1.0, generator=generator, of="activation")
        with pytest.raises(UsageError, match="would draw other numbers"):
            model(x).backward()
    with HookManager(model) as hooks:
        hooks.stochastic_depth("l", 0.5, generator=generator)
        with pytest.raises(UsageError, match="would draw other numbers"):
            model(x).backward()
    answers = iter([True, False])
    with HookManager(model) as hooks:
        hooks.edit_output("l", lambda tensor: tensor * 3, when=lambda seen: next(answers))
        model(x).backward()
    torch.testing.assert_close(model.l.bias.grad, 3 * (model.l(X).detach() * 3).exp()[0])


def test_calls_are_counted_in_every_thread_and_within_explanations():
    model = Net(lambda self, x: self.r(self.r(x)), r=Scaled())
    with HookManager(model) as hooks:
        hooks.edit_output("r@1", lambda tensor: tensor * 10)
        model(X)
        outputs: list[torch.Tensor] = []

        def run() -> None:
            outputs.extend(model(X) for _ in range(3))

        for thread in [threading.Thread(target=run) for _ in range(2)]:
            thread.start()
            thread.join()
        with camapp.hooks.as_found.as_found(model):
            outputs.append(model(X))
        assert all(torch.equal(one, X * 22.5) for one in outputs)
        assert len(outputs) == 7


def test_a_model_that_calls_itself_runs_one_step():
    def forward(self: Net, x: torch.Tensor, depth: int) -> torch.Tensor:
        return self(self.l(x), depth - 1) if depth else x.sum()

    model = Net(forward, l=nn.Linear(2, 2))
    with HookManager(model) as hooks:
        hooks.record("l", reduce="mean")
        model(X, 3)
        assert list(hooks.activations) == ["l@0", "l@1", "l@2"]
        assert hooks.report().startswith("forwards: 1;")


def test_of_parts_that_are_run_without_the_model_each_run_is_a_step():
    model = Plain()
    with HookManager(model) as hooks:
        hooks.record("stem", keep=3)
        hooks.record("stem", of="gradient", reduce="norm", keep=3)
        with torch.no_grad():
            for _ in range(5):
                model.stem(torch.randn(1, 3, 8, 8))
        assert list(hooks.activations) == ["stem"]
        assert len(hooks.activations.steps("stem")) == 3
        for _ in range(3):
            model.stem(torch.randn(1, 3, 8, 8)).sum().backward()
        assert [step for step, _ in hooks.gradients.steps("stem")] == [5, 6, 7]
        model(torch.randn(1, 3, 8, 8))
        whole = hooks.activations["stem"]
        model.stem(torch.randn(9, 3, 8, 8))
        assert hooks.activations["stem"] is whole, "called by hand beside the model's own forwards"


def test_views_and_second_backwards():
    model = Net(lambda self, x: self.flat(x * 1.0), flat=nn.Flatten(0))
    x = X.clone().requires_grad_()
    with HookManager(model) as hooks:
        hooks.record("flat", of="gradient")
        flat = model(x)
        doubled = flat * 2
        doubled.sum().backward(retain_graph=True)
        assert hooks.gradients["flat"].tolist() == [2.0, 2.0]
        flat.sum().backward()
        assert hooks.gradients["flat"].tolist() == [1.0, 1.0]


def test_half_gradients_under_a_scaler_are_recorded_without_underflow():
    model = nn.Sequential(nn.Identity())
    x = torch.ones(4, dtype=torch.float16, requires_grad=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)
    with HookManager(model, scaler=scaler) as hooks:
        hooks.record("0", of="gradient")
        scaler.scale((model(x).float() * 1e-8).sum()).backward()
    torch.testing.assert_close(hooks.gradients["0"], torch.full((4,), 1e-8), rtol=1e-2, atol=0)


def test_total_norms_know_the_managers_scaler_and_only_the_optimizers_parameters():
    model = nn.ModuleDict({"a": nn.Linear(2, 1, bias=False), "b": nn.Linear(2, 1, bias=False)})
    model.forward = lambda x: (model["a"](x) + 5 * model["b"](x)).sum()  # type: ignore[method-assign]
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    first, second = (torch.optim.SGD(model[name].parameters(), lr=0.1) for name in "ab")
    with HookManager(model, scaler=scaler) as hooks:
        clipper = hooks.clip_total_norm(1e9)
        scaler.scale(model(torch.tensor([[3.0, 4.0]]))).backward()
        with pytest.raises(UsageError, match="unscaled for an optimizer"):
            clipper.step()
        assert clipper.step(first).item() == pytest.approx(5.0)
        assert clipper.step(second).item() == pytest.approx(25.0)


def test_functions_of_torch_func_are_passed_over():
    model = nn.Sequential(nn.Linear(2, 1))
    parameters = dict(model.named_parameters())
    with HookManager(model) as hooks:
        hooks.record("0")
        hooks.record("0", of="gradient")
        gradient = torch.func.grad(lambda p: torch.func.functional_call(model, p, (torch.ones(3, 2),)).sum())(
            parameters
        )
    assert torch.equal(gradient["0.weight"], torch.full((1, 2), 3.0))


def test_what_is_recorded_under_inference_mode_can_be_trained_on():
    model, head = nn.Sequential(nn.Linear(2, 2)), nn.Linear(2, 1)
    with HookManager(model) as hooks:
        hooks.record("0")
        storage = hooks.collect("0", rows=4)
        with torch.inference_mode():
            model(torch.randn(2, 2))
        with torch.no_grad():
            model(torch.randn(2, 2))
        head(storage.tensor).sum().backward()
        head(hooks.activations["0"]).sum().backward()
    assert len(storage) == 4


def test_the_gradient_of_an_inner_block_without_a_graph_is_named_and_raises_nothing():
    def forward(self: Net, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            y = self.l(x)
        return (x + y).sum()

    model, x = Net(forward, l=nn.Linear(2, 2)), X.clone().requires_grad_()
    with HookManager(model) as hooks:
        hooks.record(["l", "l:input"], of="gradient")
        model(x).backward()
        assert set(hooks.without_gradient) == {"l", "l:input#0"}


def test_tensors_that_are_edited_in_every_step_are_forgotten_with_them():
    model = Plain()
    with HookManager(model) as hooks:
        for _ in range(50):
            features = model.stem(torch.randn(1, 3, 8, 8))
            hooks.scale(features, 0.5)
            features.sum().backward()
            del features
        assert len(hooks.registered) <= 2
        assert hooks.registered[-1].name == "scale tensor"


def test_ten_thousand_parameters_and_a_thousand_removals_are_quick_and_leave_nothing():
    model = nn.Module()
    model.weights = nn.ParameterList(nn.Parameter(torch.ones(1)) for _ in range(10_000))
    with HookManager(model) as hooks:
        hooks.store_gradients(reduce="norm")
        assert len(hooks.registered) == 10_000
        sum(list(model.weights)).backward()
        assert len(hooks.gradients) == 10_000
    plain = Plain()
    with HookManager(plain) as hooks:
        before = hooks.remaining()
        for _ in range(200):
            hooks.record("stem", name="r")
            hooks.forward("stem", lambda *_: None, name="f")
            hooks.remove("r")
            hooks.remove("f")
        assert hooks.remaining() == before
        assert hooks_of(plain.stem) == 0


def test_compiled_parts_lazy_layers_and_places_within_places_are_refused():
    part = Net(lambda self, x: self.body(x), body=nn.Linear(2, 2))
    part.body = torch.compile(part.body)  # type: ignore[assignment]
    with HookManager(part) as hooks:
        for layer in ("body", "body._orig_mod"):
            with pytest.raises(ModelError, match="that was compiled"):
                hooks.record(layer)
    with pytest.raises(ModelError, match="lazy layers"):
        HookManager(nn.Sequential(nn.LazyLinear(2)))
    with HookManager(Plain()) as hooks:
        for call in (
            lambda: hooks.forward("stem@0", print),
            lambda: hooks.forward("stem:input", print),
            lambda: hooks.stochastic_depth("stem@1", 0.5),
        ):
            with pytest.raises(UsageError, match="are for whole layers"):
                call()
        hooks.stochastic_depth("stem", 0.5)
        with pytest.raises(UsageError, match="passed by already"):
            hooks.stochastic_depth("stem", 0.5)
        with pytest.raises(UsageError, match="Layers have inputs"):
            hooks.edit_input("stem.weight", print)
        with pytest.raises(LayerError, match="not int"):
            hooks.record(5)  # type: ignore[arg-type]


def test_rules_may_answer_with_any_number_and_see_the_step_before():
    model = Net(lambda self, x: self.b(self.a(x)).sum(), a=nn.Linear(2, 2), b=nn.Linear(2, 2))
    with HookManager(model) as hooks:
        hooks.record("a", of="gradient", reduce="norm")
        hooks.scale("b", 0.0, when=lambda seen: seen.gradients["a"])  # known from the step before only
        model(X).backward()
        assert model.a.weight.grad.any()
        assert hooks.registered[-1].fired == 0
        model.zero_grad()
        model(X).backward()
        assert not model.a.weight.grad.any()
        assert hooks.registered[-1].fired == 1
    with HookManager(model) as hooks:
        hooks.zero("b", when=lambda seen: torch.ones(3))
        with pytest.raises(UsageError, match=r"a tensor of the shape \(3,\)"):
            model(X).backward()


def test_looking_for_silent_hooks_counts_and_calls_nothing():
    model, called = Plain(), []
    inputs = torch.randn(1, 3, 8, 8)
    with HookManager(model) as hooks:
        hooks.forward("stem", lambda *_: called.append(1))
        hooks.record("last")
        hooks.silent(inputs)
        assert called == []
        assert [one.fired for one in hooks.registered] == [0, 0]
        assert copy.deepcopy(model)(inputs).shape == F.relu(model(inputs)).shape
        assert called == [1]
