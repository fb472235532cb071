"""Training is the same to the bit with an inspector and without, and what it sees is what autograd says."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torchvision
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from camapp.hooks.inspector import Inspector
from camapp.hooks.report.records import Snapshot, TensorStatistics
from tests.hooks.inspector.trainings import NETWORKS, Training, same_bits
from tests.networks import InPlaceAfter, PassThrough, Reused

MANY = 10**9


def one(snapshot: Snapshot | None, of: str, name: str) -> TensorStatistics:
    assert snapshot is not None
    (found,) = [entry for entry in snapshot.statistics if (entry.of, entry.name) == (of, name)]
    return found


def is_of(found: TensorStatistics, tensor: torch.Tensor) -> bool:
    """Whether figures are those of a tensor."""
    wide = tensor.detach().double()
    return (
        found.shape == tuple(tensor.shape)
        and math.isclose(found.norm, float(wide.norm()), rel_tol=1e-5, abs_tol=1e-30)
        and math.isclose(found.mean, float(wide.mean()), rel_tol=1e-4, abs_tol=1e-6 * float(wide.abs().mean()))
        and math.isclose(found.abs_max, float(wide.abs().max()), rel_tol=1e-6)
        and found.zero_share == float((wide == 0).double().mean())
    )


@dataclass(frozen=True)
class Run:
    """Twenty steps with an inspector, and the same without: gradients, weights and buffers at the end."""

    plain: dict[str, torch.Tensor]
    watched: dict[str, torch.Tensor]
    losses: list[float]
    history: tuple[Snapshot, ...]
    report: str


@pytest.fixture(scope="module", params=NETWORKS)
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # small operations of two threads wait for each other on a busy machine
    yield _run(NETWORKS[request.param])
    torch.set_num_threads(threads)


def _run(network: Callable[[], tuple[nn.Module, torch.Tensor]]) -> Run:
    losses = []
    plain = Training(network)
    for step in range(20):
        losses.append(float(plain.backward()))
        gradients = plain.state() if step == 19 else {}
        plain.update()
    watched = Training(network)
    with Inspector(watched.model, every=1) as inspector:
        for step in range(20):
            inspector.step(watched.backward())
            seen = watched.state() if step == 19 else {}
            watched.update()
    join = lambda before, after: {**{f"before {name}": one for name, one in before.items()}, **after}  # noqa: E731
    return Run(
        join(gradients, plain.state()), join(seen, watched.state()), losses, inspector.history, inspector.report()
    )


def test_twenty_steps_leave_the_same_bits_with_and_without_an_inspector(run: Run) -> None:
    assert any(name.endswith(".grad") for name in run.plain)
    assert same_bits(run.plain, run.watched)
    assert [(snapshot.step, snapshot.loss) for snapshot in run.history] == list(enumerate(run.losses))


def test_healthy_networks_get_no_verdict_in_twenty_steps(run: Run) -> None:
    assert [verdict for snapshot in run.history for verdict in snapshot.verdicts] == []
    assert "nothing wrong was found" in run.report.splitlines()[0]


def test_all_that_layers_give_and_get_is_seen_as_autograd_has_it() -> None:
    training = Training(NETWORKS["resnet18"])
    kept: list[tuple[str, torch.Tensor, torch.Tensor]] = []

    def keep(name: str) -> Callable[..., torch.Tensor]:
        def hook(module: nn.Module, args: Any, output: torch.Tensor) -> torch.Tensor:
            output.retain_grad()
            kept.append((name, output, output.detach().clone()))
            return output.clone()  # as what follows may change it in place

        return hook

    for name, module in training.model.named_modules():
        if not list(module.children()):
            module.register_forward_hook(keep(name))
    training.backward()
    expected: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
    for name, output, copied in kept:
        key, number = name, 0
        while key in expected:
            number += 1
            key = f"{name}@{number}"
        assert output.grad is not None
        expected[key] = (copied, output.grad)
    watched = Training(NETWORKS["resnet18"])
    with Inspector(watched.model, every=1) as inspector:
        snapshot = inspector.step(watched.backward())
    assert snapshot is not None
    assert [entry.name for entry in snapshot.of("activation")] == list(expected)
    assert "layer1.0.relu@1" in expected
    for name, (activation, gradient) in expected.items():
        assert is_of(one(snapshot, "activation", name), activation), name
        assert is_of(one(snapshot, "gradient", name), gradient), name
    for name, parameter in watched.model.named_parameters():
        assert parameter.grad is not None
        assert is_of(one(snapshot, "parameter gradient", name), parameter.grad)
    assert [entry.name for entry in snapshot.of("parameter gradient")] == [
        name for name, _ in watched.model.named_parameters()
    ]
    assert one(snapshot, "activation", "layer1.0.relu").kind == "ReLU"
    assert one(snapshot, "parameter gradient", "bn1.weight").kind == "BatchNorm2d"
    assert snapshot.without_gradient == ()


def test_gradients_of_micro_batches_are_summed_for_parameters_and_the_last_for_layers() -> None:
    training = Training(NETWORKS["vit"])
    with Inspector(training.model, every=1) as inspector:
        snapshot = inspector.step(training.backward(micro=2))
    assert one(snapshot, "activation", "patch_embed.proj").shape[0] == 2
    assert not any("@" in entry.name for entry in snapshot.statistics)  # type: ignore[union-attr]
    for name, parameter in training.model.named_parameters():
        assert parameter.grad is not None
        assert is_of(one(snapshot, "parameter gradient", name), parameter.grad)
    again = Training(NETWORKS["vit"])
    again.x, again.y = again.x, again.y
    first = F.cross_entropy(again.model(again.x[:2]), again.y[:2]) / 2
    first.backward()
    seen: list[torch.Tensor] = []
    again.model.get_submodule("patch_embed.proj").register_forward_hook(
        lambda module, args, output: output.register_hook(seen.append) and None
    )
    (F.cross_entropy(again.model(again.x[2:]), again.y[2:]) / 2).backward()
    assert is_of(one(snapshot, "gradient", "patch_embed.proj"), seen[0])


def both(make: Callable[[], nn.Module], x: torch.Tensor, **options: Any) -> tuple[Snapshot, nn.Module]:
    """A snapshot of one step, after checking that gradients are the same to the bit without an inspector."""
    torch.manual_seed(0)
    plain = make()
    plain(x).square().sum().backward()
    torch.manual_seed(0)
    model = make()
    with Inspector(model, every=1, **options) as inspector:
        loss = model(x).square().sum()
        loss.backward()
        snapshot = inspector.step(loss)
    for one_, other in zip(plain.parameters(), model.parameters(), strict=True):
        assert (one_.grad is None) == (other.grad is None)
        assert one_.grad is None or torch.equal(one_.grad, other.grad)  # type: ignore[arg-type]
    assert snapshot is not None
    return snapshot, model


@pytest.mark.parametrize("make", [InPlaceAfter, PassThrough, lambda: torchvision.models.densenet121(num_classes=3)])
def test_networks_that_work_in_place_run_and_are_measured(make: Callable[[], nn.Module]) -> None:
    snapshot, model = both(make, torch.randn(2, 3, 32, 32))
    convolution = next(name for name, module in model.named_modules() if isinstance(module, nn.Conv2d))
    assert one(snapshot, "activation", convolution).zero_share == 0  # before the ReLU that follows in place
    assert snapshot.without_gradient == ()


class ViewChanged(nn.Module):
    """A layer gives a view, which is read, changed in place twice, and seen through its base as well."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 8)
        self.unflatten = nn.Unflatten(1, (2, 4))
        self.base = nn.Identity()
        self.clean: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        base = self.base(self.first(x))
        view = self.unflatten(base)
        early = (view * 3.0).sum()
        view.mul_(2.0)
        view[:, 0].relu_()
        return base.square().sum() + view.exp().mean() + early


