"""One look measures what autograd says, and leaves the model as it was."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from camapp.errors import UsageError
from camapp.hooks.inspector import inspect_once
from tests.hooks.inspector.trainings import Training, resnet18, same_bits
from tests.networks import InPlaceAfter


def test_gradients_are_those_of_autograd_and_nothing_is_left_behind() -> None:
    training = Training(resnet18)
    model, x = training.model, training.x
    training.backward()
    before, random = training.state(), torch.get_rng_state()
    snapshot = inspect_once(model, lambda: model(x)[:, 1].sum())
    assert same_bits(before, training.state())
    assert torch.equal(random, torch.get_rng_state())
    assert model.training
    assert not any(module._forward_hooks for module in model.modules())
    model.eval()
    names, parameters = zip(*model.named_parameters(), strict=True)
    score = model(x)[:, 1].sum()
    expected = dict(zip(names, torch.autograd.grad(score, parameters), strict=True))
    assert snapshot.loss == float(score.detach())
    assert [entry.name for entry in snapshot.of("parameter gradient")] == list(names)
    for entry in snapshot.of("parameter gradient"):
        assert math.isclose(entry.norm, float(expected[entry.name].double().norm()), rel_tol=1e-5)
        assert entry.update_ratio is None
    assert sum(1 for _ in snapshot.of("gradient")) == sum(1 for _ in snapshot.of("activation")) == 60


def test_flags_are_heeded_where_prediction_is_not_asked_for() -> None:
    model = nn.Sequential(nn.Linear(4, 100), nn.Dropout(0.5)).train()
    x = torch.randn(6, 4)
    dropped, kept = (
        inspect_once(model, lambda: model(x).sum(), layers="*", predict=predict) for predict in (False, True)
    )
    zeros = [next(entry for entry in one.of("activation") if entry.name == "1").zero_share for one in (dropped, kept)]
    assert 0.4 < zeros[0] < 0.6
    assert zeros[1] == 0


def test_a_frozen_model_is_inspected_through_its_input() -> None:
    model = InPlaceAfter().requires_grad_(False)
    x = torch.randn(2, 3, 16, 16, requires_grad=True)
    snapshot = inspect_once(model, lambda: model(x).sum())
    assert [entry.name for entry in snapshot.of("gradient")] == ["stem", "norm", "last", "head"]
    assert x.grad is None
    assert list(snapshot.of("parameter gradient")) == []
    with pytest.raises(UsageError, match="requires a gradient"):
        inspect_once(model, lambda: model(x.detach()).sum())


@pytest.mark.parametrize(("score", "says"), [(torch.ones(2), r"\(2,\)"), (3.0, "float")])
def test_a_score_that_is_not_one_number_is_refused(score: object, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        inspect_once(nn.Linear(2, 2), lambda: score)  # type: ignore[arg-type, return-value]


def test_layers_compiled_in_place_run_eagerly_for_the_look() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    model.compile(backend="eager")
    snapshot = inspect_once(model, lambda: model(torch.randn(2, 3)).sum(), layers="1")
    assert [entry.name for entry in snapshot.of("activation")] == ["1"]
