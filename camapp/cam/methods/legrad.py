"""LeGrad."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from torch import nn

from camapp.backbones.layouts import is_attention
from camapp.backbones.load import LoadedModel
from camapp.cam.engine import LayerChoice, Method
from camapp.cam.evidence import Evidence
from camapp.cam.from_input import any_gradient, backward_each
from camapp.cam.passes import Passes
from camapp.cam.shot import Shot
from camapp.cam.targets.output import How, Output
from camapp.cam.tokens import TokenAttention, from_start, token_attention
from camapp.errors import CamappError, LayerError, UsageError
from camapp.hooks.as_found import here
from camapp.hooks.attention import Attentions
from camapp.hooks.handles import Handles

Score = Literal["block", "final"]


class LeGrad(Method):
    r"""LeGrad: how the score of each block's tokens answers to each patch being looked at, over all blocks.

    The tokens :math:`Z^l` behind block :math:`l` get a score of their own, :math:`s^l`: that of their mean token, read
    by the rest of the network as if it were what the last block gave. With the block's attention :math:`A^l` after the
    softmax, of :math:`h` heads and :math:`n` tokens that look,

    .. math:: \hat E^l_j = \frac{1}{h n} \sum_{h, i} \Bigl( \frac{\partial s^l}{\partial A^l_{hij}} \Bigr)^+, \qquad
              E = \frac{1}{|l|} \sum_l \hat E^l ,

    and ``raw`` is :math:`E` at the patches. So each block is asked by its own score, through that block alone. The
    other variant, ``score="final"``, asks all blocks by the model's score, :math:`\partial y / \partial A^l` through
    all that follows: it needs no mean token, and works where a model's blocks cannot be told apart, but is not the
    paper's. Maps are never negative. Cost: one forward, and for each target one backward; the first time
    one more forward of one picture.

    Args:
        model: a vision transformer; as for every method.
        layer: none; it looks at the whole network.
        output: as for every method.
        fuse: as for every method.
        score: "block" for each block's own score, as in the paper, or "final" for the model's.
        start: the first block, from 0; negative from the end. The paper and this default look at all; the authors' code
            at the last two (``start=-2``) unless told otherwise.

    Raises:
        UsageError: an option that there is not.
        LayerError: when called on a network whose attention is not that of one set of patches (CNNs, Swin), or, with
            ``score="block"``, whose blocks cannot be told apart.

    Source: Bousselham et al., "LeGrad: An Explainability Method for Vision Transformers via Feature Formation
    Sensitivity", ICCV 2025, section 3. The mean is over all tokens, prefix tokens included, and before the final
    normalisation, as in the authors' code.

    Example:
        >>> result = camapp.cam.LeGrad(vit, start=-4)(inputs, targets=281)
    """

    name = "legrad"
    title = "LeGrad"
    selective = True
    takes_layer = False

    def __init__(
        self,
        model: nn.Module | LoadedModel,
        layer: LayerChoice = None,
        *,
        output: How = None,
        fuse: str | None = None,
        score: Score = "block",
        start: int = 0,
    ) -> None:
        super().__init__(model, layer, output=output, fuse=fuse)
        if score not in get_args(Score):
            raise UsageError(f"score={score!r}; use one of {', '.join(get_args(Score))}.")
        self.score = score
        self.start = start

    def evidence(self, passes: Passes) -> Evidence:
        """One forward, and one backward a target."""
        tokens = token_attention(passes.model, passes.inputs, self.title)
        chosen = from_start(len(tokens.trace.calls), self.start, self.title)
        if self.score == "final":
            shot, scores, matrices = _by_final_score(passes, chosen)
        else:
            shot, scores, matrices = _by_block_scores(passes, tokens, chosen)
        with torch.autocast(passes.inputs.device.type, enabled=False):
            each = [_relevance(gradients, matrices) for gradients in backward_each(scores, matrices)]
        relevance, reached = (torch.stack(one, dim=1).flatten(0, 1) for one in zip(*each, strict=True))
        raw = tokens.layout.to_maps(relevance[..., None].float())[:, 0]
        return Evidence({"": raw}, {"": reached}, shot, tokens.notes)


def _relevance(gradients: list[torch.Tensor | None], matrices: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Of one target: the relevance of each token (B, L), and for which rows there is any gradient, (B,)."""
    known = [torch.zeros_like(one) if grad is None else grad for grad, one in zip(gradients, matrices, strict=True)]
    by_block = torch.stack([gradient.relu().mean((1, 2)) for gradient in known])
    return by_block.mean(0), torch.stack([any_gradient(gradient) for gradient in known]).any(0)


