"""Evidence: what a method found, as one map for each target, and why a map of it is blank."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from camapp.backbones.recommend import recommended_layer
from camapp.cam.passes import Passes
from camapp.cam.result import Sign, fused, normalised_maps
from camapp.cam.shot import Shot
from camapp.errors import LayerError

# What speaks for a target, and what against it.
SIDES: tuple[Sign, ...] = ("positive", "negative")

FUSES = ("mean", "max", "product", "geometric")


@dataclass(frozen=True)
class Evidence:
    """What a method found about N = B * K targets, before anything is normalised; a picture's targets lie together.

    Args:
        raws: by layer, or by part where a method makes several maps of one, signed values (N, *grid); of several, each
            is stretched to [0, 1] at the input's size, then all are fused.
        reached: by layer or part, which of the N maps any gradient reaches, (N,) bool; no entry where none was needed.
        shot: the pass that it came from, for what was explained and the scores.
        notes: what a user should know.
        against: as ``raws``, where what speaks against the target is told by other maps; their negative part counts.
            None where ``raws`` tell both.
    """

    raws: dict[str, torch.Tensor]
    reached: dict[str, torch.Tensor]
    shot: Shot
    notes: tuple[str, ...] = ()
    against: dict[str, torch.Tensor] | None = None

    def one_map(self, size: tuple[int, ...], sign: Sign, fuse: str) -> tuple[torch.Tensor, torch.Tensor]:
        """One map for each target, (N, *grid), and which of them any gradient reaches, (N,) bool.

        Args:
            size: the input's size, at which several maps are fused.
            sign: as for the methods.
            fuse: one of ``FUSES``.
        """
        first = next(iter(self.raws.values()))
        everywhere = torch.ones(len(first), dtype=torch.bool, device=first.device)
        reached = torch.stack(list(self.reached.values())).any(0) if self.reached else everywhere
        if sign != "both" or (self.against is None and (len(self.raws) == 1 or fuse == "mean")):
            return self._one_side(size, sign, fuse), reached
        # Each side by itself: the product of two negative values would speak for the target.
        supports, opposes = (self._one_side(size, side, fuse) for side in SIDES)
        return supports.clamp(min=0) + opposes.clamp(max=0), reached

    def _one_side(self, size: tuple[int, ...], sign: Sign, fuse: str) -> torch.Tensor:
        """One map for each target, (N, *grid), of the raw maps that there are for what speaks for or against it."""
        opposes = sign == "negative" and self.against is not None
        raws = list((self.against if opposes else self.raws).values())  # type: ignore[union-attr]
        if len(raws) == 1:
            return raws[0]
        together = fused([normalised_maps(raw, size, sign)[0] for raw in raws], fuse)
        # A map that is not finite anywhere would be blank there, and the fault be lost in the sum.
        finite = torch.stack([raw.isfinite().flatten(1).all(1) for raw in raws]).all(0)
        together = torch.where(finite.view(-1, *[1] * len(size)), together, float("nan"))
        return -together if sign == "negative" else together


def advised_reasons(reasons: list[str | None], passes: Passes, fuse: str) -> list[str | None]:
    """The reasons for blank maps, with the layer that works, or the parameter that is broken, where one is known.

    Args:
        reasons: as ``blank_reasons`` gives them.
        passes: the call's passes.
        fuse: how several layers were fused.
    """
    if len(passes.layers) > 1:
        reasons = [_of_several(reason, " + ".join(passes.layers), fuse) for reason in reasons]
    found = [reason for reason in reasons if reason is not None]
    advice = {}
    if passes.layers and any(reason.startswith("no gradient") for reason in found):
        advice["no gradient"] = _better_layer(passes)
    if any(reason.startswith("not finite") for reason in found):
        advice["not finite"] = _broken_parameter(passes.model)
    return [None if reason is None else reason + advice.get(reason.partition(":")[0], "") for reason in reasons]


def _of_several(reason: str | None, layers: str, fuse: str) -> str | None:
    """Of several layers a map that is zero says nothing of their activations."""
    if reason is None or not reason.startswith("no activation"):
        return reason
    if fuse in ("product", "geometric"):
        return f'nothing in common: no place is lit at all of "{layers}"; name fewer layers, or fuse="mean"'
    return f'no evidence: nothing is lit at any of "{layers}"; choose another class or layer'


def _better_layer(passes: Passes) -> str:
    """The recommended layer, for who chose one that gives no map."""
    try:
        best = recommended_layer(passes.model, passes.inputs)
    except LayerError:
        return ""
    return "" if best in passes.layers else f', such as "{best}"'


def _broken_parameter(model: nn.Module) -> str:
    """The first parameter or buffer that is not finite."""
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.is_floating_point() and not tensor.isfinite().all():
            return f' (the weights are broken: "{name}" holds NaN or infinity)'
    return ""
