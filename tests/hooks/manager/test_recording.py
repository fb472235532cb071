"""What a manager records is what autograd has, whatever the network does with its tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import camapp
from camapp.errors import LayerError, UsageError
from camapp.hooks.manager import HookManager, reducers
from tests.networks import InPlaceAfter, Plain, Reused

INPUTS = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def double(model: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    return model.double().train()


class Explicit(InPlaceAfter):
    """The same network out of place, that shows its inner tensors to ``autograd.grad``."""

    def inner(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        stem = self.stem(x)
        norm = self.norm(stem)
        last = self.last(F.relu(norm))
        scores = self.head(F.relu(last + last.mean((1, 2, 3), keepdim=True)).mean((2, 3)))
        return {"stem": stem, "norm": norm, "last": last, "head": scores}


def test_activations_and_gradients_are_those_of_autograd_though_later_operations_overwrite_them():
    model = double(Explicit())
    inner = model.inner(INPUTS)
    wanted = torch.autograd.grad(inner["head"].square().sum(), list(inner.values()))
    with HookManager(model) as hooks:
        hooks.record(inner)
        hooks.record(inner, of="gradient")
        model(INPUTS).square().sum().backward()
    for (name, activation), gradient in zip(inner.items(), wanted, strict=True):
        torch.testing.assert_close(hooks.activations[name], activation, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(hooks.gradients[name], gradient, rtol=1e-12, atol=1e-12)
        assert not hooks.activations[name].requires_grad
        assert not hooks.gradients[name].requires_grad
    assert (hooks.activations["norm"] < 0).any(), "the ReLU in place was recorded instead"


def test_every_call_of_a_reused_layer_has_a_key():
    model, inputs = Reused(), torch.randn(1, 3, 8, 8)
    with HookManager(model) as hooks:
        hooks.record("relu", of="activation")
        hooks.record("relu", of="gradient")
        hooks.record("one", reduce="mean")
        hooks.record("relu@1", reduce="mean", name="more")
        scores = model(inputs)
        scores.sum().backward()
    first = F.relu(model.one(inputs))
    second = F.relu(model.two(first))
    third = F.relu(second - 0.1)
    assert list(hooks.activations) == ["one", "relu@0", "relu@1", "relu@2", "more"]
    for key, wanted in {("relu", 0): first, "relu@2": third, "relu": third}.items():
        torch.testing.assert_close(hooks.activations[key], wanted.detach())
    torch.testing.assert_close(hooks.activations["relu@1"], second.detach())
    torch.testing.assert_close(hooks.activations["more"], second.mean().detach())
    for call, tensor in enumerate((first, second, third)):
        (wanted,) = torch.autograd.grad(model.head(third.mean((2, 3))).sum(), tensor, retain_graph=True)
        torch.testing.assert_close(hooks.gradients["relu", call], wanted)
    assert len(hooks.gradients) == 3


class Structured(nn.Module):
    """Gives a dict with a tuple in it, of tensors that are made of one another."""

    def __init__(self) -> None:
        super().__init__()
        self.core = Core()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        given = self.core(x, extra=[x * 2], scale=3.0)
        return given["sum"] + given["pair"][1] ** 2


class Core(nn.Module):
    def forward(self, x: torch.Tensor, *, extra: list[torch.Tensor], scale: float) -> dict[str, Any]:
        return {"sum": x + extra[0], "pair": (torch.tensor([1, 2]), x * scale), "none": None}


def test_structures_keyword_arguments_and_whole_numbers_are_told_apart():
    model, x = Structured(), torch.tensor([2.0], requires_grad=True)
    with HookManager(model) as hooks:
        hooks.record(["core", "core:input"])
        hooks.record(["core", "core:input"], of="gradient")
        model(x).backward()
    assert {key: value.item() for key, value in hooks.activations.items()} == {
        "core:input#0": 2.0,
        "core:input#extra.0": 4.0,
        "core#sum": 6.0,
        "core#pair.1": 6.0,
    }
    # y = s + p^2 with s = x + e, p = 3x: dy/ds = 1, dy/dp = 2p = 12, dy/dx through core = 1 + 36, dy/de = 1
    assert {key: value.item() for key, value in hooks.gradients.items()} == {
        "core#pair.1": 12.0,
        "core#sum": 1.0,
        "core:input#extra.0": 1.0,
        "core:input#0": 37.0,
    }
    assert x.grad.item() == 39.0  # and 2 by way of extra


def test_the_gradient_of_an_input_is_what_comes_through_this_layer_alone():
    class Skip(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.twice = nn.Linear(1, 1, bias=False)
            nn.init.constant_(self.twice.weight, 2.0)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.twice(x) + 5 * x

    x = torch.ones(1, 1, requires_grad=True)
    with HookManager(model := Skip()) as hooks:
        hooks.record("twice:input", of="gradient")
        model(x).backward()
    assert hooks.gradients["twice:input"].item() == 2.0
    assert x.grad.item() == 7.0


class OverwritesItsInput(nn.Module):
    """The network goes on with what a layer wrote into its input in place."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.linear(x)
        self.act(x)
        return x * 3


