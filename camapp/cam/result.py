"""CamResult: the maps of one call, with everything needed to judge them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch.nn import functional as F

from camapp.errors import UsageError

# A map whose range is a rounding error of its own size shows nothing.
FLAT = 1e-6

Normalize = Literal["minmax", "max", "shared"]
NORMALIZE: tuple[Normalize | None, ...] = ("minmax", "max", "shared", None)
Sign = Literal["positive", "negative", "both"]
SIGNS: tuple[Sign, ...] = ("positive", "negative", "both")

# In reasons, of methods that look at no layer.
_NETWORK = "the network"

_INTERPOLATION = {1: "linear", 2: "bilinear", 3: "trilinear"}


@dataclass(frozen=True, eq=False)
class CamResult:
    """Maps of B pictures. With several targets a picture, every field but ``logits`` has an axis of K after that of B.

    Args:
        maps: (B, *size) or (B, K, *size) float32 at the input's size, such as (B, H, W); in [0, 1] unless asked
            otherwise (``sign="both"``: in [-1, 1]; ``normalize=None``: the method's own values); 0 everywhere for a
            blank map.
        raw: (B, h, w) or (B, K, h, w) float32, the method's own signed values at the layer's size; of several layers
            their fused map, at the input's size.
        scores: (B,) or (B, K) float32, the score of each target.
        targets: (B,) or (B, K) int64, the class explained; -1 for a target that is no class.
        target_names: what was explained, in words; a list of B, or of B lists of K.
        reasons: why a map is blank, or None; a list of B, or of B lists of K.
        logits: (B, classes) float32; of a model that returns no class scores (B, 0).
        layer: the layer explained; several joined by " + "; "" for a method that looks at no layer.
        method: the method's name.
        notes: what a user should know about all of them.
    """

    maps: torch.Tensor
    raw: torch.Tensor
    scores: torch.Tensor
    targets: torch.Tensor
    target_names: list[str] | list[list[str]]
    reasons: list[str | None] | list[list[str | None]]
    logits: torch.Tensor
    layer: str
    method: str
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.maps)

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.maps.shape))
        named = self.target_names if (self.targets < 0).any() else f"{self.targets.tolist()}"
        where = f' at "{self.layer}"' if self.layer else ""
        return f"CamResult({shape} {self.method} maps{where}, targets={named})"


def normalised_maps(
    raw: torch.Tensor, size: tuple[int, ...], sign: Sign = "positive", normalize: Normalize | None = "minmax"
) -> tuple[torch.Tensor, torch.Tensor]:
    """Signed values of a layer's size as maps of the input's size.

    Args:
        raw: (N, *grid) signed values of 1, 2 or 3 dimensions.
        size: the input's size.
        sign: "positive" for what supports the target, "negative" for what speaks against it (the counterfactual map:
            of the negated values), "both" for signed maps.
        normalize: "minmax" stretches each map to [0, 1] (signed ones to a largest magnitude of 1, zero staying zero),
            "max" divides each by its largest magnitude, "shared" all by the largest of all, None leaves the values.

    Returns:
        The maps (N, *size), all zero where one is flat or not finite; and which show anything, (N,) bool.
    """
    if sign != "both":
        raw = (raw if sign == "positive" else -raw).relu()
    resized = resize(raw, size)
    low, high = _ends(resized)
    shows = high - low > FLAT * torch.maximum(high, -low)
    magnitude = torch.maximum(high, -low)
    if normalize == "minmax" and sign != "both":
        scaled = (resized - low) / torch.where(shows, high - low, 1.0)
    elif normalize is None:
        scaled = resized
    else:
        if normalize == "shared" and shows.any():
            magnitude = magnitude[shows].max().expand_as(magnitude)
        scaled = resized / torch.where(shows, magnitude, 1.0)
    return torch.where(shows, scaled, 0.0), shows.flatten()


def resize(maps: torch.Tensor, size: tuple[int, ...]) -> torch.Tensor:
    """Maps (N, *grid) at another size (N, *size), linearly in every dimension, by the places of the cells' centres."""
    # A map larger than the input is averaged, or points of evidence would fall between the samples.
    shrinks = len(size) == 2 and any(have > want for have, want in zip(maps.shape[1:], size, strict=True))
    mode = _INTERPOLATION[len(size)]
    return F.interpolate(maps[:, None], size=size, mode=mode, align_corners=False, antialias=shrinks)[:, 0]


def fused(maps: list[torch.Tensor], fuse: str) -> torch.Tensor:
    """Several maps of one size (N, *size) as one: their mean, maximum, product or geometric mean."""
    stacked = torch.stack(maps)
    if fuse == "mean":
        return stacked.mean(0)
    if fuse == "max":
        return stacked.amax(0)
    product = stacked.prod(0)
    if fuse == "product":
        return product
    zero = product <= 0  # where a root's slope is infinite, which would make gradients NaN
    return torch.where(zero, 0.0, torch.where(zero, 1.0, product) ** (1 / len(maps)))


def checked_look(sign: str, normalize: str | None) -> None:
    """Raise a UsageError for a sign or a normalisation that there is not."""
    if sign not in SIGNS:
        raise UsageError(f"sign={sign!r}; use one of {', '.join(SIGNS)}.")
    if normalize not in NORMALIZE:
        raise UsageError(f"normalize={normalize!r}; use one of {', '.join(map(str, NORMALIZE))}.")


def blank_reasons(
    raw: torch.Tensor, shows: torch.Tensor, reached: torch.Tensor, layer: str, sign: Sign = "positive"
) -> list[str | None]:
    """Why each of N maps is blank, or None where it is not.

    Args:
        raw: (N, *grid) signed values.
        shows: (N,) bool, whether the normalised map shows anything.
        reached: (N,) bool, whether any gradient reaches the map.
        layer: the layer's name, for the text; "" where the method looks at none.
        sign: as for ``normalised_maps``.
    """
    finite = raw.isfinite().flatten(1).all(1).tolist()
    lowest, highest = _ends(raw)
    facts = zip(
        finite, shows.tolist(), reached.tolist(), lowest.flatten().tolist(), highest.flatten().tolist(), strict=True
    )
    where = f'"{layer}"' if layer else _NETWORK
    return [_blank_reason(*each, where, sign) for each in facts]


def _blank_reason(
    finite: bool, shows: bool, reached: bool, lowest: float, highest: float, where: str, sign: Sign
) -> str | None:
    if not finite:
        return f"not finite: activations or gradients at {where} hold NaN or infinity; look at the input and weights"
    if shows:
        return None
    if not reached and where == _NETWORK:
        return "no gradient: the score does not depend on the picture; choose another class or target"
    if not reached:
        return f"no gradient: the score does not depend on this map of {where}; choose an earlier layer"
    if lowest == highest == 0:
        return f"no activation: {where} is zero wherever the gradient is not; choose another layer"
    if sign == "positive" and highest <= 0:
        return f"no positive evidence: nothing at {where} supports this class; choose another class or layer"
    if sign == "negative" and lowest >= 0:
        return f"no negative evidence: nothing at {where} speaks against this class; choose another class or layer"
    return f"flat: {where} supports this class equally everywhere; choose an earlier layer"


def _ends(maps: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The least and the greatest value of each map, with axes to spread over it."""
    axes = tuple(range(1, maps.dim()))
    return maps.amin(dim=axes, keepdim=True), maps.amax(dim=axes, keepdim=True)
