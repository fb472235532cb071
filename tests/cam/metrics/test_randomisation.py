"""The sanity check: maps that depend on the weights change, others do not, and the model is not touched."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
from torch import nn

from camapp.cam.methods.gradcam import GradCAM
from camapp.cam.metrics import cascading_randomisation
from camapp.cam.metrics.randomisation import default_blocks
from camapp.errors import UsageError
from tests.cam.metrics.scenes import Tiny, input_gradient_map
from tests.networks import Plain


def scene() -> tuple[Tiny, torch.Tensor, torch.Tensor]:
    return Tiny(), torch.randn(3, 3, 24, 24), torch.tensor([0, 1, 2])


def test_blocks_go_from_the_logits_to_the_stem_in_the_order_in_which_they_run() -> None:
    model, inputs, _ = scene()
    assert default_blocks(model, inputs) == ["head", "features.3", "features.2", "features.0"]

    class HeadFirst(nn.Module):  # made in another order than it runs
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 2)
            self.body = nn.ModuleList([nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 1)])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.body:
                x = layer(x)
            return self.head(x.mean((2, 3)))

    assert default_blocks(HeadFirst(), inputs) == ["head", "body.1", "body.0"]
    assert default_blocks(nn.Sequential(HeadFirst()), inputs) == ["0.head", "0.body.1", "0.body.0"]


def test_the_model_the_random_numbers_and_the_hooks_are_as_before() -> None:
    model, inputs, targets = scene()
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    cascading_randomisation(model, GradCAM, inputs, targets)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_a_batch_norm_loses_its_running_statistics_too() -> None:
    model, seen = Plain().eval(), []
    with torch.no_grad():
        model.norm.running_mean.fill_(3)
        model.norm.running_var.fill_(7)

    def watch(given: nn.Module) -> GradCAM:
        seen.append(copy.deepcopy(given.state_dict()))
        return GradCAM(given, "last")

    cascading_randomisation(model, watch, torch.randn(1, 3, 32, 32), torch.tensor([0]), blocks=["norm"])
    assert [step["norm.running_mean"].unique().tolist() for step in seen] == [[3], [0]]
    assert [step["norm.running_var"].unique().tolist() for step in seen] == [[7], [1]]


def test_each_step_randomises_one_block_more_and_keeps_the_rest() -> None:
    model, inputs, targets = scene()
    seen: list[dict[str, torch.Tensor]] = []

    def watch(given: nn.Module) -> GradCAM:
        seen.append(copy.deepcopy(given.state_dict()))
        return GradCAM(given)

    result = cascading_randomisation(model, watch, inputs, targets, blocks=["head", "features.3"])
    assert result.blocks == ("head", "features.3")
    changed = [{name for name in seen[0] if not torch.equal(seen[0][name], step[name])} for step in seen]
    assert changed == [
        set(),
        {"head.weight", "head.bias"},
        {"head.weight", "head.bias", "features.3.weight", "features.3.bias"},
    ]


def test_maps_that_show_the_model_change_and_maps_that_show_the_picture_do_not() -> None:
    model, inputs, targets = scene()
    picture = cascading_randomisation(model, lambda given: lambda x, t: x[:, 0].sigmoid(), inputs, targets)
    for measure in (picture.spearman, picture.absolute_spearman, picture.ssim, picture.hog):
        assert measure.shape == (4, 3)
        torch.testing.assert_close(measure, torch.ones(4, 3))
    gradient = cascading_randomisation(model, input_gradient_map, inputs, targets)
    last = gradient.means()[-1]
    assert last["block"] == "features.0"
    assert all(last[name] < 0.8 for name in ("spearman", "ssim", "hog"))


def test_signed_maps_of_the_opposite_sign_are_alike_in_absolute_value_only() -> None:
    """The head's weights turned round turn a raw Grad-CAM map round."""
    model, inputs, targets = scene()

    class Turning(nn.Linear):
        def reset_parameters(self) -> None:
            if hasattr(self, "trained"):
                with torch.no_grad():
                    self.weight.neg_()
            else:
                super().reset_parameters()
                self.trained = True

    model.head = Turning(6, 4)
    result = cascading_randomisation(model, partial(GradCAM, layer="features"), inputs, targets, blocks=["head"])
    torch.testing.assert_close(result.spearman, -torch.ones(1, 3))
    torch.testing.assert_close(result.absolute_spearman, torch.ones(1, 3))


def test_parameters_without_a_reset_are_drawn_anew_with_their_own_spread() -> None:
    class Scaled(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.scale = _Scale()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(self.scale(x))

    model = Scaled()
    drawn: list[torch.Tensor] = []

    def watch(given: nn.Module) -> object:
        drawn.append(given.scale.values.detach().clone())
        return lambda x, t: x[:, 0].sigmoid()

    inputs = torch.randn(1, 3, 20, 20)
    cascading_randomisation(model, watch, inputs, torch.tensor([0]), blocks=["scale"])
    assert not torch.equal(*drawn)
    assert float(drawn[1].mean()) == pytest.approx(5, abs=0.5)
    assert float(drawn[1].std()) == pytest.approx(2, abs=0.3)


class _Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.values = nn.Parameter(5 + 2 * torch.randn(20, 20))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.values


def test_the_seed_decides() -> None:
    model, inputs, targets = scene()
    first, again, other = (
        cascading_randomisation(model, GradCAM, inputs, targets, blocks=["head"], seed=seed) for seed in (0, 0, 1)
    )
    torch.testing.assert_close(first.spearman, again.spearman, rtol=0, atol=0, equal_nan=True)
    assert not torch.equal(first.spearman, other.spearman)


def test_blocks_that_cannot_be_randomised_are_named() -> None:
    model, inputs, targets = scene()
    with pytest.raises(UsageError, match=r'"heads".*Did you mean head'):
        cascading_randomisation(model, GradCAM, inputs, targets, blocks=["heads"])
    with pytest.raises(UsageError, match=r'"features.1" has no parameters'):
        cascading_randomisation(model, GradCAM, inputs, targets, blocks=["features.1"])
    with pytest.raises(UsageError, match="gave list"):
        cascading_randomisation(model, lambda given: lambda x, t: [x], inputs, targets)
