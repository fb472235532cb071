"""save_channel_grid: what the channels of a layer show of one picture, as a picture."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import torch

from camapp.backbones.layouts import find_layout
from camapp.backbones.load import LoadedModel
from camapp.errors import LayerError, UsageError
from camapp.features.extractor import FeatureExtractor
from camapp.files import write_atomically
from camapp.hooks.layers import module_name
from camapp.images.channels import ChannelGrid, channel_grid
from camapp.images.decode import decode
from camapp.images.geometry import Fit
from camapp.images.render import png_bytes
from camapp.transfer.extraction import opened


def save_channel_grid(
    model: str | Path | LoadedModel,
    picture: str | os.PathLike[str],
    layer: str,
    path: str | os.PathLike[str],
    *,
    scale: Literal["channel", "common"] = "channel",
    fit: Fit | None = None,
    overwrite: bool = False,
) -> ChannelGrid:
    """Paint the channels of a layer's map for one picture, as tiles of one PNG.

    Args:
        model: as for ``extract_features``.
        picture: its path.
        layer: a layer that gives a map or patch tokens.
        path: the PNG.
        scale: ``"channel"``, each channel from its lowest to its highest value, or ``"common"`` for all.
        fit: "crop", "letterbox" or "stretch"; the model card's own way by default.
        overwrite: replace a file of that name.

    Raises:
        UsageError: another ending than .png, a file that is there, or no such scale.
        LayerError: a layer that does not exist or gives no map.
        DecodeError: no readable picture.
    """
    path = Path(path)
    if path.suffix.lower() != ".png":
        raise UsageError(f"{path} does not end in .png, which a grid of channels is.")
    if path.exists() and not overwrite:
        raise UsageError(f"{path} exists. Give another name, or replace it: --overwrite (overwrite=True).")
    loaded = opened(model)
    inputs, _, _ = loaded.prepare(decode(picture), fit)
    features = FeatureExtractor(loaded, layer, "none")(inputs)
    if len(features) != 1:
        raise LayerError(f'"{layer}" means {len(features)} layers ({", ".join(features)}). Name the one to paint.')
    ((name, output),) = features.items()
    shape: torch.Size = output.shape
    layout = find_layout(loaded.module, module_name(features.info[name].layer), shape, inputs.shape)
    grid = channel_grid(layout.to_maps(output)[0], scale=scale)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, png_bytes(grid.pixels))
    return grid
