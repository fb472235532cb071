"""The three small tools of a debugging session."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import camapp
from camapp.errors import LayerError, UsageError
from camapp.hooks import edits
from tests.hooks.test_handles import hooks_of
from tests.networks import InPlaceAfter, Plain

INPUTS = torch.randn(2, 3, 16, 16)


def test_a_block_gives_the_activations_of_its_forwards():
    model = InPlaceAfter()
    with camapp.register_hooks_for_debug(model, ["norm", "head"]) as activations:
        scores = model(INPUTS)
    assert torch.equal(activations["head"], scores)
    assert (activations["norm"] < 0).any()
    assert hooks_of(model) == 0
    with pytest.raises(LayerError, match="Did you mean norm"), camapp.register_hooks_for_debug(model, ["nrom"]):
        pass
    with pytest.raises(ZeroDivisionError), camapp.register_hooks_for_debug(model, ["norm"]):
        raise ZeroDivisionError
    assert hooks_of(model) == 0


def test_the_debug_manager_keeps_outputs_and_gradients_edits_by_rules_and_reports():
    model = Plain()
    manager = camapp.DebugHookManager(model)
    manager.register_forward("stem", model.stem)
    manager.register_backward("stem", model.stem)
    manager.register_backward("scores", "head")
    manager.register_edit("weaker", model.last, edits.scale(0.5), when=lambda stored: stored["grad:scores"].sum() > 0)
    manager.register_backward("late", model.norm)
    manager.register_edit("never", model.last, edits.zero(), when=lambda stored: stored["grad:late"].sum() != 0)
    assert manager.storage == {}
    scores = model(INPUTS)
    scores.sum().backward()
    assert set(manager.storage) == {"out:stem", "grad:stem", "grad:scores", "grad:late"}
    assert torch.equal(manager.storage["out:stem"], model.stem(INPUTS))
    assert torch.equal(manager.storage["grad:scores"], torch.ones_like(scores))
    halved = model.last.weight.grad.clone()
    report = manager.remove()
    assert "out:stem" in report
    assert hooks_of(model) == 0
    model.zero_grad()
    model(INPUTS).sum().backward()
    torch.testing.assert_close(halved, model.last.weight.grad / 2)
    assert "out:stem" in manager.storage


def test_a_rule_that_asks_for_what_nobody_registered_is_an_error_and_names_mean_one_module():
    model = Plain()
    with camapp.DebugHookManager(model) as manager:
        manager.register_edit("weaker", model.last, edits.scale(0.5), when=lambda stored: stored["grad:nothing"] > 0)
        with pytest.raises(KeyError, match="grad:nothing"):
            model(INPUTS).sum().backward()
        for many in ("*", nn.Conv2d):
            with pytest.raises(UsageError, match="out:all is one module"):
                manager.register_forward("all", many)  # type: ignore[arg-type]
        manager.register_forward("one", model.stem)
        manager.register_forward("same", model.stem)
        model.eval()(INPUTS)
        assert torch.equal(manager.storage["out:one"], manager.storage["out:same"])


def test_the_gradient_inspector_reads_norm_mean_and_largest_value_of_convolutions_and_linear_layers():
    model = Plain()
    inspector = camapp.GradientInspector(model)
    assert inspector.get_report() == {}
    with camapp.HookManager(model) as hooks:
        hooks.record(["stem", "last", "head"], of="gradient")
        model(INPUTS).square().sum().backward()
    report = inspector.get_report()
    assert set(report) == {"stem", "last", "head"}
    for name, gradient in hooks.gradients.items():
        wanted = {"norm": gradient.norm(), "mean": gradient.mean(), "abs_max": gradient.abs().max()}
        assert report[name] == pytest.approx({key: value.item() for key, value in wanted.items()}, rel=1e-5, abs=1e-9)
    inspector.clear()
    assert inspector.get_report() == {}
    inspector.remove()
    inspector.remove()
    assert hooks_of(model) == 0


def test_the_gradient_inspector_watches_the_classes_named_at_the_steps_named():
    model = Plain()
    with camapp.GradientInspector(model, (nn.Linear, nn.LSTM), every=2) as inspector:
        model(INPUTS).sum().backward()
        assert list(inspector.get_report()) == ["head"]
        inspector.clear()
        model(INPUTS).sum().backward()
        assert inspector.get_report() == {}
    with pytest.raises(LayerError, match="has no LSTM"):
        camapp.GradientInspector(model, nn.LSTM)
    with pytest.raises(UsageError, match="module_types"):
        camapp.GradientInspector(model, "Conv2d")  # type: ignore[arg-type]