def test_a_layer_that_writes_to_its_input_still_does_so_while_its_input_is_recorded():
    model, inputs = OverwritesItsInput(), torch.randn(4, 3)
    model(inputs).square().sum().backward()
    wanted = model.linear.weight.grad.clone()
    model.zero_grad()
    with HookManager(model) as hooks:
        hooks.record("act:input", of="gradient")
        output = model(inputs)
        output.square().sum().backward()
    assert (output >= 0).all()
    assert torch.equal(model.linear.weight.grad, wanted)
    inner = model.linear(inputs).detach()
    torch.testing.assert_close(hooks.gradients["act:input"], 18 * inner.clamp(min=0))


class ViewThenInPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.view = nn.Unflatten(1, (2, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.view(self.linear(x))
        x.relu_()
        return x.square().sum()


class GoesOnWithTheBase(ViewThenInPlace):
    """A layer gives a view of what the network goes on with; changes of the view shall reach it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        whole = self.linear(x)
        part = self.view(whole)
        part.relu_()
        return whole.square().sum() + part.sum()


def test_recording_a_view_leaves_changes_of_it_to_reach_its_base():
    model, inputs = GoesOnWithTheBase(), torch.randn(3, 4)
    plain = model(inputs)
    plain.backward()
    wanted = model.linear.weight.grad.clone()
    model.zero_grad()
    with HookManager(model) as hooks:
        hooks.record("view")
        hooks.record("view", of="gradient")
        watched = model(inputs)
        watched.backward()
    assert torch.equal(watched, plain)
    assert torch.equal(model.linear.weight.grad, wanted)
    seen = model.linear(inputs).detach().view(3, 2, 2)
    torch.testing.assert_close(hooks.activations["view"], seen)
    torch.testing.assert_close(hooks.gradients["view"], (2 * seen + 1) * (seen > 0))


def test_an_edit_of_a_view_whose_gradient_goes_another_way_is_refused():
    model, inputs = ViewThenInPlace(), torch.randn(3, 4)
    with HookManager(model) as hooks:
        hooks.scale("view", 0.5)
        with pytest.raises(LayerError, match="Edit the layer before or behind it"):
            model(inputs).backward()


def test_an_edit_of_a_view_that_nothing_changes_is_made():
    model, inputs = nn.Sequential(nn.Linear(4, 4), nn.Unflatten(1, (2, 2))), torch.randn(3, 4)
    with HookManager(model) as hooks:
        hooks.scale("1", 0.5)
        model(inputs).sum().backward()
    torch.testing.assert_close(model[0].bias.grad, torch.full((4,), 1.5))


def test_a_view_that_is_changed_in_place_keeps_its_hook():
    model, inputs = ViewThenInPlace(), torch.randn(3, 4)
    with HookManager(model) as hooks:
        hooks.record("view", of="gradient")
        model(inputs).backward()
    seen = model.linear(inputs).detach().view(3, 2, 2)
    torch.testing.assert_close(hooks.gradients["view"], 2 * seen.clamp(min=0))


def test_what_is_recorded_before_an_edit_comes_in_and_what_is_recorded_behind_it_goes_out():
    model = double(Plain())
    with HookManager(model) as hooks:
        hooks.record("norm", of="gradient")
        hooks.scale("norm", 0.25)
        hooks.record(model.norm, of="gradient", name="behind")
        hooks.record(["norm", "head"], of="gradient", reduce="norm", name="norms")
        with pytest.raises(UsageError, match=r"norm@0: recorded already\. Give this record a name="):
            hooks.record("norm@0", of="gradient")
        model(INPUTS).sum().backward()
    assert list(hooks.gradients) == ["head", "norm", "behind", "norms norm"]
    torch.testing.assert_close(hooks.gradients["behind"], hooks.gradients["norm"] / 4, rtol=1e-12, atol=0)
    torch.testing.assert_close(hooks.gradients["norms norm"], hooks.gradients["behind"].norm(), rtol=1e-12, atol=0)
    plain = double(Plain())
    with HookManager(plain) as other:
        other.record("norm", of="gradient")
        plain(INPUTS).sum().backward()
    torch.testing.assert_close(hooks.gradients["norm"], other.gradients["norm"], rtol=1e-12, atol=0)


def test_of_two_forwards_and_one_backward_each_gradient_belongs_to_its_own_forward():
    model, inputs = nn.Sequential(nn.Linear(1, 1, bias=False)), torch.ones(1, 1)
    with HookManager(model) as hooks:
        hooks.record("0", of="gradient", keep=5)
        (model(inputs) + 10 * model(inputs)).backward()
        assert [(step, value.item()) for step, value in hooks.gradients.steps("0")] == [(0, 1.0), (1, 10.0)]
    with HookManager(model) as hooks:
        hooks.record("0", of="gradient")
        (model(inputs) + 10 * model(inputs)).backward()
        assert hooks.gradients["0"].item() == 10.0


def test_parameters_without_a_gradient_are_named_and_have_none_of_an_earlier_step():
    model = nn.ModuleDict({"one": nn.Linear(2, 2, bias=False), "two": nn.Linear(2, 2, bias=False)})
    model.forward = lambda x, which: model[which](x)  # type: ignore[method-assign]
    with HookManager(model) as hooks:
        hooks.store_gradients()
        assert [one.layer for one in hooks.silent()] == ["one.weight", "two.weight"]
        model(torch.ones(1, 2), "one").sum().backward()
        assert list(hooks.without_gradient) == ["two.weight"]
        model(torch.ones(1, 2), "two").sum().backward()
        assert list(hooks.without_gradient) == ["one.weight"]
        assert list(hooks.gradients) == ["two.weight"]


class Dotted(nn.Module):
    """Gives tensors under keys that look like paths, as torchvision's extracted features do."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"a.b": x, "a": x * 2, "class logits": x * 3}


def test_keys_with_dots_and_spaces_are_read_and_edited():
    model, x = nn.Sequential(Dotted()), torch.ones(1)
    with HookManager(model) as hooks:
        hooks.record("0")
        hooks.edit_output("0#a.b", lambda tensor: tensor + 10)
        output = model(x)
        assert {key: value.item() for key, value in hooks.activations.items()} == {
            "0#a.b": 1.0,
            "0#a": 2.0,
            "0#class logits": 3.0,
        }
        assert "0#class logits" in repr(hooks.activations)
    assert {key: value.item() for key, value in output.items()} == {"a.b": 11.0, "a": 2.0, "class logits": 3.0}


def test_a_part_means_all_within_it():
    model = nn.Sequential(nn.LSTM(2, 3))
    with HookManager(model) as hooks:
        hooks.record("0#1")
        model(torch.randn(4, 1, 2))
    assert list(hooks.activations) == ["0#1.0", "0#1.1"]


def test_sparse_gradients_are_recorded():
    model = nn.Sequential(nn.Embedding(5, 2, sparse=True))
    with HookManager(model) as hooks:
        hooks.store_gradients()
        model(torch.tensor([1, 1, 3])).sum().backward()
    assert torch.equal(hooks.gradients["0.weight"].to_dense(), model[0].weight.grad.to_dense())


def test_what_a_reducer_gives_is_moved_converted_and_owned():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True))
    with HookManager(model) as hooks:
        hooks.record("0", reduce=lambda x: x[:1])
        hooks.record("0", reduce="norm", dtype=torch.float16, name="half")
        hooks.record("0", reduce="histogram", dtype=torch.float16, name="counts")
        inputs = torch.randn(16, 4)
        model(inputs)
    torch.testing.assert_close(hooks.activations["0"], model[0](inputs)[:1].detach())
    assert hooks.activations["half"].dtype == torch.float16
    assert hooks.activations["counts"].counts.dtype == torch.long


