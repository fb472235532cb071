"""Similarities of patches: cosines computed by hand in float64, and points that find their patch through the crop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import camapp
from camapp.errors import DecodeError, LayerError, UsageError
from camapp.patches import MOST_ALONG_SIDE, PatchSimilarity, patch_similarity
from camapp.resources import resource_folder

ASSETS = resource_folder("assets")


class Strided(nn.Module):
    """A convolution of stride 4 without padding: each patch sees 4 x 4 pixels and no others."""

    def __init__(self, stride: int = 4, relu: bool = False) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 5, stride, stride)
        self.act = nn.ReLU() if relu else nn.Identity()
        self.head = nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.act(self.stem(x)).mean((2, 3)))


class Tokens(nn.Module):
    """Patch tokens behind a class token, as vision transformers have them."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, 6, 8, 8)
        self.cls_token = nn.Parameter(torch.randn(1, 1, 6))
        self.num_prefix_tokens = 1
        self.patch_size = 8
        self.norm = nn.LayerNorm(6)
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.embed(x).flatten(2).transpose(1, 2)
        tokens = self.norm(torch.cat([self.cls_token.expand(len(x), -1, -1), tokens], 1))
        return self.head(tokens[:, 0])


def wrapped(network: nn.Module, size: tuple[int, int] = (16, 24), **options: Any) -> camapp.LoadedModel:
    return camapp.wrap_model(network, size=size, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4), resize=min(size), **options)


def noise(height: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def known(model: camapp.LoadedModel) -> PatchSimilarity:
    return patch_similarity(model, noise(16, 24), layer="stem")


def cosines_by_hand(features: np.ndarray) -> np.ndarray:
    """Of (N, C) float64, pair by pair."""
    return np.array(
        [[one @ other / (np.linalg.norm(one) * np.linalg.norm(other)) for other in features] for one in features]
    )


def patches_by_hand(network: Strided, pixels: np.ndarray) -> np.ndarray:
    """The convolution written out in float64: (rows x columns, C)."""
    values = (pixels / 255.0 - [0.5, 0.4, 0.3]) / [0.2, 0.3, 0.4]
    weight, bias = (one.detach().double().numpy() for one in (network.stem.weight, network.stem.bias))
    side = weight.shape[-1]
    return np.array(
        [
            [np.sum(kernel * values[y : y + side, x : x + side].transpose(2, 0, 1)) for kernel in weight] + bias
            for y in range(0, pixels.shape[0], side)
            for x in range(0, pixels.shape[1], side)
        ]
    )


def test_cosines_of_two_pictures_are_those_computed_by_hand_in_float64() -> None:
    network = Strided()
    one, other = noise(16, 24, 1), noise(16, 24, 2)
    alike = patch_similarity(wrapped(network), one, other, "stem")
    features = np.concatenate([patches_by_hand(network, one), patches_by_hand(network, other)])
    assert alike.grid == (4, 6)
    np.testing.assert_allclose(alike.cosines, cosines_by_hand(features), atol=2e-6)


def test_a_point_finds_its_own_patch_and_its_row_of_the_matrix() -> None:
    alike = patch_similarity(wrapped(Strided()), noise(16, 24, 1), noise(16, 24, 2), "stem")
    assert alike.patch_at(0, 0) == (0, 0)
    assert alike.patch_at(13.5, 9) == (2, 3)
    assert alike.patch_at(24, 16) == (3, 5)
    own, other = alike.similar_to(13, 9, of=1)
    number = 24 + 2 * 6 + 3
    np.testing.assert_array_equal(own.ravel(), alike.cosines[number, :24])
    np.testing.assert_array_equal(other.ravel(), alike.cosines[number, 24:])
    assert other[2, 3] == pytest.approx(1, abs=1e-6)


def test_points_are_found_through_the_crop_and_back() -> None:
    """The model sees the middle 32 x 32 of a picture of 32 x 64, at half the size."""
    model = camapp.wrap_model(Strided(), size=(16, 16), mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4), resize=16)
    alike = patch_similarity(model, noise(32, 64), layer="stem")
    assert alike.geometries[0].seen == (16, 0, 48, 32)
    assert alike.patch_at(16, 0) == (0, 0)
    assert alike.patch_at(25, 17) == (2, 1)
    assert alike.centre_of(2, 1) == (28, 20)
    assert alike.patch_at(*alike.centre_of(3, 3)) == (3, 3)
    with pytest.raises(UsageError, match=r"does not see \(10, 5\): it sees x from 16 to 48"):
        alike.similar_to(10, 5)
    on_picture = alike.on_picture(alike.similar_to(25, 17)[0])
    assert on_picture.shape == (32, 64)
    assert not on_picture[:, :16].any()
    assert on_picture[20, 28] > 0.8


