"""Your own network as a LoadedModel: with how it wants its pictures, and the names of its classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import ValidationError
from torch import nn

from camapp.backbones.cards import InputSection, LabelsSection, ModelCard
from camapp.backbones.load import LoadedModel
from camapp.backbones.weights import Weights
from camapp.errors import UsageError
from camapp.hooks.as_found import as_found
from camapp.hooks.layers import find_layer, unwrap
from camapp.images.geometry import Fit

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def wrap_model(
    module: nn.Module,
    *,
    size: int | tuple[int, int] = 224,
    resize: int | None = None,
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos"] = "bilinear",
    mean: tuple[float, float, float] = IMAGENET_MEAN,
    std: tuple[float, float, float] = IMAGENET_STD,
    fit: Fit = "crop",
    labels: Sequence[str] | None = None,
    layer: str | nn.Module | None = None,
    name: str | None = None,
) -> LoadedModel:
    """Tell camapp how your own network wants its pictures, so that ``camapp.explain`` can lay its maps over them.

    Args:
        module: maps (B, 3, h, w) to class scores (B, classes). It is used as it is, and left as it is found.
        size: the input's side, or height and width, in pixels.
        resize: the short side before the centre crop, in pixels; by default the input's longer side.
        interpolation: how pictures are resized.
        mean: subtracted from each channel on the 0-1 scale; ImageNet's by default.
        std: each channel is divided by it, on the 0-1 scale; ImageNet's by default.
        fit: "crop", "letterbox" or "stretch".
        labels: the name of each class, by index; "class 0", "class 1" and so on by default.
        layer: the layer to explain by default, a name or a module; found by a dry run if not given.
        name: what to call the network; its class by default.

    Raises:
        UsageError: preprocessing that cannot be meant, or labels that do not fit the scores.
        LayerError, ModelError: as for ``camapp.GradCAM``.

    Example:
        >>> mine = camapp.wrap_model(network, size=128, labels=["cat", "dog"])
        >>> camapp.explain(mine, "pet.jpg", targets="dog").overlay(0)
    """
    network = unwrap(module)
    name = name or type(network).__name__
    try:
        section = InputSection.model_validate(
            {"size": size, "resize": resize, "interpolation": interpolation, "mean": mean, "std": std, "fit": fit}
        )
    except ValidationError as error:
        faults = "; ".join(f"{fault['loc'][0]}={fault['input']!r}: {fault['msg']}" for fault in error.errors())
        raise UsageError(f"The preprocessing of {name} cannot be meant: {faults}.") from error
    device = next((parameter.device for parameter in network.parameters()), torch.device("cpu"))
    card = ModelCard.model_construct(
        name=name,
        title=name,
        summary="a network of your own",
        architecture="module",
        licence="",
        layer=None if layer is None else find_layer(network, layer).key,
        parameters=sum(parameter.numel() for parameter in network.parameters()),
        weights=None,
        input=section,
        labels=LabelsSection.model_construct(count=0 if labels is None else len(labels)),
    )
    loaded = LoadedModel(network, card, tuple(labels or ()), device, Weights("the network as it was given"))
    count = _count_classes(loaded)
    if labels is not None and len(labels) != count:
        raise UsageError(f"{len(labels)} labels for {name}, which gives {count} class scores.")
    named = tuple(labels) if labels is not None else tuple(f"class {index}" for index in range(count))
    return LoadedModel(network, card, named, device, loaded.weights)


def _count_classes(model: LoadedModel) -> int:
    dtype = next((p.dtype for p in model.module.parameters() if p.is_floating_point()), torch.float32)
    blank = torch.zeros(1, 3, *model.card.input.size, device=model.device, dtype=dtype)
    with model.named_failures(), as_found(model.module), torch.no_grad():
        output = model.module(blank)
    scores = getattr(output, "logits", output)
    if not isinstance(scores, torch.Tensor) or scores.dim() != 2:
        what = tuple(scores.shape) if isinstance(scores, torch.Tensor) else type(scores).__name__
        raise UsageError(f"{model.name} gives {what}; needed are class scores of shape (batch, classes).")
    return scores.shape[1]