def test_a_removed_record_no_longer_lets_go_of_what_another_keeps():
    model = Plain()
    with HookManager(model) as hooks:
        hooks.record("stem", name="a")
        hooks.record("head", every=10)
        model(torch.randn(1, 3, 8, 8))
        hooks.remove("a")
        before = hooks.remaining()
        model(torch.randn(1, 3, 8, 8))
        assert list(hooks.activations) == ["stem", "head"], "what was recorded stays"
        hooks.remove("record head")
        assert hooks.remaining() == before - 1


def test_a_mapping_of_records_behaves_like_one():
    with HookManager(Plain()) as hooks:
        hooks.record("stem")
        assert hooks.activations.get("nope", 7) == 7
        assert 5 not in hooks.activations
        with pytest.raises(UsageError, match="looked up by name"):
            hooks.activations[5]  # type: ignore[index]


def test_only_leaves_accumulate_and_storages_take_functions():
    model = Plain()
    with HookManager(model) as hooks:
        with pytest.raises(UsageError, match="accumulates no gradient"):
            hooks.record(model.stem(torch.randn(1, 3, 8, 8)), accumulated=True)
        with pytest.raises(UsageError, match="reduce is a function"):
            hooks.collect("stem", 3, reduce="mean")  # type: ignore[arg-type]


