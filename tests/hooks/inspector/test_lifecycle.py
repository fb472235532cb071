"""An inspector comes and goes without a trace, and refuses what it could not watch."""

from __future__ import annotations

import copy
import gc
import io
import math
import threading
import warnings
from typing import Any

import pytest
import torch
from torch import nn

from camapp.errors import LayerError, ModelError, UsageError
from camapp.hooks.as_found import as_found
from camapp.hooks.inspector import Inspector
from camapp.hooks.report.records import Snapshot


class Written:
    """A writer that keeps what it is given."""

    def __init__(self) -> None:
        self.snapshots: list[Snapshot] = []
        self.closed = 0

    def write(self, snapshot: Snapshot) -> None:
        self.snapshots.append(snapshot)

    def close(self) -> None:
        self.closed += 1


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def hooks(model: nn.Module) -> int:
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())


def backward(model: nn.Module, scale: float = 1.0) -> torch.Tensor:
    loss = (model(torch.randn(5, 3)) * scale).square().sum()
    loss.backward()
    return loss


def test_hooks_go_with_the_block_also_where_it_raises() -> None:
    model = network()
    seen = []

    def interrupted() -> None:
        with Inspector(model):
            seen.append(hooks(model))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert seen[0] > 0
    assert hooks(model) == 0


def test_closing_twice_is_harmless_and_a_step_after_it_is_refused() -> None:
    model, writer = network(), Written()
    foreign = model[0].register_forward_hook(lambda *given: None)
    inspector = Inspector(model, writers=[writer])
    backward(model)
    inspector.step()
    inspector.close()
    inspector.close()
    assert writer.closed == 1
    assert hooks(model) == 1
    foreign.remove()
    with pytest.raises(UsageError, match="closed"):
        inspector.step()
    assert inspector.latest is not None  # what was seen stays


def test_a_dropped_inspector_takes_its_hooks_along_at_once() -> None:
    model = network()
    gc.disable()
    try:
        inspector = Inspector(model, every=1)
        backward(model)
        inspector.step()
        del inspector
        assert hooks(model) == 0
    finally:
        gc.enable()


def test_nothing_of_a_step_is_kept_alive() -> None:
    model = network()
    with Inspector(model, every=1) as inspector:
        seen = []
        handle = model[1].register_forward_hook(
            lambda module, args, output: seen.append(torch._C._WeakTensorRef(output))
        )
        backward(model)
        gc.collect()
        assert seen[0].expired()
        inspector.step()
        handle.remove()


def test_copies_of_a_model_are_not_inspected() -> None:
    model = network()
    with Inspector(model, every=1) as inspector:
        other = copy.deepcopy(model)
        stream = io.BytesIO()
        torch.save(model, stream)
        stream.seek(0)
        loaded = torch.load(stream, weights_only=False)
        backward(model)
        for one in (other, loaded):
            one(torch.randn(9, 3)).sum().backward()
        snapshot = inspector.step()
    assert snapshot is not None
    assert [entry.shape[0] for entry in snapshot.of("activation")] == [5, 5, 5]


def test_other_threads_and_explanations_are_not_watched() -> None:
    model = network()
    with Inspector(model, every=1) as inspector:
        backward(model)
        thread = threading.Thread(target=lambda: model(torch.randn(9, 3)).sum().backward())
        thread.start()
        thread.join()
        with as_found(model):
            model(torch.randn(7, 3)).sum().backward()
        snapshot = inspector.step()
    assert snapshot is not None
    assert [entry.shape[0] for entry in snapshot.of("activation")] == [5, 5, 5]


def test_snapshots_come_at_chosen_steps_and_writers_get_them() -> None:
    model, writer = network(), Written()
    with Inspector(model, every=lambda step: step in (1, 4), writers=[writer], keep=1) as inspector:
        given = [inspector.step(backward(model)) for _ in range(6)]
    assert [one.step for one in given if one is not None] == [1, 4]
    assert [one.step for one in writer.snapshots] == [1, 4]
    assert [one.step for one in inspector.history] == [4]
    assert inspector.latest is writer.snapshots[-1]
    assert writer.closed == 1


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_step_that_is_not_finite_is_told_once_and_never_raises(bad: float) -> None:
    model = network()
    with Inspector(model, every=100) as inspector:
        assert inspector.step(backward(model)) is not None
        model.zero_grad()
        assert inspector.step(backward(model)) is None
        model.zero_grad()
        with pytest.warns(UserWarning, match="inspector.locate"):
            snapshot = inspector.step(backward(model, bad))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert inspector.step(backward(model, bad)) is not None
    assert snapshot is not None
    assert snapshot.step == 2
    assert {entry.of for entry in snapshot.statistics} == {"parameter gradient"}
    assert any(verdict.what == "non-finite" and verdict.name == "0.weight" for verdict in snapshot.verdicts)
    assert "2.weight" in inspector.report()


