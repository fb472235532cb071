"""Several methods in one call: the same maps as alone, with the shared work done once."""

from __future__ import annotations

import pytest
import torch

from camapp.cam import GradCAM, compare
from camapp.errors import UsageError
from tests.networks import Plain


def test_methods_of_one_layer_share_one_forward_and_give_what_they_give_alone() -> None:
    model, inputs = Plain().eval(), torch.randn(2, 3, 16, 16)
    forwards: list[int] = []
    model.stem.register_forward_hook(lambda *_: forwards.append(1))
    results = compare(model, inputs, [[0, 1], [2, 3]], methods=["gradcam", GradCAM(model, "last")], layer="last")
    assert len(forwards) == 1
    assert list(results) == ["gradcam", "gradcam 2"]
    alone = GradCAM(model, "last")(inputs, [[0, 1], [2, 3]])
    for result in results.values():
        assert torch.equal(result.maps, alone.maps)
        assert torch.equal(result.raw, alone.raw)


def test_each_method_keeps_its_own_layer() -> None:
    model, inputs = Plain().eval(), torch.randn(1, 3, 16, 16)
    results = compare(model, inputs, 1, methods=["gradcam", GradCAM(model, "stem")], layer="last")
    assert [result.layer for result in results.values()] == ["last", "stem"]
    assert torch.equal(results["gradcam 2"].raw, GradCAM(model, "stem")(inputs, 1).raw)


def test_a_method_of_another_model_and_an_empty_list_are_refused() -> None:
    model, inputs = Plain(), torch.randn(1, 3, 16, 16)
    with pytest.raises(UsageError, match="made for another model"):
        compare(model, inputs, methods=[GradCAM(Plain())])
    with pytest.raises(UsageError, match="methods is empty"):
        compare(model, inputs, methods=[])


def test_methods_made_for_a_compiled_model_are_its_own() -> None:
    model, inputs = Plain().eval(), torch.randn(1, 3, 16, 16)
    compiled = torch.compile(model, backend="eager")
    results = compare(compiled, inputs, 1, methods=[GradCAM(compiled, "last"), GradCAM(model, "last")])
    wanted = GradCAM(model, "last")(inputs, 1).raw
    assert all(torch.equal(result.raw, wanted) for result in results.values())


def test_methods_may_be_given_as_classes() -> None:
    model, inputs = Plain().eval(), torch.randn(1, 3, 16, 16)
    results = compare(model, inputs, 1, methods=[GradCAM, "layercam"], layer="last")
    assert list(results) == ["gradcam", "layercam"]
    assert torch.equal(results["gradcam"].raw, GradCAM(model, "last")(inputs, 1).raw)