def _by_final_score(passes: Passes, chosen: range) -> tuple[Shot, torch.Tensor, list[torch.Tensor]]:
    """The shot, the model's scores (B, K), and the chosen matrices."""
    with Attentions(len(passes.inputs), graph=True) as attentions:
        output = passes.pick(passes.model(passes.inputs.clone()), len(passes.inputs))
    aims = passes.plan.settle(output)
    scores = aims.scores(output)
    return Shot({}, aims, scores.detach(), _detached(output)), scores, [attentions.matrices[i] for i in chosen]


def _by_block_scores(
    passes: Passes, tokens: TokenAttention, chosen: range
) -> tuple[Shot, torch.Tensor, list[torch.Tensor]]:
    """The shot, the sums of the chosen blocks' own scores (B, K), and the chosen matrices.

    Behind each chosen block the graph is cut, so that the gradient of the sum with respect to a block's matrix is that
    of the block's own score.
    """
    rows, names = len(passes.inputs), _block_names(passes.model, tokens)
    means: list[torch.Tensor] = []
    where, last = here(), len(names) - 1

    def behind(number: int) -> Callable[..., Any]:
        def on_forward(module: nn.Module, args: Any, output: Any) -> Any:
            if here() != where:
                return None
            tensor = output if isinstance(output, torch.Tensor) else output[0]
            if number in chosen:
                means.append(tensor.mean(1, keepdim=True).expand_as(tensor))
            onward = tensor.detach().clone()
            if number == last:  # the rest of the network reads the mean tokens too, as more rows
                onward = torch.cat([onward, *means])
            return onward if isinstance(output, torch.Tensor) else (onward, *output[1:])

        return on_forward

    try:
        with Handles() as hooks, Attentions(rows, graph=True) as attentions:
            for number in {*chosen, last}:
                hooks.forward(passes.model.get_submodule(names[number]), behind(number))
            returned = passes.model(passes.inputs.clone())
        wide = passes.pick(returned, rows * (1 + len(chosen)))
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, ValueError, IndexError, AssertionError, TypeError) as error:
        passes.pick(passes.model(passes.inputs.clone()), rows)  # a fault of the model's own shows here
        raise _no_blocks(passes.model, "what follows its blocks does not take their mean tokens") from error
    if not isinstance(wide, torch.Tensor):
        raise _no_blocks(passes.model, "what it returns is a list, not a tensor of scores")
    own, *by_block = wide.split(rows)
    aims = passes.plan.settle(own)
    scores = torch.stack([aims.scores(one) for one in by_block]).sum(0)
    shot = Shot({}, aims, aims.scores(own).detach(), own.detach())
    return shot, scores, [attentions.matrices[i] for i in chosen]


def _block_names(model: nn.Module, tokens: TokenAttention) -> list[str]:
    """The module behind which the tokens of each attention are complete: its transformer block."""
    modules = dict(model.named_modules())
    names = []
    for number, call in enumerate(tokens.trace.calls):
        elsewhere = {name for other in tokens.trace.calls if other is not call for name in other.modules}
        own = [name for name in call.modules if name not in elsewhere and _gives_tokens(tokens, name, call.shape[-1])]
        if own and own[-1] == call.modules[-1] and is_attention(own[-1], modules[own[-1]]):
            own.pop()  # before the sum with what passes it
        if not own:
            raise _no_blocks(model, f"no module of its own gives the tokens behind attention {number}")
        # Of an only block the encoder around it is its own too; blocks stand in lists.
        listed = [name for name in own if isinstance(modules[name.rpartition(".")[0]], nn.ModuleList | nn.Sequential)]
        names.append((listed or own)[0])
    return names


def _gives_tokens(tokens: TokenAttention, name: str, length: int) -> bool:
    shape = tokens.trace.outputs.get(name, ())
    return len(shape) == 3 and shape[:2] == (1, length)


def _no_blocks(model: nn.Module, why: str) -> CamappError:
    return LayerError(
        f"LeGrad asks each block of this {type(model).__name__} by a score of its own, and {why}. "
        'LeGrad(model, score="final") asks them all by the model\'s score.'
    )


def _detached(output: Output) -> Output:
    return output.detach() if isinstance(output, torch.Tensor) else output