def test_only_the_steps_of_the_schedule_are_recorded_and_as_many_kept_as_asked():
    model = Plain()
    with HookManager(model) as hooks:
        hooks.record("head", reduce="mean", every=3, keep=2)
        hooks.record("last", every=lambda step: step == 4)
        for _ in range(10):
            model(torch.randn(1, 3, 8, 8))
    assert [step for step, _ in hooks.activations.steps("head")] == [6, 9]
    assert [step for step, _ in hooks.activations.steps("last")] == [4]


def test_a_layer_that_does_not_run_in_the_latest_step_leaves_nothing_of_an_earlier_one():
    class Sometimes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, x: torch.Tensor, both: bool) -> torch.Tensor:
            return self.two(self.one(x)) if both else self.one(x)

    model = Sometimes()
    with HookManager(model) as hooks:
        hooks.record(["one", "two"])
        model(torch.randn(1, 2), True)
        assert list(hooks.activations) == ["one", "two"]
        model(torch.randn(1, 2), False)
        assert list(hooks.activations) == ["one"]
        with pytest.raises(LayerError, match='No activation of "two" has been recorded yet'):
            hooks.activations["two"]
        with pytest.raises(LayerError, match=r'activation of "tow" is not recorded\. Did you mean two'):
            hooks.activations["tow"]


