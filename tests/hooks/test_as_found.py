"""The model is left as it was found, whatever happens in between."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import nn

from camapp.hooks.as_found import as_found
from tests.networks import Plain


class Restless(Plain):
    """Draws random numbers, counts its forwards in a buffer and replaces another, even in eval mode."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("noise", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        self.noise = torch.rand(3)
        return super().forward(x) + self.noise.mean()


def mixed_model() -> Restless:
    """Some modules train, some do not; some parameters learn, some do not."""
    model = Restless().train()
    model.norm.eval()
    model.stem.weight.requires_grad_(False)
    return model


def state(model: nn.Module) -> dict[str, Any]:
    return {
        "training": [module.training for module in model.modules()],
        "requires_grad": [parameter.requires_grad for parameter in model.parameters()],
        "grad": [parameter.grad for parameter in model.parameters()],
        "buffers": [(name, id(buffer), buffer.clone()) for name, buffer in model.named_buffers()],
        "parameters": [parameter.detach().clone() for parameter in model.parameters()],
        "rng": torch.get_rng_state(),
        "grad_mode": torch.is_grad_enabled(),
        "inference_mode": torch.is_inference_mode_enabled(),
        "fastpath": torch.backends.mha.get_fastpath_enabled(),
    }


def assert_same(before: dict[str, Any], after: dict[str, Any]) -> None:
    for key in ("training", "requires_grad", "grad_mode", "inference_mode", "fastpath"):
        assert before[key] == after[key], key
    assert all(one is other for one, other in zip(before["grad"], after["grad"], strict=True))
    assert torch.equal(before["rng"], after["rng"])
    for (name, identity, value), (other_name, other_identity, other) in zip(
        before["buffers"], after["buffers"], strict=True
    ):
        assert (name, identity) == (other_name, other_identity)
        assert torch.equal(value, other), name
    assert all(torch.equal(one, other) for one, other in zip(before["parameters"], after["parameters"], strict=True))


