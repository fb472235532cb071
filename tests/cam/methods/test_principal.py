"""PrincipalComponent: the first principal component of what the channels contribute."""

from __future__ import annotations

import numpy as np
import pytest
import pytorch_grad_cam
import torch
from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget

from camapp.cam import compare
from camapp.cam.methods.eigen import EigenCAM, EigenGradCAM
from camapp.cam.methods.principal import PrincipalComponent
from camapp.cam.methods.products import HiResCAM
from camapp.errors import UsageError
from tests.autograd_oracle import full_autograd
from tests.networks import Plain, Staged


def by_decomposition(channels: torch.Tensor) -> np.ndarray:
    """Each picture's channels on their first right singular vector, turned as their sum; NumPy's SVD, in float64."""
    maps = []
    for one in channels.double().numpy():
        places = one.reshape(len(one), -1).T
        centred = places - places.mean(0)
        component = centred @ np.linalg.svd(centred, full_matrices=False)[2][0]
        component *= np.sign(component @ places.sum(1))
        maps.append(component.reshape(one.shape[1:]))
    return np.stack(maps)


def test_it_is_the_first_component_of_the_weighted_channels() -> None:
    model, inputs = Plain().eval(), torch.randn(3, 3, 20, 12)
    activation, gradient = full_autograd(model, "norm", inputs, [1, 2, 4])
    of_gradcam = gradient.double().mean((2, 3), keepdim=True) * activation.double()
    result = PrincipalComponent(model, "norm")(inputs, [1, 2, 4])
    np.testing.assert_allclose(result.raw.numpy(), by_decomposition(of_gradcam), rtol=1e-4, atol=1e-7)
    of_hirescam = PrincipalComponent(model, "norm", base=HiResCAM)(inputs, [1, 2, 4])
    wanted = by_decomposition(gradient.double() * activation.double())
    np.testing.assert_allclose(of_hirescam.raw.numpy(), wanted, rtol=1e-4, atol=1e-7)


def test_it_is_grad_cams_eigen_smooth_but_for_the_sign() -> None:
    model, inputs = Staged().eval(), torch.randn(2, 3, 16, 16)
    with pytorch_grad_cam.GradCAM(model=model, target_layers=[model.late]) as engine:
        theirs = engine(inputs, [ClassifierOutputTarget(1)] * 2, eigen_smooth=True)
    result = PrincipalComponent(model, "late")
    sides = [result(inputs, 1, sign=sign).maps.numpy() for sign in ("positive", "negative")]  # type: ignore[arg-type]
    for row in range(2):
        assert min(np.abs(side[row] - theirs[row]).max() for side in sides) < 1e-4


def test_it_points_as_what_supports_the_class() -> None:
    model, inputs = Plain().eval(), torch.randn(8, 3, 16, 16)
    found = PrincipalComponent(model, "last")(inputs, 1).raw
    against = PrincipalComponent(model, "last")(inputs, lambda row: -row[1]).raw
    torch.testing.assert_close(found, -against)


def test_it_shares_the_pass_of_other_methods() -> None:
    model, inputs = Plain().eval(), torch.randn(2, 3, 16, 16)
    forwards: list[int] = []
    model.stem.register_forward_hook(lambda *_: forwards.append(1))
    results = compare(model, inputs, 1, methods=["gradcam", PrincipalComponent(model, "last")], layer="last")
    assert len(forwards) == 1
    assert torch.equal(results["principal"].maps, PrincipalComponent(model, "last")(inputs, 1).maps)


@pytest.mark.parametrize("base", [EigenCAM, EigenGradCAM])
def test_bases_that_are_no_sum_of_channels_are_refused(base: type[EigenCAM]) -> None:
    with pytest.raises(UsageError, match="no sum of weighted channels"):
        PrincipalComponent(Plain(), "last", base=base)
