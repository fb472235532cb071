"""Smooth Grad-CAM++ and RandomCAM: what is drawn, and what is made of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from camapp.cam.methods.plusplus import GradCAMPlusPlus, SmoothGradCAMPlusPlus
from camapp.cam.methods.randomcam import RandomCAM
from camapp.errors import StoppedError
from tests.autograd_oracle import full_autograd
from tests.cam.methods.layer_methods import Rectified


def seen_inputs(model: nn.Module) -> list[torch.Tensor]:
    """Everything that the model is given from now on."""
    given: list[torch.Tensor] = []
    model.register_forward_pre_hook(lambda module, args: given.append(args[0].detach().clone()))
    return given


def test_without_noise_it_is_grad_cam_plus_plus() -> None:
    model, inputs = Rectified().eval(), torch.randn(2, 3, 20, 12)
    found = SmoothGradCAMPlusPlus(model, "early", noise=0.0, samples=3)(inputs, [[0, 1]] * 2)
    wanted = GradCAMPlusPlus(model, "early")(inputs, [[0, 1]] * 2)
    torch.testing.assert_close(found.raw, wanted.raw, rtol=1e-5, atol=1e-7)


def test_it_follows_the_papers_equations_on_the_copies_it_made() -> None:
    model, inputs, classes = Rectified().eval(), torch.randn(2, 3, 20, 12), [3, 1]
    given = seen_inputs(model)
    found = SmoothGradCAMPlusPlus(model, "early", samples=4, noise=0.3)(inputs, classes).raw
    copies = [one for one in given if not torch.equal(one, inputs)]
    assert len(copies) == 4
    activation = full_autograd(model, "early", inputs, classes)[0].double().numpy()
    gradients = [full_autograd(model, "early", copy, classes)[1].double().numpy() for copy in copies]
    d1, d2, d3 = (np.mean([gradient**power for gradient in gradients], axis=0) for power in (1, 2, 3))
    wanted = np.zeros((2, 10, 6))
    for n in range(2):
        for k in range(6):
            weight, total = 0.0, activation[n, k].sum()
            for i in range(10):
                for j in range(6):
                    below = 2 * d2[n, k, i, j] + total * d3[n, k, i, j]
                    if below != 0:
                        weight += d2[n, k, i, j] / below * max(d1[n, k, i, j], 0.0)
            wanted[n] += weight * activation[n, k]
    np.testing.assert_allclose(found.numpy(), wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


def test_the_noise_is_a_part_of_each_pictures_own_range_and_the_same_every_time() -> None:
    model, inputs = Rectified().eval(), torch.rand(2, 3, 40, 40) * torch.tensor([1.0, 10.0]).view(2, 1, 1, 1)
    given = seen_inputs(model)
    engine = SmoothGradCAMPlusPlus(model, "early", samples=5, noise=0.2, seed=7)
    first = engine(inputs, 0).raw
    noise = torch.stack([one - inputs for one in given if not torch.equal(one, inputs)])
    ranges = inputs.flatten(1).amax(1) - inputs.flatten(1).amin(1)
    for row in range(2):
        assert noise[:, row].std() == pytest.approx(0.2 * float(ranges[row]), rel=0.02)
        assert abs(noise[:, row].mean()) < 0.01 * float(ranges[row])
    assert not torch.equal(noise[0], noise[1])
    assert torch.equal(engine(inputs, 0).raw, first)
    other = SmoothGradCAMPlusPlus(model, "early", samples=5, noise=0.2, seed=8)
    assert not torch.equal(other(inputs, 0).raw, first)


def test_noisy_copies_are_asked_for_the_class_of_the_picture_itself() -> None:
    model, inputs = Rectified().eval(), torch.randn(3, 3, 16, 16)
    top = model(inputs).argmax(1).tolist()
    engine = SmoothGradCAMPlusPlus(model, "late", samples=6, noise=5.0)  # enough to change the top class
    found = engine(inputs)
    assert found.targets.tolist() == top
    assert torch.equal(found.raw, engine(inputs, top).raw)


def test_progress_counts_the_copies_and_a_stop_is_heeded() -> None:
    model, inputs = Rectified().eval(), torch.randn(2, 3, 16, 16)
    seen: list[tuple[int, int]] = []
    engine = SmoothGradCAMPlusPlus(model, "late", samples=3)
    engine(inputs, 0, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(2, 8), (4, 8), (6, 8), (8, 8)]
    with pytest.raises(StoppedError):
        engine(inputs, 0, cancel=lambda: len(seen) > 3)


def test_random_weights_are_uniform_from_minus_one_to_one() -> None:
    """Read off a layer whose channels are one place each."""

    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.places = nn.Identity()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.places(torch.eye(4096, device=x.device).view(1, 4096, 64, 64)).mean((2, 3))

    weights = RandomCAM(Wide(), "places")(torch.rand(1, 3, 64, 64), 0).raw.flatten()
    assert weights.min() < -0.99
    assert weights.max() > 0.99
    assert weights.abs().max() <= 1
    assert abs(weights.mean()) < 0.03
    assert weights.var() == pytest.approx(1 / 3, rel=0.05)


def test_random_maps_differ_by_picture_class_layer_and_seed_and_by_nothing_else() -> None:
    model, inputs = Rectified().eval(), torch.randn(1, 3, 16, 16)
    pair = torch.cat([inputs, inputs * 1.001])
    engine = RandomCAM(model, "late")
    first = engine(inputs, 1).raw[0]
    assert torch.equal(RandomCAM(model, "late")(inputs, 1).raw[0], first)
    torch.testing.assert_close(engine(pair.flip(0), [[2, 1]] * 2).raw[1, 1], first)
    others = (engine(pair, 1).raw[1], engine(inputs, 2).raw[0], RandomCAM(model, "late", seed=1)(inputs, 1).raw[0])
    for other in others:
        assert (other - first).abs().max() > 0.1 * first.abs().max()
