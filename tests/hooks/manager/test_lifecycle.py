"""Hooks come and go without a trace, whatever happens in between."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import torch
import torchvision
from torch import nn

from camapp.errors import LayerError, ModelError, UsageError
from camapp.hooks.manager import HookManager
from tests.hooks.test_handles import hooks_of
from tests.networks import InPlaceAfter, Plain

INPUTS = torch.randn(1, 3, 8, 8)


def everything(model: nn.Module) -> HookManager:
    """A manager with one of each kind registered."""
    hooks = HookManager(model)
    hooks.record(["stem", "norm:input"])
    hooks.record(["norm", "last:input"], of="gradient")
    hooks.record("head.weight", accumulated=True)
    hooks.scale("head.bias", 2.0)
    hooks.edit_output("last", torch.clone)
    hooks.forward("head", lambda *_: None)
    hooks.forward_pre("head", lambda *_: None)
    hooks.post_accumulate("stem.weight", lambda *_: None)
    hooks.full_backward("head", lambda *_: None)
    return hooks


def hooks_anywhere(model: nn.Module) -> int:
    parameters = list(model.parameters())
    of_tensors = sum(len(one._backward_hooks or ()) for one in parameters)
    return hooks_of(model) + of_tensors + sum(len(one._post_accumulate_grad_hooks or ()) for one in parameters)


def step(model: nn.Module) -> None:
    model(INPUTS).sum().backward()


def succeed(model: nn.Module) -> None:
    step(model)


def fail(model: nn.Module) -> None:
    step(model)
    raise ZeroDivisionError


def interrupt(model: nn.Module) -> None:
    raise KeyboardInterrupt


def fail_in_the_forward(model: nn.Module) -> None:
    model(torch.randn(1, 4, 8, 8))


@pytest.mark.parametrize("body", [succeed, fail, interrupt, fail_in_the_forward])
def test_all_hooks_go_with_the_block_and_those_of_others_stay(body: Any) -> None:
    model, foreign = InPlaceAfter(), []
    model.stem.register_forward_hook(lambda *_: foreign.append(1))
    before = hooks_anywhere(model)
    hooks = everything(model)
    try:
        with hooks:
            assert hooks.remaining() > 10
            body(model)
    except (ZeroDivisionError, KeyboardInterrupt, RuntimeError):
        pass
    assert hooks.remaining() == 0
    assert hooks_anywhere(model) == before
    step(model)
    assert foreign


def test_a_generator_that_is_closed_takes_its_hooks_along():
    model = Plain()

    def training() -> Iterator[None]:
        with everything(model):
            while True:
                step(model)
                yield

    generator = training()
    next(generator)
    assert hooks_anywhere(model) > 0
    generator.close()
    assert hooks_anywhere(model) == 0


def test_a_manager_that_is_dropped_takes_its_hooks_along_at_once():
    model = Plain()
    gc.disable()
    try:
        hooks = everything(model)
        hooks.scale("head.weight", 0.5, when=lambda seen: seen.gradients["norm"].norm() > 0)
        step(model)
        dead = weakref.ref(hooks)
        del hooks
        assert dead() is None
        assert hooks_anywhere(model) == 0
    finally:
        gc.enable()


def test_closing_twice_is_harmless_and_what_was_recorded_stays_readable():
    hooks = everything(model := Plain())
    step(model)
    hooks.close()
    hooks.close()
    assert hooks.activations["stem"].shape == (1, 6, 4, 4)
    assert "record stem" in hooks.report()
    for use in (
        lambda: hooks.record("stem"),
        lambda: hooks.scale("stem", 1.0),
        lambda: hooks.forward("stem", print),
        lambda: hooks.stochastic_depth("stem", 0.5),
        lambda: hooks.clip_total_norm(1.0),
        hooks.begin_step,
        hooks.__enter__,
    ):
        with pytest.raises(UsageError, match="This HookManager is closed"):
            use()


def test_a_graph_that_outlives_the_manager_is_no_longer_changed():
    model = Plain()
    with HookManager(model) as hooks:
        hooks.zero("last")
        loss = model(INPUTS).sum()
    loss.backward()
    assert model.last.weight.grad.any()
    assert hooks.remaining() == 0


def test_two_managers_interleave():
    model = Plain()
    first = HookManager(model)
    first.record("stem", reduce="mean", keep=9)
    with HookManager(model) as second:
        second.record("stem", reduce="mean", keep=9)
        second.scale("stem", 0.5)
        step(model)
        first.close()
        step(model)
        assert len(first.activations.steps("stem")) == 1
        assert len(second.activations.steps("stem")) == 2
    assert hooks_anywhere(model) == 0


def test_removing_by_name_leaves_the_rest():
    model = Plain()
    with HookManager(model) as hooks:
        hooks.record(["stem", "last"], name="mine")
        hooks.record("head")
        hooks.zero("last")
        hooks.forward("head", lambda *_: None, name="own")
        assert [one.name for one in hooks.registered] == ["mine stem", "mine last", "zero last", "record head", "own"]
        with pytest.raises(UsageError, match='"mine" is registered'):
            hooks.record("norm", name="mine")
        hooks.remove("mine")
        hooks.remove("own")
        step(model)
        assert list(hooks.activations) == ["head"]
        assert not model.last.weight.grad.any()
        with pytest.raises(UsageError, match='Nothing is registered as "minee"'):
            hooks.remove("minee")


def test_names_count_on_where_one_is_taken():
    with HookManager(Plain()) as hooks:
        hooks.scale("stem", 0.5)
        hooks.scale("stem", 0.5)
        assert [one.name for one in hooks.registered] == ["scale stem", "scale stem 2"]


def live_tensors() -> int:
    return sum(isinstance(one, torch.Tensor) for one in gc.get_objects())


def test_five_hundred_managers_leave_no_hook_no_tensor_and_no_object():
    model = Plain()
    dead: list[weakref.ref[Any]] = []

    def once(number: int) -> None:
        with everything(model) as hooks:
            dead.append(weakref.ref(hooks))
            step(model)
            dead.append(weakref.ref(hooks.activations["stem"]))
            if number % 3 == 0:
                raise ZeroDivisionError

    def several(numbers: range) -> None:
        for number in numbers:
            with suppress(ZeroDivisionError):
                once(number)
            model.zero_grad()

    several(range(20))
    gc.collect()
    gc.disable()
    try:
        tensors = live_tensors()
        several(range(480))
        assert hooks_anywhere(model) == 0
        assert live_tensors() <= tensors
        assert [ref for ref in dead if ref() is not None] == []
    finally:
        gc.enable()


def test_a_hundred_steps_of_one_manager_keep_no_more_tensors_than_one():
    model = Plain()
    with everything(model) as hooks:
        step(model)
        gc.collect()
        before, handles = live_tensors(), hooks.remaining()
        for _ in range(100):
            step(model)
        assert live_tensors() <= before
        assert hooks.remaining() == handles


def test_a_copy_of_a_watched_model_is_not_watched():
    model = Plain()
    with everything(model) as hooks:
        for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            step(twin)
            assert len(hooks.activations) == 0
            assert hooks_anywhere(twin) == 0
        with pytest.raises(UsageError, match="not copied"):
            copy.deepcopy(hooks)
        with pytest.raises(UsageError, match="cannot be pickled"):
            pickle.dumps(hooks)


def networks() -> dict[str, tuple[nn.Module, torch.Tensor]]:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.head = nn.LSTM(5, 8, 2, dropout=0.2), nn.Linear(8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.rnn(x)[0][-1])

    torch.manual_seed(5)
    transformer = torchvision.models.VisionTransformer(32, 8, 2, 2, 16, 32, dropout=0.1, num_classes=3)
    return {
        "resnet18": (torchvision.models.resnet18(num_classes=3), torch.randn(4, 3, 32, 32)),
        "vit": (transformer, torch.randn(2, 3, 32, 32)),
        "lstm": (Recurrent(), torch.randn(6, 2, 5)),
    }


@pytest.mark.parametrize("name", [pytest.param("resnet18", marks=pytest.mark.slow), "vit", "lstm"])
def test_gradients_and_weights_are_bit_equal_after_twenty_steps_with_and_without_records(name: str) -> None:
    def train(watched: bool) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        model, inputs = networks()[name]
        model.train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        torch.manual_seed(1)
        with HookManager(model) as hooks:
            if watched:
                layers = [name for name, module in model.named_modules() if name and not [*module.children()]]
                hooks.record(layers, reduce="norm")
                hooks.record(layers, of="gradient")
                hooks.store_gradients()
                hooks.record("*bias", accumulated=True, reduce="histogram", name="sums")
            for number in range(20):
                optimizer.zero_grad()
                scores = model(inputs)
                labels = torch.full((len(scores),), number % 3)
                nn.functional.cross_entropy(scores, labels).backward()
                optimizer.step()
            if watched:
                assert len(hooks.gradients) > 5
        return [p.detach() for p in model.parameters()], [p.grad for p in model.parameters()]

    for watched, plain in zip(train(True), train(False), strict=True):
        assert all(torch.equal(one, other) for one, other in zip(watched, plain, strict=True))


def test_forwards_of_other_threads_are_edited_but_not_recorded():
    model, outputs = Plain().eval(), []
    with HookManager(model) as hooks, torch.no_grad():
        hooks.record("head")
        hooks.zero("head", of="activation")
        thread = threading.Thread(target=lambda: outputs.append(model(INPUTS)))
        thread.start()
        thread.join()
        assert "head" not in hooks.activations
    assert not outputs[0].any()


def test_models_whose_hooks_would_be_skipped_are_refused_with_the_remedy():
    model = Plain()
    with pytest.raises(ModelError, match="Give the module it was made from"):
        HookManager(torch.compile(model))
    with pytest.raises(ModelError, match=r"Give model\.module"):
        HookManager(nn.DataParallel(model))
    with pytest.raises(ModelError, match="scripted or traced"):
        HookManager(torch.jit.trace(model, INPUTS))
    with pytest.raises(ModelError, match="not str"):
        HookManager("resnet18")  # type: ignore[arg-type]
    model.last.compile()
    with HookManager(model) as hooks:
        with pytest.raises(ModelError, match="that was compiled"):
            hooks.record("last")
        hooks.record("stem")


def test_a_scripted_layer_within_a_model_is_refused_and_its_neighbours_are_not():
    model = nn.Sequential(nn.Linear(2, 2), torch.jit.script(nn.Linear(2, 2)))
    with HookManager(model) as hooks:
        with pytest.raises(ModelError, match='"1" is scripted or traced'):
            hooks.record(["0", "1"])
        assert hooks.registered == []
        hooks.record("0")
        model(torch.randn(1, 2))
        assert "0" in hooks.activations


@pytest.mark.parametrize(
    ("place", "error", "message"),
    [
        ("lats", LayerError, "Did you mean last"),
        ("last.wait", LayerError, r"Of the parameters: Did you mean last\.weight"),
        ("nothing.*", LayerError, 'matches "nothing'),
        (nn.LSTM, LayerError, "has no LSTM"),
        (nn.Linear(2, 2), LayerError, "not part of this"),
        ([], LayerError, "No layer is named"),
        ("stem.weight", UsageError, "requires no gradient"),
        ("stem.*", UsageError, "none of which requires a gradient"),
    ],
)
def test_places_that_are_not_there_are_named_with_those_that_are_near(place: Any, error: Any, message: str) -> None:
    model = Plain()
    model.stem.requires_grad_(False)
    with HookManager(model) as hooks, pytest.raises(error, match=message):
        hooks.scale(place, 1.0)


def test_tied_parameters_are_edited_once():
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    model[1].weight = model[0].weight
    with HookManager(model) as hooks:
        hooks.scale("*.weight", 0.5)
        assert len(hooks.registered) == 1


def test_raw_hooks_are_for_the_places_that_torch_has_them_for():
    with HookManager(Plain()) as hooks:
        with pytest.raises(UsageError, match="forward hooks are for layers"):
            hooks.forward("last.weight", print)
        with pytest.raises(UsageError, match="post_accumulate hooks are for parameters"):
            hooks.post_accumulate("last", print)
        with pytest.raises(UsageError, match="A hook is a function"):
            hooks.forward("last", "print")  # type: ignore[arg-type]