def test_a_loss_that_is_not_finite_is_told_though_gradients_are() -> None:
    model = network()
    with Inspector(model, every=100) as inspector:
        inspector.step(backward(model))
        backward(model)
        with pytest.warns(UserWarning, match="loss"):
            snapshot = inspector.step(math.inf)
    assert snapshot is not None
    assert snapshot.verdicts[0].name == "loss"


def test_huge_gradients_are_no_false_alarm() -> None:
    model = network()
    with Inspector(model, every=100) as inspector:
        inspector.step(backward(model))
        model.zero_grad()
        backward(model)
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.grad.fill_(3e38)
        assert inspector.step(1.0) is None


def test_models_that_would_run_without_hooks_are_refused() -> None:
    with pytest.raises(ModelError, match="Give the module it was made from"):
        Inspector(torch.compile(network(), backend="eager"))
    compiled = network()
    compiled[0].compile(backend="eager")
    with pytest.raises(ModelError, match='"0"'):
        Inspector(compiled)
    with pytest.raises(ModelError, match=r"model\.module"):
        Inspector(nn.DataParallel(network()))
    with pytest.raises(ModelError, match="scripted"):
        Inspector(torch.jit.script(network()))
    with pytest.raises(ModelError, match=r"torch\.nn\.Module"):
        Inspector("resnet18")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"every": 0}, UsageError, "every is a whole number of steps from 1.*not 0"),
        ({"every": 2.5}, UsageError, "every is a whole number.*not 2.5"),
        ({"sample": 0}, UsageError, "sample=0"),
        ({"keep": -1}, UsageError, "keep=-1"),
        ({"layers": ["9"]}, LayerError, '"9"'),
        ({"layers": []}, UsageError, "No layer"),
        ({"layers": nn.Conv2d}, LayerError, "Conv2d"),
        ({"layers": "0:input"}, LayerError, "0:input"),
    ],
)
def test_arguments_that_cannot_be_meant_are_named(options: dict[str, Any], error: type[Exception], says: str) -> None:
    model = network()
    with pytest.raises(error, match=says):
        Inspector(model, **options)
    assert hooks(model) == 0


@pytest.mark.parametrize(("loss", "says"), [(torch.ones(3), r"\(3,\)"), ("high", "str")])
def test_a_loss_that_is_not_one_number_is_refused(loss: Any, says: str) -> None:
    with Inspector(network()) as inspector, pytest.raises(UsageError, match=says):
        inspector.step(loss)


def test_complex_parameters_are_checked_though_not_measured() -> None:
    model = nn.Linear(3, 2, dtype=torch.complex64)
    with Inspector(model, every=100) as inspector:
        for factor, told in ((1.0, True), (1.0, False), (math.nan, True)):
            (model(torch.randn(4, 3, dtype=torch.complex64)) * factor).abs().sum().backward()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                snapshot = inspector.step()
            assert (snapshot is not None) == told
    assert snapshot is not None
    assert {(one.name, one.what) for one in snapshot.verdicts} == {("weight", "non-finite"), ("bias", "non-finite")}


class Refusing:
    """A writer that fails, as one on a full disk does."""

    def write(self, snapshot: Snapshot) -> None:
        raise OSError("no space left")

    def close(self) -> None:
        pass


def test_a_writer_that_fails_leaves_the_count_of_steps_right() -> None:
    model = nn.Sequential(nn.Linear(3, 2))
    with Inspector(model, every=1, writers=[Refusing()]) as inspector:
        for _ in range(2):
            model(torch.randn(4, 3)).sum().backward()
            with pytest.raises(OSError, match="no space left"):
                inspector.step()
        assert [one.step for one in inspector.history] == [0, 1]
        assert repr(inspector) == "Inspector(Sequential, open, 2 steps, 2 snapshots)"


def test_a_step_before_any_backward_is_warned_of() -> None:
    model = nn.Sequential(nn.Linear(3, 2))
    with Inspector(model, every=1) as inspector:
        model(torch.randn(4, 3))
        with pytest.warns(UserWarning, match="no parameter has a gradient"):
            inspector.step()


class Rooted(nn.Module):
    """Gives NaN where dropout keeps much of its input: only the same random numbers show where from."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)
        self.first = nn.Linear(8, 8)
        self.root = _Root()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.first(self.root(self.drop(x)))


class _Root(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + (12 - x.sum()).sqrt() * 0


def test_a_failing_step_is_located_with_the_random_numbers_it_had() -> None:
    model, x = Rooted(), torch.ones(2, 8)
    outcomes = []
    with Inspector(model, every=1000) as inspector, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(40):
            loss = model(x).sum()
            loss.backward()
            failed = inspector.step(loss) is not None and not math.isfinite(float(loss.detach()))
            torch.rand(7)  # the training goes on drawing
            model.zero_grad()
            finding = inspector.locate(lambda: model(x).sum())
            outcomes.append((failed, finding is not None))
            assert finding is None or "root" in str(finding)
    assert {True, False} == {failed for failed, _ in outcomes}
    assert all(failed == located for failed, located in outcomes)
