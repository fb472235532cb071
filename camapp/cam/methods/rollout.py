"""Attention rollout."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import nn

from camapp.backbones.layouts import Layout
from camapp.backbones.load import LoadedModel
from camapp.cam.engine import LayerChoice, Method
from camapp.cam.evidence import Evidence
from camapp.cam.passes import Passes
from camapp.cam.shot import Shot
from camapp.cam.targets.output import How
from camapp.cam.tokens import from_start, token_attention
from camapp.errors import UsageError
from camapp.hooks.attention import Attentions

Heads = Literal["mean", "max", "min"]


class AttentionRollout(Method):
    r"""Attention rollout: how much of each patch reaches the token that is read out, by the attention of all blocks.

    With the attention :math:`A_l` of block :math:`l`, its heads put together, half of each token's content coming
    through the residual connection,

    .. math:: \hat A_l = \tfrac12 (A_l + I), \qquad R = \hat A_n \hat A_{n-1} \cdots \hat A_1 ,

    with rows that sum to one. ``raw`` is the class token's row of :math:`R`, without the prefix tokens; the mean over
    the patches' rows where a model reads those out. It does not depend on the class: the map says what was looked at,
    not what for. Cost: one forward, and the first time one more, of one picture.

    Args:
        model: a vision transformer; as for every method.
        layer: none; it looks at the whole network.
        output: as for every method.
        fuse: as for every method.
        heads: how the heads of a block become one: "mean" as in the paper, "max" or "min".
        discard: the share of a block's smallest attentions that are set to zero before, 0 (none, as in the paper) up to
            but without 1.
        start: the first block, from 0; negative from the end.

    Raises:
        UsageError: an option that there is not.
        LayerError: when called on a network whose attention is not that of one set of patches (CNNs, Swin).

    Source: Abnar and Zuidema, "Quantifying Attention Flow in Transformers", ACL 2020, section 3. Choices of heads and
    discarding are customs of its users.

    Example:
        >>> result = camapp.cam.AttentionRollout(vit)(inputs)
    """

    name = "rollout"
    title = "Attention rollout"
    cost = "one forward"
    selective = True
    takes_layer = False
    class_specific = False

    def __init__(
        self,
        model: nn.Module | LoadedModel,
        layer: LayerChoice = None,
        *,
        output: How = None,
        fuse: str | None = None,
        heads: Heads = "mean",
        discard: float = 0.0,
        start: int = 0,
    ) -> None:
        super().__init__(model, layer, output=output, fuse=fuse)
        if heads not in get_args(Heads):
            raise UsageError(f"heads={heads!r}; use one of {', '.join(get_args(Heads))}.")
        if not 0 <= discard < 1:
            raise UsageError(f"discard={discard!r} is no share of the attentions: 0 up to but without 1.")
        self.heads = heads
        self.discard = discard
        self.start = start

    def evidence(self, passes: Passes) -> Evidence:
        """One forward without a graph."""
        tokens = token_attention(passes.model, passes.inputs, self.title)
        chosen = from_start(len(tokens.trace.calls), self.start, self.title)
        with torch.no_grad(), Attentions(len(passes.inputs)) as attentions:
            output = passes.pick(passes.model(passes.inputs.clone()), len(passes.inputs))
        aims = passes.plan.settle(output)
        shot = Shot({}, aims, aims.scores(output), output)
        with torch.autocast(passes.inputs.device.type, enabled=False):
            rolled = self.roll([attentions.matrices[number].float() for number in chosen])
        reads_class = _reads_class_token(passes.model, tokens.layout)
        row = rolled[:, 0] if reads_class else rolled[:, tokens.layout.prefix :].mean(1)
        raw = tokens.layout.to_maps(row[..., None])[:, 0]
        notes = (
            "attention rollout is the same for every class: what was looked at, not what for",
            "the attention of the class token" if reads_class else "the mean attention of all patches",
            *tokens.notes,
        )
        return Evidence({"": raw.repeat_interleave(passes.plan.per_row, 0)}, {}, shot, notes)

    def roll(self, matrices: list[torch.Tensor]) -> torch.Tensor:
        """The product of the blocks' attentions (B, heads, L, L), the first block's first: (B, L, L)."""
        rolled = torch.eye(matrices[0].shape[-1], device=matrices[0].device, dtype=matrices[0].dtype)
        for matrix in matrices:
            mixed = self._fused(matrix) + torch.eye(matrix.shape[-1], device=matrix.device, dtype=matrix.dtype)
            rolled = mixed / mixed.sum(-1, keepdim=True) @ rolled
        return rolled

    def _fused(self, matrix: torch.Tensor) -> torch.Tensor:
        """The heads as one, the smallest attentions discarded, with rows that sum to one."""
        one = matrix.mean(1) if self.heads == "mean" else getattr(matrix, f"a{self.heads}")(1)
        count = int(one[0].numel() * self.discard)
        if count:
            smallest = one.flatten(1).topk(count, dim=1, largest=False).indices
            one = one.flatten(1).scatter(1, smallest, 0.0).view_as(one)
        total = one.sum(-1, keepdim=True)
        return one / torch.where(total > 0, total, 1.0)


def _reads_class_token(model: nn.Module, layout: Layout) -> bool:
    """Whether the class token is read out, by the model's own word (timm's) where it gives one."""
    has_one = bool(getattr(model, "has_class_token", layout.prefix > 0))
    return has_one and layout.prefix > 0 and getattr(model, "global_pool", "token") in ("token", "tok", "cls", "")