def test_kept_on_another_device_in_half_precision_or_reduced():
    model = Plain()
    with HookManager(model) as hooks:
        hooks.record("stem", device="cpu", dtype=torch.float16, name="half")
        hooks.record("norm", reduce=lambda x: x.amax((0, 2, 3)))
        hooks.record("last", reduce="histogram")
        hooks.record("head", of="gradient", reduce="abs_max")
        model(INPUTS.float()).sum().backward()
    stem = model.stem(INPUTS.float())
    torch.testing.assert_close(hooks.activations["stem"], stem.half())
    assert hooks.activations["norm"].shape == (6,)
    assert hooks.activations["last"].counts.sum() == 2 * 8 * 4 * 4
    assert hooks.gradients["head"].item() == 1.0


def test_gradients_of_parameters_come_by_micro_batch_or_added_up():
    model = nn.Sequential(nn.Linear(1, 1, bias=False))
    with HookManager(model) as hooks:
        hooks.store_gradients(keep=9)
        for value in (1.0, 2.0, 4.0):
            model(torch.tensor([[value]])).sum().backward()
    with HookManager(model) as other:
        model.zero_grad()
        other.record("0.weight", accumulated=True, keep=9)
        for value in (1.0, 2.0, 4.0):
            model(torch.tensor([[value]])).sum().backward()
    assert [value.item() for _, value in hooks.gradients.steps("0.weight")] == [1, 2, 4]
    assert [value.item() for _, value in other.gradients.steps("0.weight")] == [1, 3, 7]
    assert model[0].weight.grad.item() == 7


def test_what_was_stored_does_not_change_with_the_gradient():
    model = nn.Linear(2, 1)
    with HookManager(model) as hooks:
        hooks.store_gradients()
        model(torch.ones(1, 2)).sum().backward()
        model.zero_grad(set_to_none=False)
        assert torch.equal(hooks.gradients["weight"], torch.ones(1, 2))


def test_places_without_a_gradient_are_named_with_the_reason():
    model = Plain()
    model.stem.requires_grad_(False)
    with HookManager(model) as hooks:
        hooks.record(["stem", "last", "head"], of="gradient")
        with torch.no_grad():
            model(torch.randn(1, 3, 8, 8))
        assert set(hooks.without_gradient) == {"stem", "last", "head"}
        model(torch.randn(1, 3, 8, 8))
        assert "no backward ran" in hooks.without_gradient["last"]
        model(torch.randn(1, 3, 8, 8)).sum().backward()
        assert list(hooks.without_gradient) == ["stem"]
        assert "frozen" in hooks.without_gradient["stem"]
        assert "stem" not in hooks.gradients


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.inner = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
        self.reentrant = reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.inner, self.first(x), use_reentrant=self.reentrant).sum()


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpointed_layer_is_recorded_once_with_its_gradient(reentrant: bool) -> None:
    torch.manual_seed(0)
    model, inputs = Checkpointed(reentrant), torch.randn(2, 3)
    with HookManager(model) as hooks:
        hooks.record("inner.1")
        hooks.record("inner.0", of="gradient")
        hooks.scale("inner.0", 2.0)
        model(inputs).backward()
    first = model.first(inputs)
    hidden = model.inner[0](first)
    (wanted,) = torch.autograd.grad(torch.tanh(hidden).sum(), hidden)
    torch.testing.assert_close(hooks.gradients["inner.0"], wanted)
    torch.testing.assert_close(model.inner[0].bias.grad, 2 * wanted.sum(0))
    assert list(hooks.activations) == ["inner.1"]
    assert hooks.without_gradient == {}


def test_an_explanation_in_between_is_not_recorded_and_counts_no_step():
    model = Plain()
    with HookManager(model) as hooks:
        hooks.record("last")
        model(torch.randn(1, 3, 8, 8))
        before = hooks.activations["last"]
        camapp.GradCAM(model, "last")(torch.randn(4, 3, 8, 8), 1)
        assert hooks.activations["last"] is before
        with hooks.paused():
            model(torch.randn(1, 3, 8, 8))
        assert hooks.activations["last"] is before
        assert hooks.report().startswith("forwards: 1;")


