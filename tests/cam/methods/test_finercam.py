"""FinerCAM: the base's map of a difference of classes, and which classes are compared."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from camapp.cam import GradCAM, TopClasses
from camapp.cam.engine import Method
from camapp.cam.methods import METHODS
from camapp.cam.methods.eigen import EigenCAM
from camapp.cam.methods.finercam import FinerCAM
from camapp.cam.methods.products import LayerCAM
from camapp.cam.targets import ClassDifference, ClassProbability
from camapp.errors import TargetError, UsageError
from tests.autograd_oracle import full_autograd
from tests.networks import Plain, Segmenter


def with_logits(logits: list[float]) -> Plain:
    """A network that gives nearly these logits for every picture."""
    model = Plain(len(logits)).eval()
    with torch.no_grad():
        model.head.weight.mul_(1e-3)
        model.head.bias.copy_(torch.tensor(logits))
    return model


def test_grad_cam_of_the_difference_is_the_difference_of_the_grad_cams() -> None:
    model, inputs = Plain().eval(), torch.randn(2, 3, 20, 12)
    found = FinerCAM(model, "last", others=[0, 3], gamma=0.6)(inputs, 1)
    one, zero, three = (GradCAM(model, "last")(inputs, each) for each in (1, 0, 3))
    torch.testing.assert_close(found.raw, one.raw - 0.6 * (zero.raw + three.raw) / 2)
    torch.testing.assert_close(found.scores, one.scores - 0.6 * (zero.scores + three.scores) / 2)
    assert found.targets.tolist() == [1, 1]
    torch.testing.assert_close(found.logits, model(inputs).detach())


def test_a_base_that_is_not_linear_sees_the_gradient_of_the_difference() -> None:
    model, inputs = Plain().eval(), torch.randn(2, 3, 16, 16)
    activation, of_class = full_autograd(model, "norm", inputs, [2, 2])
    _, of_other = full_autograd(model, "norm", inputs, [4, 4])
    wanted = ((of_class - 0.9 * of_other).double().clamp(min=0) * activation.double()).sum(1)
    found = FinerCAM(model, "norm", base=LayerCAM, others=4, gamma=0.9)(inputs, 2)
    torch.testing.assert_close(found.raw.double(), wanted, rtol=1e-5, atol=1e-7)


def test_the_others_are_the_nearest_in_score_above_and_below_but_not_the_class_itself() -> None:
    model = with_logits([5.0, 9.0, 4.0, 0.0, 5.5])
    found = FinerCAM(model, "last", nearest=2)(torch.randn(1, 3, 16, 16), 0)
    assert found.target_names == ["class 0 against 4, 2"]  # 0.5 above, 1 below; class 1 is 4 away


def test_each_top_class_has_rivals_of_its_own() -> None:
    model = with_logits([5.0, 9.0, 4.0, 0.0, 8.5])
    found = FinerCAM(model, "last", nearest=1)(torch.randn(2, 3, 16, 16), TopClasses(3))
    assert found.targets.tolist() == [[1, 4, 0]] * 2
    assert found.target_names == [["class 1 against 4", "class 4 against 1", "class 0 against 2"]] * 2


def test_without_weight_for_the_others_it_is_the_base() -> None:
    model, inputs = Plain().eval(), torch.randn(2, 3, 16, 16)
    torch.testing.assert_close(FinerCAM(model, "last", gamma=0)(inputs).raw, GradCAM(model, "last")(inputs).raw)


def test_fewer_classes_than_asked_for_are_all_compared() -> None:
    model, inputs = Plain(3).eval(), torch.randn(1, 3, 16, 16)
    many, two = FinerCAM(model, "last", nearest=9), FinerCAM(model, "last", nearest=2)
    assert torch.equal(many(inputs, 1).raw, two(inputs, 1).raw)


def test_a_class_among_the_named_others_is_not_compared_with_itself() -> None:
    model, inputs = Plain().eval(), torch.randn(1, 3, 16, 16)
    engine = FinerCAM(model, "last", others=(0, 1, 2))
    assert engine(inputs, [[0, 2]]).target_names == [["class 0 against 1, 2", "class 2 against 0, 1"]]
    with pytest.raises(TargetError, match="class 3 itself"):
        FinerCAM(model, "last", others=3)(inputs, 3)


def test_several_classes_at_once_equal_one_by_one() -> None:
    model, inputs = Plain().eval(), torch.randn(2, 3, 16, 16)
    engine = FinerCAM(model, "last")
    together = engine(inputs, [[0, 2, 4], [1, 1, 3]])
    for k, classes in enumerate(([0, 1], [2, 1], [4, 3])):
        torch.testing.assert_close(together.raw[:, k], engine(inputs, classes).raw, rtol=1e-5, atol=1e-7)


def test_a_difference_given_as_the_target_is_explained_as_given() -> None:
    model, inputs = Plain().eval(), torch.randn(1, 3, 16, 16)
    target = ClassDifference(1, others=[3], gamma=0.25)
    wanted = GradCAM(model, "last")(inputs, target)
    assert torch.equal(FinerCAM(model, "last", others=[0], gamma=2.0)(inputs, target).raw, wanted.raw)


def test_what_is_no_class_is_refused() -> None:
    model, inputs = Plain().eval(), torch.randn(1, 3, 16, 16)
    for target in (ClassProbability(1), lambda row: row.mean()):
        with pytest.raises(TargetError, match="no class score"):
            FinerCAM(model, "last")(inputs, target)
    with pytest.raises(TargetError, match="region of class 1"):
        FinerCAM(Segmenter(), "body")(inputs, 1)


@pytest.mark.parametrize(
    ("base", "options", "named"),
    [
        (EigenCAM, {}, "EigenCAM looks"),
        ("kpcacam", {}, "KPCA-CAM looks"),
        ("fem", {}, "FEM looks"),
        ("randomcam", {}, "RandomCAM looks"),
        ("rollout", {}, "Attention rollout looks"),
        ("smooth", {"base": "eigencam"}, "Smooth over EigenCAM looks"),
        ("sess", {"base": "smooth", "base_options": {"base": "fem"}}, "SESS over Smooth over FEM looks"),
    ],
)
def test_bases_that_look_at_no_class_are_refused(base: type[Method] | str, options: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=f"{named} at no class"):
        FinerCAM(Plain(), base=base, base_options=options)


def test_every_other_method_is_taken_as_a_base() -> None:
    refused = {"eigencam", "kpcacam", "fem", "randomcam", "rollout"}
    assert {name for name, kind in METHODS.items() if not kind(Plain()).class_specific} == refused
    for name in METHODS.keys() - refused - {"finercam"}:
        assert FinerCAM(Plain(), base=name).base.name == name


def test_options_that_cannot_be_meant_are_refused() -> None:
    model = Plain()
    with pytest.raises(TargetError, match=r"gamma = -0\.5"):
        FinerCAM(model, "last", gamma=-0.5)
    with pytest.raises(TargetError, match="nearest = 0"):
        FinerCAM(model, "last", nearest=0)
    with pytest.raises(TargetError, match="others is empty"):
        FinerCAM(model, "last", others=[])
    with pytest.raises(UsageError, match='No method "gradcom"'):
        FinerCAM(model, "last", base="gradcom")
    with pytest.raises(UsageError, match="Grad-CAM takes no smoothness there"):
        FinerCAM(model, "last", base_options={"smoothness": 2})
