"""channel_maps: what plain hooks and plain autograd give, ranked as a hand ranks it, in every layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import timm
import torch
from torch import nn

import camapp
from camapp.backbones.load import LoadedModel
from camapp.channels import channel_maps
from camapp.errors import DecodeError, LayerError, TargetError, UsageError
from camapp.images.decode import Picture, decode
from camapp.resources import resource_folder
from tests.networks import Reused

CAT = resource_folder("assets") / "chelsea.jpg"


@pytest.fixture(scope="module")
def backbone() -> LoadedModel:
    return camapp.load_model("efficientnet_lite0", device="cpu")


class Known(nn.Module):
    """Channels that a hand can compute of a picture of ones: 1x, -2x, 0, and a head that likes the second."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv2d(3, 3, 1, bias=False)
        self.head = nn.Linear(3, 2, bias=False)
        with torch.no_grad():
            self.body.weight.zero_()
            self.body.weight[0, 0], self.body.weight[1, 0] = 1.0, -2.0
            self.head.weight.copy_(torch.tensor([[1.0, -3.0, 5.0], [2.0, 0.0, 0.0]]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x).mean((2, 3)))


def wrapped(network: nn.Module, **options: Any) -> LoadedModel:
    plain = {"size": 8, "mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0), "labels": ["cat", "<b>dog</b>"]}
    return camapp.wrap_model(network, **{**plain, **options})


def white(height: int = 8, width: int = 8) -> Picture:
    return Picture.from_array(np.full((height, width, 3), 255, np.uint8))


def noise(side: int) -> Picture:
    return Picture.from_array(np.random.default_rng(0).integers(0, 256, (side, side, 3), np.uint8))


def by_hooks(model: LoadedModel, layer: str, picture: Picture, target: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A layer's output and its gradient, by torch alone."""
    taken: list[torch.Tensor] = []
    handle = model.module.get_submodule(layer).register_forward_hook(lambda _m, _i, output: taken.append(output))
    score = model.module(model.prepare(picture)[0])[0, target]
    handle.remove()
    (gradient,) = torch.autograd.grad(score, taken)
    return taken[0].detach(), gradient


def test_rankings_are_those_computed_by_hand() -> None:
    model = wrapped(Known())
    mean = channel_maps(model, white(), "body")
    assert mean.scores.tolist() == [1.0, -2.0, 0.0]
    assert mean.top() == (0, 2, 1)
    largest = channel_maps(model, white(), "body", ranking="max")
    assert largest.scores.tolist() == [1.0, -2.0, 0.0]
    first = channel_maps(model, white(), "body", ranking="gradient")  # the first class scores 1 + 6 = 7
    np.testing.assert_allclose(first.scores, [1.0, 6.0, 0.0], rtol=1e-6)
    assert (first.target, first.score, first.top(2)) == ("cat", pytest.approx(7.0), (1, 0))
    second = channel_maps(model, white(), "body", ranking="gradient", target="<b>dog</b>")
    np.testing.assert_allclose(second.scores, [2.0, 0.0, 0.0], rtol=1e-6)


def test_values_and_gradients_of_the_default_model_are_those_of_plain_hooks(backbone: LoadedModel) -> None:
    picture = decode(CAT)
    maps = channel_maps(backbone, picture, "blocks.4.2.conv_pwl", ranking="gradient", target=281)
    output, gradient = by_hooks(backbone, "blocks.4.2.conv_pwl", picture, 281)
    np.testing.assert_allclose(maps.values, output[0].numpy(), atol=1e-4)
    assert maps.gradients is not None
    np.testing.assert_allclose(maps.gradients, gradient[0].numpy(), atol=1e-5)
    expected = (output * gradient).sum((2, 3))[0]
    np.testing.assert_allclose(maps.scores, expected.numpy(), atol=1e-4)
    assert maps.top(5) == tuple(expected.argsort(descending=True)[:5].tolist())
    assert (maps.layer, maps.kind, maps.target) == ("blocks.4.2.conv_pwl", "Conv2d", "tabby")


def test_the_recommended_layer_is_taken_by_default(backbone: LoadedModel) -> None:
    maps = channel_maps(backbone, CAT)
    assert (maps.layer, maps.values.shape) == ("bn2", (1280, 7, 7))
    assert maps.gradients is None


def test_tokens_of_a_transformer_lie_on_their_grid_without_the_prefix() -> None:
    torch.manual_seed(0)
    network = timm.models.VisionTransformer(
        img_size=32, patch_size=8, embed_dim=12, depth=2, num_heads=2, num_classes=2
    ).eval()
    model, picture = wrapped(network, size=32), noise(32)
    maps = channel_maps(model, picture, "blocks.0", ranking="gradient", target=1)
    output, gradient = by_hooks(model, "blocks.0", picture, 1)
    assert maps.values.shape == (12, 4, 4)
    for channel, row, column in ((0, 0, 0), (5, 2, 3), (11, 3, 1)):
        token = 1 + row * 4 + column
        assert maps.values[channel, row, column] == pytest.approx(float(output[0, token, channel]), abs=1e-5)
    products = (output * gradient)[0, 1:].sum(0)
    np.testing.assert_allclose(maps.scores, products.numpy(), atol=1e-6)


def test_maps_with_channels_last_are_read_as_such() -> None:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 6, 4, stride=4)
            self.norm = nn.LayerNorm(6)
            self.head = nn.Linear(6, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.norm(self.stem(x).permute(0, 2, 3, 1)).mean((1, 2)))

    torch.manual_seed(0)
    model, picture = wrapped(Last(), size=32), noise(32)
    maps = channel_maps(model, picture, "norm")
    output, _ = by_hooks(model, "norm", picture, 0)
    assert maps.values.shape == (6, 8, 8)
    np.testing.assert_allclose(maps.values, output[0].permute(2, 0, 1).numpy(), atol=1e-6)


def test_one_call_of_a_layer_that_runs_several_times_can_be_named() -> None:
    model = wrapped(Reused(), labels=["a", "b", "c"])
    first, last = channel_maps(model, noise(8), "relu@0"), channel_maps(model, noise(8), "relu")
    assert (first.layer, last.layer) == ("relu@0", "relu")
    assert not np.array_equal(first.values, last.values)
    np.testing.assert_array_equal(channel_maps(model, noise(8), "relu@2").values, last.values)


def test_the_model_is_left_as_it_was_found() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(256, 2))
    model = wrapped(network)
    network.train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    channel_maps(model, noise(8), "1", ranking="gradient")
    assert network.training
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in network.parameters())
    assert not any(module._forward_hooks for module in network.modules())