def test_rows_of_a_data_set_are_written_by_index_into_one_tensor():
    model, data = nn.Sequential(nn.Linear(2, 3), nn.ReLU()), torch.randn(7, 2)
    with HookManager(model) as hooks, torch.no_grad():
        storage = hooks.collect("0", rows=7, dtype=torch.float64)
        order = torch.randperm(7)
        for batch in (order[:4], order[4:]):
            storage.next_rows = batch
            model(data[batch])
        pointer = storage.tensor.data_ptr()
        with pytest.raises(UsageError, match="do not lie within a storage of 7 rows"):
            model(data)
    assert storage.tensor.data_ptr() == pointer
    torch.testing.assert_close(storage.tensor, model[0](data).double().detach())


def test_a_storage_refuses_what_does_not_fit():
    model = nn.Sequential(nn.AdaptiveAvgPool1d(2))
    with HookManager(model) as hooks:
        with pytest.raises(UsageError, match="rows is a whole number"):
            hooks.collect("0", rows=0)
        with pytest.raises(UsageError, match="2 are meant"):
            hooks.collect(["0", "0:input"], rows=3)
        storage = hooks.collect("0", rows=3, reduce=lambda x: x.flatten(1))
        with pytest.raises(UsageError, match="has not run"):
            storage.tensor.sum()
        model(torch.randn(2, 1, 4))
        with pytest.raises(UsageError, match=r"Rows of shape \(4,\) do not fit"):
            model(torch.randn(1, 2, 4))
        storage.next_rows = [0]
        with pytest.raises(UsageError, match="names 1 rows for a batch of 2"):
            model(torch.randn(2, 1, 4))
        assert len(storage) == 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_reducers_agree_with_numpy(dtype: torch.dtype) -> None:
    values = torch.randn(5, 7).to(dtype)
    exact = values.double().numpy()
    assert reducers.norm(values).item() == pytest.approx(np.linalg.norm(exact), rel=1e-6)
    assert reducers.mean(values).item() == pytest.approx(exact.mean(), abs=1e-6)
    assert reducers.abs_max(values).item() == np.abs(exact).max()
    found = reducers.histogram(8)(values)
    assert found.counts.tolist() == np.histogram(exact, 8)[0].tolist()
    assert (found.low.item(), found.high.item()) == (exact.min(), exact.max())


def test_a_histogram_counts_what_is_no_number_apart():
    values = torch.tensor([0.0, 1.0, 4.0, float("nan"), float("inf"), -float("inf"), 9.0])
    found = reducers.histogram(4, 0.0, 4.0)(values)
    assert found.counts.tolist() == [1, 1, 0, 2]
    assert found.nonfinite == 3
    empty = reducers.histogram(2)(torch.full((3,), float("nan")))
    assert (empty.counts.tolist(), empty.nonfinite.item()) == ([0, 0], 3)
    assert reducers.histogram(2)(torch.empty(0)).counts.tolist() == [0, 0]
    assert reducers.abs_max(torch.empty(0)) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reduce": "norn"}, 'No reducer "norn". Did you mean norm'),
        ({"every": 0}, "every is a whole number"),
        ({"keep": 0}, "keep is a whole number"),
        ({"of": "gradients"}, 'of is "activation" or "gradient"'),
        ({"accumulated": True}, "Only parameters accumulate"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(options: dict[str, Any], message: str) -> None:
    with HookManager(Plain()) as hooks:
        with pytest.raises(UsageError, match=message):
            hooks.record("last", **options)
        assert hooks.registered == []


def test_a_parameter_has_no_activation():
    with HookManager(Plain()) as hooks, pytest.raises(UsageError, match="has no activation"):
        hooks.record("last.weight", of="activation")