@pytest.mark.parametrize("error", [None, RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_everything_is_put_back(error: type[BaseException] | None, mode: Any) -> None:
    model = mixed_model()
    with mode():
        before = state(model)
        try:
            with as_found(model):
                model(torch.randn(2, 3, 8, 8))
                if error:
                    raise error
        except (RuntimeError, KeyboardInterrupt) as raised:
            assert type(raised) is error  # noqa: PT017 - the state after it is what is tested
        assert_same(before, state(model))


def test_inside_the_model_predicts_and_gradients_are_on() -> None:
    model = mixed_model()
    with torch.inference_mode(), as_found(model):
        assert not any(module.training for module in model.modules())
        assert model.norm.weight.requires_grad
        assert not model.stem.weight.requires_grad
        assert torch.is_grad_enabled()
        assert not torch.is_inference_mode_enabled()


def test_a_training_step_around_it_gets_the_same_gradients() -> None:
    inputs = torch.randn(4, 3, 8, 8)
    grads = []
    for explained in (False, True):
        torch.manual_seed(1)
        model = Plain().train()
        loss = model(inputs).square().sum()
        if explained:
            with as_found(model):
                model(inputs)
        loss.backward()
        grads.append([parameter.grad for parameter in model.parameters()])
    for one, other in zip(*grads, strict=True):
        assert torch.equal(one, other)


def test_it_nests() -> None:
    model = mixed_model()
    before = state(model)
    with as_found(model), as_found(model):
        model(torch.randn(1, 3, 8, 8))
    assert_same(before, state(model))


def test_threads_on_one_model_take_turns() -> None:
    model = mixed_model()
    before = state(model)
    inside, most = 0, 0
    count = threading.Lock()

    def work() -> None:
        nonlocal inside, most
        for _ in range(20):
            with as_found(model):
                with count:
                    inside += 1
                    most = max(most, inside)
                model(torch.randn(1, 3, 8, 8))
                with count:
                    inside -= 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    after = state(model)
    before["rng"] = after["rng"]  # the threads' own randn calls moved it
    assert_same(before, after)


def test_the_fast_attention_path_comes_back_only_when_the_last_thread_leaves() -> None:
    one, two = Plain(), Plain()
    entered, leave = threading.Event(), threading.Event()

    def stay() -> None:
        with as_found(two):
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=stay)
    with as_found(one):
        thread.start()
        assert entered.wait(10)
    assert not torch.backends.mha.get_fastpath_enabled()
    leave.set()
    thread.join()
    assert torch.backends.mha.get_fastpath_enabled()


class Lazy(Plain):
    """Makes a buffer in its first forward and fills one that was None."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("grid", None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.grid is None:
            self.grid = torch.arange(x.shape[-1])
            self.register_buffer("made", torch.ones(2))
        return super().forward(x)


def test_buffers_that_were_none_or_not_there_are_so_again() -> None:
    model = Lazy()
    keys = list(model.state_dict())
    with as_found(model):
        model(torch.randn(1, 3, 8, 8))
        assert "made" in model.state_dict()
    assert list(model.state_dict()) == keys
    assert model.grid is None


def test_models_that_share_a_backbone_take_turns() -> None:
    backbone = Plain().train()
    models = [nn.Sequential(backbone, nn.Linear(5, 3)).train() for _ in range(2)]
    before = [state(model) for model in models]
    inside, most = 0, 0
    count = threading.Lock()

    def work(model: nn.Module) -> None:
        nonlocal inside, most
        for _ in range(100):
            with as_found(model):
                with count:
                    inside += 1
                    most = max(most, inside)
                assert not backbone.training
                with count:
                    inside -= 1

    threads = [threading.Thread(target=work, args=(model,)) for model in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    for model, found in zip(models, before, strict=True):
        assert_same(found, state(model))


def test_models_joined_after_both_were_used_take_turns_too() -> None:
    one, two = Plain().train(), Plain().train()
    for model in (one, two):
        with as_found(model):
            pass
    both = nn.Sequential(one, nn.Unflatten(1, (5, 1, 1)), nn.Conv2d(5, 3, 1), nn.Upsample(8), two)
    entered, left = threading.Event(), threading.Event()

    def wait_for_two() -> None:
        entered.set()
        with as_found(two):
            left.set()

    thread = threading.Thread(target=wait_for_two)
    with as_found(both):
        thread.start()
        assert entered.wait(10)
        assert not left.wait(0.3)
    thread.join(10)
    assert left.is_set()
    assert two.training


def test_an_untouched_buffer_is_not_written_even_if_it_holds_nan() -> None:
    model = Plain()
    model.norm.running_mean.fill_(float("nan"))
    version = model.norm.running_mean._version
    with as_found(model):
        model(torch.randn(1, 3, 8, 8))
    assert model.norm.running_mean._version == version


def test_another_threads_calls_are_not_traced() -> None:
    from camapp.hooks.trace import trace_calls

    class Guest(Plain):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            guest = threading.Thread(target=lambda: self.last(torch.randn(7, 6, 4, 4)))
            guest.start()
            guest.join()
            return super().forward(x)

    calls = trace_calls(Guest(), torch.randn(1, 3, 8, 8))
    assert [call.name for call in calls] == ["stem", "norm", "last", "head"]
    assert {call.outputs[0] for call in calls if call.outputs} == {1}


def test_a_look_at_the_model_as_it_runs_keeps_its_training_flags_and_gives_back_its_statistics():
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(0.5)).train()
    model[1].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    with as_found(model, predict=False):
        assert (model[0].training, model[1].training) == (True, False)
        assert torch.backends.mha.get_fastpath_enabled()
        model.train()
        moved = model(torch.randn(8, 3) + 5)
        assert not torch.equal(model[0].running_mean, before["0.running_mean"])
    assert moved.requires_grad
    assert (model[0].training, model[1].training) == (True, False)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)


def test_a_scripted_module_within_gets_its_buffers_values_back() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), torch.jit.script(nn.BatchNorm2d(4)))
    kept = model[1].running_mean.clone()
    with as_found(model, predict=False):
        model(torch.randn(2, 3, 6, 6))
        assert not torch.equal(model[1].running_mean, kept)
    assert torch.equal(model[1].running_mean, kept)