def test_the_gradient_of_a_view_that_is_changed_in_place_is_found() -> None:
    torch.manual_seed(0)
    model, x = ViewChanged(), torch.randn(4, 3)
    with Inspector(model, every=1, layers="*") as inspector:
        loss = model(x)
        loss.backward()
        snapshot = inspector.step(loss)
    value = model.first(x).detach().requires_grad_()  # the same written without a change in place
    doubled = value * 2.0
    after = torch.cat([doubled[:, :4].relu(), doubled[:, 4:]], dim=1)
    (after.square().sum() + after.exp().mean() + (value * 3.0).sum()).backward()
    assert value.grad is not None
    assert is_of(one(snapshot, "gradient", "unflatten"), value.grad.view(4, 2, 4))
    assert is_of(one(snapshot, "gradient", "base"), value.grad)
    assert is_of(one(snapshot, "activation", "unflatten"), value.view(4, 2, 4))


def test_every_call_of_a_reused_layer_has_figures_of_its_own() -> None:
    snapshot, _ = both(Reused, torch.randn(2, 3, 8, 8))
    relus = [entry.name for entry in snapshot.of("activation") if entry.kind == "ReLU"]
    assert relus == ["relu", "relu@1", "relu@2"]
    assert len({one(snapshot, "gradient", name).norm for name in relus}) == 3
    assert snapshot.without_gradient == ("unused.weight", "unused.bias")


