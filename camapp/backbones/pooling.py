"""Pooling: what a layer gave for each picture as one vector, by the layout of its output."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import nn
from torch.nn import functional as F

from camapp.backbones.layouts import Layout
from camapp.backbones.tokens import has_class_token
from camapp.errors import LayerError, UsageError

# What is pooled: the maps (B, C, *grid) of a layer.
_Maps: TypeAlias = Callable[[torch.Tensor], torch.Tensor]

POOLS = {
    "auto": "the class token where the network has one, else avg; what has no places stays as it is",
    "none": "the layer's output as it is",
    "flatten": "all values, in one vector",
    "avg": "mean over the places",
    "max": "maximum over the places",
    "avgmax": "half the sum of avg and max",
    "catavgmax": "avg and max, one behind the other",
    "gem(p)": "generalised mean over the places, p = 3 by default",
    "cls": "the class token",
    "patches": "mean over the patch tokens; the same as avg",
    "cls+patches": "the class token and the mean over the patch tokens, one behind the other",
    "spp(1,2,4)": "spatial pyramid: the maxima of 1 x 1, 2 x 2 and 4 x 4 parts of the map, one behind the other",
}

_SMALLEST = 1e-6  # GeM of values at or below zero: Radenović et al. clamp them to this
_CALL = re.compile(r"(?P<name>\w+)\((?P<numbers>[^()]*)\)")


@dataclass(frozen=True)
class Pool:
    """A way to make a vector of what a layer gave for one picture.

    Args:
        name: as ``read_pool`` takes it, with its numbers.
        over_places: from maps (B, C, *grid) to (B, D); None where it is not taken over the places of a map.
        tokens: whether it takes the class token, and joins ``over_places`` behind it where there is one.
        whole: whether it takes the output whatever its layout.
    """

    name: str
    over_places: _Maps | None = None
    tokens: bool = False
    whole: bool = False

    def __call__(self, output: torch.Tensor, layout: Layout | None, layer: str) -> torch.Tensor:
        """The features (B, D) of an output; in float32 inside, of the output's dtype again after.

        Args:
            output: what the layer gave, (B, ...).
            layout: how it lies in the picture; None where its axes are not places.
            layer: its name, for the error.

        Raises:
            LayerError: the output is not of a kind that can be pooled this way.
        """
        if output.dim() == 1:
            output = output[:, None]  # one number a picture
        if self.whole:
            return output.flatten(1) if self.name == "flatten" else output
        if layout is None:
            raise LayerError(
                f'"{layer}" gives an output of shape {tuple(output.shape)}, whose axes are not places of the picture: '
                f'it cannot be pooled by "{self.name}". Take it whole with pool="flatten" or pool="none".'
            )
        parts = []
        if self.tokens:
            if not layout.prefix:
                raise LayerError(
                    f'"{layer}" gives {layout.kind} without a class token, so that pool="{self.name}" has nothing to '
                    'take. Use "avg", "max", "gem" or another pool over the places.'
                )
            parts.append(output[:, 0])
        if self.over_places is not None:
            parts.append(self.over_places(layout.to_maps(output).float()).to(output.dtype))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def read_pool(text: str) -> Pool | None:
    """The pool that a text names; None for ``"auto"``, which ``settled_pool`` settles for each layer.

    Args:
        text: one of ``POOLS``, such as ``"avg"``, ``"gem"``, ``"gem(4.5)"`` or ``"spp(1,2)"``.

    Raises:
        UsageError: it names none.
    """
    call = _CALL.fullmatch(text.replace(" ", "")) if isinstance(text, str) else None
    name, numbers = (call["name"], call["numbers"].split(",")) if call else (text, None)
    try:
        if name == "gem":
            return _gem(*map(float, numbers or ()))
        if name == "spp":
            return _pyramid(*map(int, numbers or (1, 2, 4)))
        if numbers is None and name == "auto":
            return None
        if numbers is None and name in _PLAIN:
            return _PLAIN[name]
    except (TypeError, ValueError) as error:
        raise UsageError(f'pool="{text}" cannot be meant: {error}.') from error
    raise UsageError(f"pool={text!r} is none. Use one of {', '.join(POOLS)}.")


def settled_pool(text: str, model: nn.Module, layer: str, layout: Layout | None, output: torch.Tensor) -> Pool:
    """The pool that a text means for one layer: vectors stay as they are, and ``"auto"`` is settled.

    Args:
        text: as for ``read_pool``.
        model: the network.
        layer: the layer's dotted name.
        layout: how its output lies in the picture; None where its axes are not places.
        output: what it gave.

    Raises:
        UsageError: as ``read_pool``.
        LayerError: a class token is asked for, and what lies in front of the patches is none.
    """
    pool = read_pool(text)
    if output.dim() < 3:
        return _PLAIN["none"]
    if pool is None:
        has_token = layout is not None and layout.prefix > 0 and has_class_token(model, layer)
        return _PLAIN["none" if layout is None else "cls" if has_token else "avg"]
    if pool.tokens and layout is not None and layout.prefix and not has_class_token(model, layer):
        raise LayerError(
            f'The tokens in front of the patches of "{layer}" are registers, without a class token among them, so that '
            f'pool="{pool.name}" has nothing to take. Use "avg" or another pool over the places.'
        )
    return pool


def _gem(p: float = 3.0) -> Pool:
    """Generalised mean: (mean of x^p) ^ (1/p), of x clamped at 1e-6 from below.

    Source: Radenović et al., "Fine-tuning CNN Image Retrieval with No Human Annotation", TPAMI 2019, section 3.2.
    """
    if not 0 < p < float("inf"):
        raise ValueError(f"p = {p:g} is no positive number")

    def over_places(maps: torch.Tensor) -> torch.Tensor:
        flat = maps.flatten(2).clamp_min(_SMALLEST)
        highest = flat.amax(2, keepdim=True)  # divided out first: a high power of a large number overflows
        return (flat / highest).pow(p).mean(2).pow(1 / p) * highest[..., 0]

    return Pool(f"gem({p:g})", over_places)


def _pyramid(*sides: int) -> Pool:
    """Maxima over the parts of ever finer divisions of the map.

    Source: He et al., "Spatial Pyramid Pooling in Deep Convolutional Networks for Visual Recognition", ECCV 2014,
    section 2.2.
    """
    if not sides or min(sides) < 1 or max(sides) > 64:
        raise ValueError("its numbers are the divisions along each axis, from 1 to 64")
    pools: dict[int, Callable[..., torch.Tensor]] = {
        3: F.adaptive_max_pool1d,
        4: F.adaptive_max_pool2d,
        5: F.adaptive_max_pool3d,
    }

    def over_places(maps: torch.Tensor) -> torch.Tensor:
        return torch.cat([pools[maps.dim()](maps, side).flatten(1) for side in sides], dim=1)

    return Pool(f"spp({','.join(map(str, sides))})", over_places)


def _mean(maps: torch.Tensor) -> torch.Tensor:
    return maps.flatten(2).mean(2)


def _maximum(maps: torch.Tensor) -> torch.Tensor:
    return maps.flatten(2).amax(2)


_PLAIN = {
    "none": Pool("none", whole=True),
    "flatten": Pool("flatten", whole=True),
    "avg": Pool("avg", _mean),
    "max": Pool("max", _maximum),
    "avgmax": Pool("avgmax", lambda maps: (_mean(maps) + _maximum(maps)) / 2),
    "catavgmax": Pool("catavgmax", lambda maps: torch.cat([_mean(maps), _maximum(maps)], dim=1)),
    "cls": Pool("cls", tokens=True),
    "patches": Pool("patches", _mean),
    "cls+patches": Pool("cls+patches", _mean, tokens=True),
}
