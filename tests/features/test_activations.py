"""ActivationExtractor: recording while the user runs the model."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest
import torch
from torch import nn

from camapp.errors import LayerError, ModelError
from camapp.features.activations import ActivationExtractor
from tests.hooks.test_capture import hooks_on


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.Conv2d(4, 2, 3)).eval()


def test_it_records_what_modules_give_before_an_in_place_operation_reaches_it() -> None:
    model, inputs = network(), torch.randn(1, 3, 8, 8)
    extractor = ActivationExtractor(model)
    extractor.register_hooks({"stem": model[0], "deep": "2"})
    expected = nn.functional.conv2d(inputs, model[0].weight, model[0].bias)
    output = model(inputs)
    assert torch.equal(extractor.activations["stem"], expected.detach())
    assert (extractor.activations["stem"] < 0).any()
    assert torch.equal(extractor.activations["deep"], output)
    assert not extractor.activations["deep"].requires_grad
    output.sum().backward()  # the user's own graph is whole
    assert model[0].weight.grad is not None


def test_calls_count_anew_in_each_forward() -> None:
    relu = nn.ReLU()
    model = nn.Sequential(relu, nn.Linear(3, 3), relu)
    with ActivationExtractor(model) as extractor:
        extractor.register_hooks(["0@0", "0@1", "0"])
        for _ in range(3):
            inputs = torch.randn(2, 3)
            output = model(inputs)
            assert torch.equal(extractor.activations["0@0"], inputs.relu())
            assert torch.equal(extractor.activations["0@1"], output)
            assert torch.equal(extractor.activations["0"], output)
    assert hooks_on(model) == 0


def test_a_model_compiled_in_place_is_refused() -> None:
    model = network()
    model.compile(backend="eager")
    with pytest.raises(ModelError, match="that was compiled"):
        ActivationExtractor(model).register_hooks(["0"])


def test_clearing_forgets_what_was_recorded_and_removing_ends_it() -> None:
    model, inputs = network(), torch.randn(1, 3, 8, 8)
    foreign: list[int] = []
    handle = model[0].register_forward_hook(lambda *_: foreign.append(1))
    extractor = ActivationExtractor(model)
    extractor.register_hooks(["0", "2"])
    model(inputs)
    kept = extractor.activations
    extractor.clear_activations()
    assert kept == {}
    model(inputs)
    assert set(kept) == {"0", "2"}
    extractor.remove_hooks()
    extractor.remove_hooks()
    extractor.clear_activations()
    model(inputs)
    assert kept == {}
    assert len(foreign) == 3
    assert hooks_on(model) == 1
    handle.remove()


def test_an_unknown_name_registers_nothing() -> None:
    model = network()
    extractor = ActivationExtractor(model)
    with pytest.raises(LayerError, match="No layer"):
        extractor.register_hooks({"stem": model[0], "wrong": "layer9"})
    with pytest.raises(LayerError, match="not part of this"):
        extractor.register_hooks({"wrong": nn.ReLU()})
    assert hooks_on(model) == 0


def test_hooks_go_with_the_block_also_on_an_error() -> None:
    model = network()

    def fail() -> None:
        with ActivationExtractor(model) as extractor:
            extractor.register_hooks(["0"])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert hooks_on(model) == 0


def test_another_threads_forward_is_not_recorded() -> None:
    model = network()
    with ActivationExtractor(model) as extractor:
        extractor.register_hooks(["0"])
        thread = threading.Thread(target=lambda: model(torch.randn(1, 3, 8, 8)))
        thread.start()
        thread.join()
        assert extractor.activations == {}


def test_an_extractor_that_goes_out_of_scope_is_freed_at_once() -> None:
    model = network()
    extractor = ActivationExtractor(model)
    extractor.register_hooks(["0"])
    model(torch.randn(1, 3, 8, 8))
    extractor.remove_hooks()
    gone = weakref.ref(extractor)
    gc.disable()
    try:
        del extractor
        assert gone() is None
    finally:
        gc.enable()