class Structured(nn.Module):
    """Gives a dictionary with integers beside, and a list in it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = _Mapping()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.inner(x)
        return found["logits"] + found["hidden"][1].sum(1, keepdim=True)


class _Mapping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3))

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        hidden = x @ self.weight
        return {"logits": hidden * 2, "ids": torch.arange(3), "hidden": [hidden.detach(), hidden.exp()]}


def test_all_tensors_of_a_structure_are_measured_by_their_places() -> None:
    snapshot, _ = both(Structured, torch.randn(4, 3))
    assert [entry.name for entry in snapshot.of("activation")] == ["inner#logits", "inner#hidden.0", "inner#hidden.1"]
    assert snapshot.without_gradient == ("inner#hidden.0",)


def test_parts_of_an_lstm_are_named_and_can_be_chosen() -> None:
    training = Training(NETWORKS["lstm"])
    with Inspector(training.model, every=1, layers=["lstm#1", "head"]) as inspector:
        snapshot = inspector.step(training.backward())
    assert snapshot is not None
    assert [entry.name for entry in snapshot.of("activation")] == ["lstm#1.0", "lstm#1.1", "head"]
    assert set(snapshot.without_gradient) >= {"lstm#1.0", "lstm#1.1"}  # only what it gives at each time is used


def test_layers_are_chosen_by_class_call_and_pattern() -> None:
    model, x = Reused(), torch.randn(2, 3, 8, 8)
    for layers, expected in (
        (nn.Conv2d, ["one", "two"]),
        (["relu@1"], ["relu@1"]),
        (["re:one|two", model.head], ["one", "two", "head"]),
    ):
        with Inspector(model, every=1, layers=layers) as inspector:
            model(x).sum().backward()
            snapshot = inspector.step()
        assert snapshot is not None
        assert [entry.name for entry in snapshot.of("activation")] == expected


def test_frozen_parameters_are_left_out_and_layers_without_a_graph_listed() -> None:
    def make() -> nn.Module:
        model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
        model[0].requires_grad_(False)
        return model

    snapshot, _ = both(make, torch.randn(5, 3))
    assert [entry.name for entry in snapshot.of("parameter gradient")] == ["2.weight", "2.bias"]
    assert [entry.name for entry in snapshot.of("gradient")] == ["2"]
    assert snapshot.without_gradient == ("0", "1")


class Checkpointed(nn.Module):
    """Three segments, each of them checkpointed, that share an activation function, used twice in each."""

    def __init__(self, reentrant: bool | None) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.stem = nn.Linear(4, 6)
        self.first = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))
        self.second = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))
        self.act = nn.Tanh()
        self.drop = nn.Dropout(0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for number in range(3):
            if self.reentrant is None:
                x = self.segment(x, number)
            else:
                x = checkpoint(self.segment, x, number, use_reentrant=self.reentrant)
        return x

    def segment(self, x: torch.Tensor, number: int) -> torch.Tensor:
        return self.drop(self.act(self.second[number](self.act(self.first[number](x)))))


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_of_both_kinds_shows_the_same_figures_as_none(reentrant: bool) -> None:
    x = torch.randn(5, 4)
    plain, _ = both(lambda: Checkpointed(None), x)
    snapshot, _ = both(lambda: Checkpointed(reentrant), x)
    names = [(entry.name, entry.of) for entry in plain.statistics]
    assert [(entry.name, entry.of) for entry in snapshot.statistics] == names
    assert ("act@5", "gradient") in names
    assert snapshot.statistics == plain.statistics


def test_a_forward_without_a_graph_is_passed_over() -> None:
    training = Training(NETWORKS["lstm"])
    with Inspector(training.model, every=1) as inspector:
        loss = training.backward()
        with torch.no_grad():
            training.model(torch.randn(50, 9, 5))  # a validation, say
        snapshot = inspector.step(loss)
    assert one(snapshot, "activation", "embedding").shape[0] == 6


def test_a_model_whose_parts_are_called_one_by_one_is_seen_anew_after_each_backward() -> None:
    model = nn.ModuleDict({"encoder": nn.Linear(3, 4), "decoder": nn.Linear(4, 2)})
    with Inspector(model, every=1) as inspector:
        for rows in (5, 7):
            model["decoder"](model["encoder"](torch.randn(rows, 3))).sum().backward()
        snapshot = inspector.step()
    assert snapshot is not None
    assert [(entry.name, entry.shape[0]) for entry in snapshot.of("activation")] == [("encoder", 7), ("decoder", 7)]


def test_hooks_on_inputs_that_outlive_the_step_are_removed() -> None:
    model, x = nn.Sequential(nn.Identity(), nn.Linear(3, 2)), torch.randn(4, 3, requires_grad=True)
    with Inspector(model, every=1) as inspector:
        for _ in range(3):
            model(x).sum().backward()
            snapshot = inspector.step()
    assert not x._backward_hooks
    assert is_of(one(snapshot, "gradient", "0"), model[1].weight.sum(0).expand(4, 3))


def test_the_update_ratio_is_of_the_update_after_the_last_measured_step() -> None:
    training = Training(NETWORKS["lstm"])
    ratios = []
    with Inspector(training.model, every=2) as inspector:
        for _ in range(5):
            inspector.step(training.backward())
            before = training.model.head.weight.detach().double().clone()  # type: ignore[union-attr]
            training.update()
            after = training.model.head.weight.detach().double()  # type: ignore[union-attr]
            ratios.append(float((after - before).norm() / before.norm()))
    seen = [one(snapshot, "parameter gradient", "head.weight").update_ratio for snapshot in inspector.history]
    assert seen[0] is None
    assert seen[1:] == pytest.approx([ratios[0], ratios[2]], rel=1e-4)


@pytest.mark.parametrize("unscale", [False, True])
@pytest.mark.parametrize("name_optimizer", [False, True])
def test_a_scale_is_divided_out_of_gradients_whether_or_not_they_are_unscaled(
    unscale: bool, name_optimizer: bool
) -> None:
    plain, scaled = Training(NETWORKS["resnet18"]), Training(NETWORKS["resnet18"])
    with Inspector(plain.model, every=1) as inspector:
        expected = inspector.step(plain.backward())
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    with Inspector(scaled.model, every=1) as inspector:
        loss = F.cross_entropy(scaled.model(scaled.x), scaled.y)
        scaler.scale(loss).backward()
        if unscale:
            scaler.unscale_(scaled.optimizer)
        found = inspector.step(loss, scaler=scaler, optimizer=scaled.optimizer if name_optimizer else None)
    assert expected is not None
    assert found is not None
    for one_, other in zip(found.statistics, expected.statistics, strict=True):
        assert (one_.name, one_.of) == (other.name, other.of)
        assert one_.norm == pytest.approx(other.norm, rel=1e-5)
        assert one_.p99 == pytest.approx(other.p99, rel=1e-5, abs=1e-12)


class _Reads(TorchDispatchMode):
    """Counts reads of values by the host, and forbids them while it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.forbidden = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default or (
            func is torch.ops.aten._to_copy.default and (kwargs or {}).get("device") == torch.device("cpu")
        ):
            assert not self.forbidden, "a hook waits for the device"
            self.count += 1
        return func(*args, **(kwargs or {}))


