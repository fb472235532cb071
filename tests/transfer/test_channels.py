"""The channels of a layer as a picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from camapp.errors import LayerError, UsageError
from camapp.features import FeatureExtractor
from camapp.images.channels import channel_grid
from camapp.images.decode import decode
from camapp.loading import load_model
from camapp.transfer.channels import save_channel_grid


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "picture.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (50, 60, 3), np.uint8)).save(path)
    return path


def test_the_png_is_the_grid_of_the_layers_maps(picture: Path, tmp_path: Path) -> None:
    model = load_model(device="cpu")
    grid = save_channel_grid(model, picture, "blocks.1", tmp_path / "new" / "grid.png", scale="common")
    maps = FeatureExtractor(model, "blocks.1", "none")(model.prepare(decode(picture))[0])["blocks.1"][0]
    expected = channel_grid(maps, scale="common")
    assert np.array_equal(np.asarray(Image.open(tmp_path / "new" / "grid.png")), expected.pixels)
    assert grid.channels == expected.channels
    with pytest.raises(UsageError, match="exists"):
        save_channel_grid(model, picture, "blocks.1", tmp_path / "new" / "grid.png")
    with pytest.raises(UsageError, match=r"\.png"):
        save_channel_grid(model, picture, "blocks.1", tmp_path / "grid.jpg")
    with pytest.raises(LayerError):
        save_channel_grid(model, picture, "classifier", tmp_path / "other.png")
    assert not (tmp_path / "other.png").exists()