def test_frozen_models_and_callers_without_gradients_get_the_same() -> None:
    model = wrapped(Known())
    for parameter in model.module.parameters():
        parameter.requires_grad_(False)
    with torch.inference_mode():
        found = channel_maps(model, white(), "body", ranking="gradient")
    np.testing.assert_allclose(found.scores, [1.0, 6.0, 0.0], rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"layer": "bod"}, LayerError, 'No layer "bod"'),
        ({"layer": "head"}, LayerError, "does not map onto a picture"),
        ({"layer": ""}, LayerError, "No layer"),
        ({"ranking": "<b>best</b>"}, UsageError, "use one of mean, max, gradient"),
        ({"target": 1}, UsageError, "Leave one out"),
        ({"target": "bird", "ranking": "gradient"}, TargetError, "bird"),
        ({"target": 2, "ranking": "gradient"}, TargetError, "2"),
        ({"fit": "squeeze"}, UsageError, "squeeze"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_words(options: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        channel_maps(wrapped(Known()), white(), **{"layer": "body", **options})


def test_a_layer_that_never_runs_and_a_file_that_is_no_picture_are_refused(tmp_path: Any) -> None:
    model = wrapped(Reused(), labels=["a", "b", "c"])
    for ranking in ("mean", "gradient"):
        with pytest.raises(LayerError, match="never called"):
            channel_maps(model, white(), "unused", ranking=ranking)
    (tmp_path / "a.png").write_text("words")
    with pytest.raises(DecodeError):
        channel_maps(model, tmp_path / "a.png", "relu")
    with pytest.raises(UsageError, match="needed is a card's name or a LoadedModel"):
        channel_maps(nn.ReLU(), white())  # type: ignore[arg-type]
