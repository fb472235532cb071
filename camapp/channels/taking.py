"""channel_maps: one forward (and a backward, where gradients rank) for all channels of a layer on one picture."""

from __future__ import annotations

import os

import numpy as np
import torch
from torch import nn

from camapp.backbones.inputs import like_parameters
from camapp.backbones.layouts import find_layout
from camapp.backbones.load import LoadedModel
from camapp.backbones.recommend import recommended_layer
from camapp.cam.passes import Passes
from camapp.cam.shot import Seen
from camapp.cam.targets.plan import One, plan_targets
from camapp.channels.maps import ChannelMaps
from camapp.channels.ranking import Ranking, checked_ranking, rank
from camapp.errors import LayerError, UsageError
from camapp.hooks.as_found import as_found
from camapp.hooks.capture import Capture
from camapp.hooks.layers import Layer, find_layer, unwrap
from camapp.images.decode import Picture, decode
from camapp.images.geometry import Fit
from camapp.loading import load_model


def channel_maps(
    model: str | LoadedModel,
    picture: Picture | str | os.PathLike[str] | bytes,
    layer: str | nn.Module | None = None,
    *,
    ranking: Ranking = "mean",
    target: One | None = None,
    fit: Fit | None = None,
) -> ChannelMaps:
    """Take what every channel of a layer gives for one picture, and rank the channels.

    The model predicts (eval mode) and is left as found.

    Args:
        model: the name of a model card, or a ``LoadedModel``.
        picture: a path, bytes, or a ``Picture``.
        layer: a layer that gives a map or patch tokens, by name (``name@call`` for one call of several) or as a module;
            the model's recommended one by default.
        ranking: "mean" or "max" of the activation, or "gradient": gradient times activation, summed over the map.
        target: whose gradient, where ranked by it: a class by index or name, or a target of ``camapp.cam.targets``; the
            likeliest class by default.
        fit: "crop", "letterbox" or "stretch"; the model card's own way by default.

    Returns:
        All channels, best first by ``order``.

    Raises:
        DecodeError: a file that is no readable picture.
        ModelError, WeightsError: a model that cannot be loaded, or that fails on its own input.
        LayerError: a layer that does not exist, never runs, gives no map, or that the score does not depend on.
        TargetError, UsageError: a class, ranking or fit that there is not; a target without the ranking that needs it.

    Example:
        >>> maps = channel_maps("efficientnet_lite0", "cat.jpg", "blocks.4.2.conv_pwl", ranking="gradient")
        >>> maps.top(3), maps.overlay(maps.top(1)[0])
        >>> maps.save("channels")
    """
    ranking = checked_ranking(ranking)
    loaded = load_model(model) if isinstance(model, str) else model
    if not isinstance(loaded, LoadedModel):
        raise UsageError(
            f"model is a {type(model).__name__}; needed is a card's name or a LoadedModel, such as camapp.wrap_model "
            "makes of any nn.Module."
        )
    if target is not None and ranking != "gradient":
        raise UsageError(f'A target matters only to ranking="gradient", and ranking is "{ranking}". Leave one out.')
    network = unwrap(loaded.module)
    place = None if layer is None else find_layer(network, layer)  # told before a picture is decoded
    opened = picture if isinstance(picture, Picture) else decode(picture)
    inputs, geometry, notes = loaded.prepare(opened, fit)
    batch = like_parameters(inputs, network, keep_graph=False)
    with loaded.named_failures(), as_found(network):
        place = place or find_layer(network, loaded.card.layer or recommended_layer(network, batch))
        if ranking == "gradient":
            activation, gradient, what, score = _with_gradient(loaded, network, batch, place, target)
        else:
            activation, gradient, what, score = _activation(network, batch, place), None, None, None
    if activation.dim() == 0 or len(activation) != 1:
        raise LayerError(
            f'"{place.key}" gives an output of shape {tuple(activation.shape)} for one picture: its first axis is not '
            "the batch. Choose another layer."
        )
    layout = find_layout(network, place.name, activation.shape, batch.shape)
    values = _as_array(layout.to_maps(activation)[0])
    gradients = None if gradient is None else _as_array(layout.to_maps(gradient)[0])
    return ChannelMaps(
        picture=opened,
        model=loaded.name,
        weights={
            "source": loaded.weights.source,
            "sha256": loaded.weights.sha256,
            "random": loaded.weights.random,
        },
        layer=place.key,
        kind=type(place.module).__name__,
        values=values,
        gradients=gradients,
        target=what,
        score=score,
        ranking=ranking,
        scores=rank(values, gradients, ranking),
        geometry=geometry,
        notes=(*opened.notes, *notes),
    )


def _activation(network: nn.Module, batch: torch.Tensor, place: Layer) -> torch.Tensor:
    with Capture(network, [place.key], graph=False) as capture:
        network(batch.clone())  # a model may change its input in place
    return capture[place.key].activation


def _with_gradient(
    loaded: LoadedModel, network: nn.Module, batch: torch.Tensor, place: Layer, target: One | None
) -> tuple[torch.Tensor, torch.Tensor, str, float]:
    """The activation, its gradient, what was scored, and the score."""

    def read(seen: Seen) -> tuple[torch.Tensor, ...]:
        assert seen.gradient is not None, "asked for"
        return seen.activation, seen.gradient

    passes = Passes(network, batch, (place.key,), plan_targets(target, 1, loaded.class_index))
    shot = passes.gradients(read)
    activation, gradient = shot.read[place.key]
    index = int(shot.aims.indices[0, 0])
    what = shot.aims.names[0][0] if index < 0 else loaded.label(index)
    return activation, gradient, what, float(shot.scores[0, 0])


def _as_array(maps: torch.Tensor) -> np.ndarray:
    values: np.ndarray = maps.detach().float().cpu().contiguous().numpy()
    return values
