"""Each card's pictures reach the model exactly as the library that publishes the weights would send them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from torchvision.models import get_weight

from camapp.backbones.cards import ModelCard, list_cards
from camapp.images.decode import Picture
from camapp.images.geometry import FITS, INTERPOLATIONS, prepare

PICTURES = {
    "landscape": (500, 333),
    "portrait": (213, 401),
    "square": (300, 300),
    "odd": (257, 223),
    "three to one": (751, 250),
    "already at the input's size": (224, 224),
    "already at the resized size": (256, 256),
    "tiny": (7, 5),
    "one pixel": (1, 1),
}


def noise(size: tuple[int, int]) -> Picture:
    """Noise over a slope: every pixel counts, so any other resampling or crop shows."""
    width, height = size
    generator = np.random.default_rng(width * 1000 + height)
    slope = np.linspace(0, 120, width)[None, :, None] + np.linspace(0, 60, height)[:, None, None]
    return Picture((slope + generator.integers(0, 76, (height, width, 3))).astype(np.uint8))


def the_librarys_own_transform(card: ModelCard) -> tuple[Callable[[Image.Image], torch.Tensor], torch.Tensor]:
    """The transform, and the standard deviations it divides by."""
    if card.weights.kind == "torchvision":
        transform = get_weight(card.weights.name).transforms()
        return transform, torch.tensor(transform.std)
    name = card.architecture.removeprefix("timm:") + (f".{card.weights.tag}" if card.weights.kind == "timm" else "")
    config = timm.data.resolve_data_config(pretrained_cfg=timm.get_pretrained_cfg(name).to_dict())
    return timm.data.create_transform(**config, is_training=False), torch.tensor(config["std"])


@pytest.mark.parametrize("card", list_cards(), ids=lambda card: card.name)
def test_inputs_equal_those_of_the_librarys_own_transform(card: ModelCard) -> None:
    transform, std = the_librarys_own_transform(card)
    for name, size in PICTURES.items():
        picture = noise(size)
        ours, _, _ = prepare(picture, card.preprocessing)
        theirs = transform(Image.fromarray(picture.rgb))
        assert ours.shape[1:] == theirs.shape, name
        difference = (ours[0] - theirs).abs() * std.view(3, 1, 1)  # on the 0-1 scale of pixels
        assert difference.max() <= 1e-6, name


def test_the_comparison_would_show_a_wrong_resize_interpolation_mean_or_std() -> None:
    card = next(card for card in list_cards() if card.name == "resnet50")
    transform, std = the_librarys_own_transform(card)
    picture = noise(PICTURES["landscape"])
    theirs = transform(Image.fromarray(picture.rgb))
    for wrong in (
        {"resize": 231},
        {"interpolation": "bicubic"},
        {"mean": (0.5, 0.5, 0.5)},
        {"std": (0.5, 0.5, 0.5)},
    ):
        changed = card.model_copy(update={"input": card.input.model_copy(update=wrong)})
        ours, _, _ = prepare(picture, changed.preprocessing)
        assert ((ours[0] - theirs).abs() * std.view(3, 1, 1)).max() > 1 / 255, wrong


def test_cards_and_geometry_know_the_same_fits_and_interpolations() -> None:
    fields = list_cards()[0].input.__class__.model_json_schema()["properties"]
    assert fields["fit"]["enum"] == list(FITS)
    assert fields["interpolation"]["enum"] == list(INTERPOLATIONS)