@contextmanager
def reads() -> Iterator[_Reads]:
    with _Reads() as counter:
        yield counter


def test_nothing_is_read_within_hooks_and_once_a_step() -> None:
    training = Training(NETWORKS["vit"])
    counts = []
    with Inspector(training.model, every=3) as inspector, reads() as counter:
        for _ in range(4):
            counter.forbidden = True
            loss = training.backward()
            counter.forbidden = False
            counter.count = 0
            inspector.step(loss)
            counts.append(counter.count)
            training.optimizer.zero_grad()
    assert len(inspector.history) == 2
    assert counts[1] == counts[2] == 1
    # On a CPU .cpu() copies nothing, so that the one transfer of a measured step is not seen here.
    assert counts[0] == counts[3] == 0


def test_steps_without_a_check_read_nothing_at_all() -> None:
    training = Training(NETWORKS["lstm"])
    with Inspector(training.model, every=MANY, check=False) as inspector:
        inspector.step(training.backward())  # step 0 is measured
        with reads() as counter:
            counter.forbidden = True
            inspector.step(training.backward())


def test_the_next_forward_after_an_error_in_one_begins_anew() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    with Inspector(model, every=1) as inspector:
        with pytest.raises(RuntimeError):
            model(torch.randn(2, 5))
        model(torch.randn(6, 3)).sum().backward()
        snapshot = inspector.step()
    assert [entry.shape[0] for entry in snapshot.of("activation")] == [6, 6]  # type: ignore[union-attr]