def test_a_patch_that_comes_twice_is_the_best_match_in_both_pictures() -> None:
    one, other = noise(16, 24, 1), noise(16, 24, 2)
    one[8:12, 16:20] = one[0:4, 4:8]
    other[12:16, 20:24] = one[0:4, 4:8]
    here, there = patch_similarity(wrapped(Strided()), one, other, "stem").best_matches(5, 1)
    assert (here.row, here.column, here.x, here.y) == (2, 4, 18, 10)
    assert (there.picture, there.row, there.column, there.x, there.y) == (1, 3, 5, 22, 14)
    assert here.cosine == pytest.approx(1, abs=1e-6)
    assert there.cosine == pytest.approx(1, abs=1e-6)


def test_class_tokens_are_no_patches() -> None:
    network = Tokens().eval()
    model = wrapped(network, (16, 24))
    alike = patch_similarity(model, noise(16, 24), layer="norm")
    assert alike.grid == (2, 3)
    inputs = model.prepare(camapp.Picture(noise(16, 24)))[0]
    with torch.no_grad():
        embedded = network.norm(network.embed(inputs).flatten(2).transpose(1, 2))[0].double().numpy()
    np.testing.assert_allclose(alike.cosines, cosines_by_hand(embedded), atol=1e-5)


def test_large_maps_are_averaged_into_fewer_patches_and_a_note_says_so() -> None:
    network = Strided(stride=1)
    alike = patch_similarity(wrapped(network, (56, 56)), noise(56, 56), layer="stem")
    assert alike.grid == (MOST_ALONG_SIDE, MOST_ALONG_SIDE)
    assert alike.notes == ('"stem" has 56 x 56 places, averaged into 28 x 28 patches',)
    places = patches_by_hand(network, noise(56, 56)).reshape(28, 2, 28, 2, 5).mean((1, 3)).reshape(-1, 5)
    some = [*range(0, 784, 31)]
    np.testing.assert_allclose(alike.cosines[np.ix_(some, some)], cosines_by_hand(places[some]), atol=1e-5)


def test_a_silent_patch_is_similar_to_nothing_and_a_note_says_so() -> None:
    network = Strided(relu=True)
    nn.init.constant_(network.stem.weight, 1.0)
    nn.init.constant_(network.stem.bias, 0.0)
    pixels = np.full((16, 24, 3), 255, np.uint8)
    pixels[:4, :4] = 0  # below the mean: the ReLU gives nothing
    alike = patch_similarity(wrapped(network), pixels, layer="act")
    assert not alike.cosines[0].any()
    assert alike.cosines[1, 2] == pytest.approx(1)
    assert "1 patch(es) have only features of 0" in alike.notes[0]


def test_no_gradient_is_needed_and_the_model_is_left_as_it_was() -> None:
    network = Strided().train()
    model = wrapped(network)
    mode = network.training
    with torch.inference_mode():
        alike = patch_similarity(model, noise(16, 24), layer="stem")
    assert alike.cosines.shape == (24, 24)
    assert network.training == mode
    assert all(parameter.grad is None for parameter in network.parameters())


def test_the_real_model_finds_an_eye_again_in_the_mirrored_picture() -> None:
    cat = camapp.decode(ASSETS / "chelsea.jpg")
    alike = patch_similarity("efficientnet_lite0", cat, np.ascontiguousarray(cat.rgb[:, ::-1]))
    assert (alike.layer, alike.grid) == ("blocks.5.0.bn1", (14, 14))
    _, match = alike.best_matches(171, 117)
    patch = 19  # pixels of the picture
    assert abs(match.x - (cat.width - 171)) < 1.5 * patch
    assert abs(match.y - 117) < 1.5 * patch
    assert match.cosine > 0.8


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda model: patch_similarity(model, noise(16, 24), layer="stemm"), LayerError, "stemm"),
        (lambda model: patch_similarity(model, noise(16, 24), layer="head"), LayerError, "does not map onto"),
        (lambda model: patch_similarity(model, b"no picture", layer="stem"), DecodeError, ""),
        (lambda model: patch_similarity(model, noise(16, 24), layer="stem").similar_to(-1, 0), UsageError, "outside"),
        (lambda model: patch_similarity(model, noise(16, 24), layer="stem").similar_to(1, 99), UsageError, "24 x 16"),
        (
            lambda model: patch_similarity(model, noise(16, 24), layer="stem").similar_to(1, 1, of=1),
            UsageError,
            "of = 1",
        ),
        (lambda model: patch_similarity(model, noise(16, 24), layer="stem").centre_of(4, 0), UsageError, "row 4"),
        (lambda model: patch_similarity(model.module, noise(16, 24)), UsageError, "wrap_model"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_words(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call(wrapped(Strided()))
