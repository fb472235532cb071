"""Attentions: while a model runs, every attention matrix of tokens to tokens, as part of the graph where wanted."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from camapp.errors import LayerError
from camapp.hooks.as_found import as_found, here
from camapp.hooks.functions import FunctionCalls
from camapp.hooks.handles import Handles

_MULTI_HEAD = inspect.signature(F.multi_head_attention_forward)


class Attentions(FunctionCalls):
    """Records the softmax attention of a model: who looks at whom.

    Seen are ``F.scaled_dot_product_attention``, ``nn.MultiheadAttention`` (masked or not, with or without weights), and
    attention written out, a softmax over the last axis of a square matrix for each head. The model's numbers stay what
    they are: where a fused function hides its matrix, that is computed beside it, and with a graph the fused result is
    handed on, its gradient led through the matrix.

    Args:
        rows: the batch size B of the inputs.
        graph: whether the matrices are wanted as parts of the graph, with the rest of the network behind them.
        on_record: called with each matrix as it is recorded.

    Attributes:
        matrices: in order, (B, heads, L, L) with a softmax over the last axis; of attention within windows the first
            axis holds them too.
        skipped: how many were not square (a pooling query, a class token's), which are left out.
    """

    answers = {  # noqa: RUF012 - declared by the class above as one for all
        F.scaled_dot_product_attention: "_on_scaled_dot_product",
        F.multi_head_attention_forward: "_on_multi_head",
        **dict.fromkeys((F.softmax, torch.softmax, torch.Tensor.softmax), "_on_softmax"),
    }

    def __init__(
        self, rows: int, *, graph: bool = False, on_record: Callable[[torch.Tensor], None] | None = None
    ) -> None:
        super().__init__()
        self._rows = rows
        self._graph = graph
        self._on_record = on_record
        self.matrices: list[torch.Tensor] = []
        self.skipped = 0

    def __exit__(self, *error: Any) -> None:
        self._on_record = None  # which may well know of this
        super().__exit__(*error)

    def _on_scaled_dot_product(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        output = func(*args, **kwargs)
        given = dict(zip(_SCALED_DOT_PRODUCT, args, strict=False)) | kwargs
        query, key, value = (given[name] for name in ("query", "key", "value"))
        if query.dim() < 3 or query.shape[-2] != key.shape[-2]:
            self.skipped += 1
            return output
        if given.get("dropout_p"):
            raise LayerError("This model's attention drops values at random even in eval mode: its map would be noise.")
        with torch.set_grad_enabled(self._graph and torch.is_grad_enabled()):
            query, key, value = (precise(one) for one in (query, key, value))
            if query.dim() > 3 and key.shape[-3] != query.shape[-3]:  # heads that share keys and values
                key, value = (one.repeat_interleave(query.shape[-3] // one.shape[-3], -3) for one in (key, value))
            scale = given.get("scale")
            scores = query @ key.transpose(-1, -2) * (1 / sqrt(query.shape[-1]) if scale is None else scale)
            matrix = _masked(scores, given.get("attn_mask"), bool(given.get("is_causal"))).softmax(-1)
            tapped = self._tap(matrix)
            return _with_gradient(output, tapped @ value) if self._graph else output

    def _on_multi_head(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = _MULTI_HEAD.bind(*args, **kwargs)
        given.apply_defaults()
        had = given.arguments
        output, weights = func(*args, **kwargs)
        if had["query"].dim() != 3:
            raise LayerError("This model's nn.MultiheadAttention runs without a batch axis. Use GradCAM.")
        if had["query"].shape[0] != had["key"].shape[0]:
            self.skipped += 1
            return output, weights
        if had["bias_k"] is not None or had["add_zero_attn"] or had["static_k"] is not None:
            raise LayerError(
                "This model's nn.MultiheadAttention attends to more than its tokens (add_bias_kv or add_zero_attn), "
                "which have no place in the picture. Use GradCAM."
            )
        if had["dropout_p"] and had["training"]:
            raise LayerError("This model's attention drops values at random even in eval mode: its map would be noise.")
        with torch.set_grad_enabled(self._graph and torch.is_grad_enabled()):
            _, matrix = func(**{**had, "need_weights": True, "average_attn_weights": False})
            tapped = self._tap(matrix)
            return (_with_gradient(output, _multi_head_output(tapped, had)) if self._graph else output), weights

    def _on_softmax(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        output = func(*args, **kwargs)
        axis = args[1] if len(args) > 1 else kwargs.get("dim")
        if output.dim() not in (3, 4) or axis not in (-1, output.dim() - 1) or output.shape[-1] != output.shape[-2]:
            return output
        tapped = self._tap(output)
        # What is recorded is not what the model goes on with, which it may change in place.
        return tapped.clone() if self._graph else output

    def _tap(self, matrix: torch.Tensor) -> torch.Tensor:
        """Record a matrix, with its heads apart; what comes back is of the same shape and behind it in the graph."""
        heads = matrix.unflatten(0, (self._rows, -1)) if matrix.dim() == 3 and not len(matrix) % self._rows else matrix
        if not self._graph:
            heads = heads.detach().clone()
        elif not heads.requires_grad and torch.is_grad_enabled():
            heads = heads.detach().requires_grad_()
        self.matrices.append(heads)
        if self._on_record is not None:
            self._on_record(heads)
        return heads.view(matrix.shape)


@dataclass(frozen=True)
class AttentionCall:
    """One attention of a forward.

    Args:
        shape: of its matrix, (rows, heads, L, L) as ``Attentions`` records it.
        modules: the names of the modules whose forward it was in, outermost first.
    """

    shape: tuple[int, ...]
    modules: tuple[str, ...]


@dataclass(frozen=True)
class AttentionTrace:
    """The attentions of one forward.

    Args:
        calls: those of all tokens to all, in order.
        outputs: by name, the shape of what each module gave in its last call, where it gave a tensor.
        among: how many others, of some tokens to other ones, came before the last of ``calls``.
        after: how many came after it, such as a pooling's.
    """

    calls: list[AttentionCall]
    outputs: dict[str, tuple[int, ...]]
    among: int
    after: int


def trace_attention(model: nn.Module, inputs: torch.Tensor) -> AttentionTrace:
    """The attentions of one forward; the model is left as found."""
    inside: list[str] = []
    calls: list[AttentionCall] = []
    outputs: dict[str, tuple[int, ...]] = {}
    among = 0

    def record(matrix: torch.Tensor) -> None:
        nonlocal among
        among = attentions.skipped
        calls.append(AttentionCall(tuple(matrix.shape), tuple(inside)))

    def enter(name: str) -> Callable[..., None]:
        def on_enter(module: nn.Module, args: Any, kwargs: Any) -> None:
            if here() == where:
                inside.append(name)

        return on_enter

    def leave(name: str) -> Callable[..., None]:
        def on_leave(module: nn.Module, args: Any, output: Any) -> None:
            if here() != where:
                return
            inside.pop()
            first = output[0] if isinstance(output, tuple | list) and output else output
            if isinstance(first, torch.Tensor):
                outputs[name] = tuple(first.shape)

        return on_leave

    with as_found(model), torch.no_grad(), Handles() as hooks:
        where = here()
        for name, module in model.named_modules():
            if name:
                hooks.forward_pre(module, enter(name))
                hooks.forward(module, leave(name))
        with Attentions(len(inputs), on_record=record) as attentions:
            model(inputs.clone())
    return AttentionTrace(calls, outputs, among, attentions.skipped - among)


def precise(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in float32, or in float64 where it is."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


_SCALED_DOT_PRODUCT = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")


def _masked(scores: torch.Tensor, mask: torch.Tensor | None, is_causal: bool) -> torch.Tensor:
    if is_causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if mask is None:
        return scores
    return scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask


def _with_gradient(output: torch.Tensor, path: torch.Tensor) -> torch.Tensor:
    """The numbers of ``output`` with the gradient of ``path``, which is the same but for rounding."""
    path = path.to(output.dtype)
    return output.detach() + (path - path.detach())


def _multi_head_output(matrix: torch.Tensor, had: dict[str, Any]) -> torch.Tensor:
    """What ``F.multi_head_attention_forward`` makes of its attention (B, heads, L, L): (L, B, C)."""
    rows, heads, length, _ = matrix.shape
    width = had["embed_dim_to_check"]
    weight = had["v_proj_weight"] if had["use_separate_proj_weight"] else had["in_proj_weight"][2 * width :]
    bias = None if had["in_proj_bias"] is None else had["in_proj_bias"][2 * width :]
    value = F.linear(had["value"], weight, bias).reshape(length, rows * heads, -1).transpose(0, 1)
    mixed = matrix.to(value.dtype) @ value.reshape(rows, heads, length, -1)
    joined = mixed.permute(2, 0, 1, 3).reshape(length, rows, width)
    return F.linear(joined, had["out_proj_weight"], had["out_proj_bias"])
