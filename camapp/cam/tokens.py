"""The attention of a vision transformer, and how its tokens lie in the picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias
from weakref import WeakKeyDictionary

import torch
from torch import nn

from camapp.backbones.layouts import Layout, find_layout
from camapp.errors import LayerError, UsageError
from camapp.hooks.attention import AttentionTrace, trace_attention

# Of an alteration of the model, as of its depth, its modules tell.
_Modules: TypeAlias = tuple[tuple[str, type[nn.Module]], ...]

INSTEAD = "Use GradCAM, or LayerCAM with an earlier layer."


@dataclass(frozen=True)
class TokenAttention:
    """The attentions of a model for pictures of one size, all of the same tokens.

    Args:
        trace: of one picture.
        layout: how the tokens lie in the picture.
    """

    trace: AttentionTrace
    layout: Layout

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out."""
        if not self.trace.after:
            return ()
        return (f"the last {self.trace.after} attention(s), of one query to all tokens (a pooling's), are left out",)


# By model and size of the picture, with the modules that the model had. No tensors.
_known: WeakKeyDictionary[nn.Module, dict[tuple[int, ...], tuple[_Modules, TokenAttention]]] = WeakKeyDictionary()


def token_attention(model: nn.Module, inputs: torch.Tensor, title: str) -> TokenAttention:
    """What one forward of one picture shows, remembered for the model as it is and the size of the picture.

    Raises:
        UsageError: inputs that are no pictures.
        LayerError: no attention is seen, or not of one set of tokens that cover the picture.
    """
    if inputs.dim() != 4:
        raise UsageError(
            f"{title} explains pictures (B, C, H, W), not inputs of shape {tuple(inputs.shape)}. {INSTEAD}"
        )
    modules, size = tuple((name, type(module)) for name, module in model.named_modules()), tuple(inputs.shape[1:])
    known = _known.setdefault(model, {})
    if size not in known or known[size][0] != modules:
        known[size] = modules, _traced(model, inputs[:1], title)
    return known[size][1]


def from_start(count: int, start: int, title: str) -> range:
    """Which of ``count`` blocks are looked at: from ``start`` on, counted from the end where negative.

    Raises:
        UsageError: there is no such block.
    """
    if isinstance(start, bool) or not isinstance(start, int) or not -count <= start < count:
        raise UsageError(f"start={start!r}: {title} sees {count} attention block(s) here, 0 to {count - 1}.")
    return range(start % count, count)


def _traced(model: nn.Module, inputs: torch.Tensor, title: str) -> TokenAttention:
    """Look at one forward of one picture (1, C, H, W)."""
    trace = trace_attention(model, inputs)
    kind = type(model).__name__
    if not trace.calls:
        raise LayerError(
            f"No attention is seen in this {kind}: {title} is for vision transformers, whose patches all look at each "
            f"other. {INSTEAD} (A transformer whose attention is a compiled kernel of its own cannot be seen either.)"
        )
    shapes = list(dict.fromkeys(call.shape for call in trace.calls))
    seen = f"This {kind}'s attention matrices are {', '.join('x'.join(map(str, shape)) for shape in shapes[:4])}"
    if any(len(shape) != 4 or shape[0] != 1 for shape in shapes):
        raise LayerError(
            f"{seen} for one picture, so within windows or groups (as Swin's): {title} cannot join them. {INSTEAD}"
        )
    tokens = {shape[-1] for shape in shapes}
    if len(tokens) > 1 or trace.among:
        raise LayerError(f"{seen}, and the tokens change on the way: {title} cannot join their attention. {INSTEAD}")
    try:
        layout = find_layout(model, "attention", (1, tokens.pop(), 1), (1, *inputs.shape[1:]))
    except LayerError as error:
        raise LayerError(f"{seen}, and no grid of so many patches covers the picture. {INSTEAD}") from error
    return TokenAttention(trace, layout)
