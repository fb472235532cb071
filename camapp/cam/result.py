"""CamResult: the maps of one call, with everything needed to judge them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional as F

# A map whose range is a rounding error of its own size shows nothing.
FLAT = 1e-6


@dataclass(frozen=True, eq=False)
class CamResult:
    """Maps of B pictures. With several targets a picture, every field but ``logits`` has an axis of K after that of B.

    Args:
        maps: (B, H, W) or (B, K, H, W) float32 in [0, 1], at the input's size; 0 everywhere for a blank map.
        raw: (B, h, w) or (B, K, h, w) float32, the method's own signed values at the layer's size.
        scores: (B,) or (B, K) float32, the logit of each target.
        targets: (B,) or (B, K) int64, the class explained.
        reasons: why a map is blank, or None; a list of B, or of B lists of K.
        logits: (B, classes) float32.
        layer: the layer explained.
        method: the method's name.
        notes: what a user should know about all of them.
    """

    maps: torch.Tensor
    raw: torch.Tensor
    scores: torch.Tensor
    targets: torch.Tensor
    reasons: list[str | None] | list[list[str | None]]
    logits: torch.Tensor
    layer: str
    method: str
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.maps)

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.maps.shape))
        return f'CamResult({shape} {self.method} maps at "{self.layer}", targets={self.targets.tolist()})'


def normalised_maps(raw: torch.Tensor, size: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Positive evidence only, resized bilinearly, each map stretched to [0, 1].

    Args:
        raw: (N, h, w) signed values.
        size: height and width of the input.

    Returns:
        The maps (N, H, W), all zero where one is flat or not finite; and which show anything, (N,) bool.
    """
    positive = raw.relu()[:, None]
    # A map larger than the input is averaged, or points of evidence would fall between the samples.
    shrinks = raw.shape[1] > size[0] or raw.shape[2] > size[1]
    resized = F.interpolate(positive, size=size, mode="bilinear", align_corners=False, antialias=shrinks)[:, 0]
    low = resized.amin(dim=(1, 2), keepdim=True)
    high = resized.amax(dim=(1, 2), keepdim=True)
    shows = high - low > FLAT * high
    return torch.where(shows, (resized - low) / torch.where(shows, high - low, 1.0), 0.0), shows.flatten()


def blank_reasons(raw: torch.Tensor, shows: torch.Tensor, reached: torch.Tensor, layer: str) -> list[str | None]:
    """Why each of N maps is blank, or None where it is not.

    Args:
        raw: (N, h, w) signed values.
        shows: (N,) bool, whether the normalised map shows anything.
        reached: (N,) bool, whether any gradient reaches the map.
        layer: the layer's name, for the text.
    """
    finite = raw.isfinite().flatten(1).all(1).tolist()
    lowest, highest = raw.flatten(1).amin(1).tolist(), raw.flatten(1).amax(1).tolist()
    facts = zip(finite, shows.tolist(), reached.tolist(), lowest, highest, strict=True)
    return [_blank_reason(*each, layer) for each in facts]


def _blank_reason(finite: bool, shows: bool, reached: bool, lowest: float, highest: float, layer: str) -> str | None:
    if not finite:
        return (
            f'not finite: activations or gradients at "{layer}" hold NaN or infinity; look at the input and the weights'
        )
    if shows:
        return None
    if not reached:
        return f'no gradient: the score does not depend on this map of "{layer}"; choose an earlier layer'
    if lowest == highest == 0:
        return f'no activation: "{layer}" is zero wherever the gradient is not; choose another layer'
    if highest <= 0:
        return f'no positive evidence: nothing at "{layer}" supports this class; choose another class or layer'
    return f'flat: "{layer}" supports this class equally everywhere; choose an earlier layer'
