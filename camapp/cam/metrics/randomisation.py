"""The sanity check of cascading randomisation: does the map depend on what the model has learned?"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from camapp.backbones.load import LoadedModel
from camapp.cam.metrics.similarity import hog_pearson, spearman, ssim
from camapp.cam.result import CamResult
from camapp.errors import UsageError, did_you_mean
from camapp.hooks.layers import unwrap
from camapp.hooks.trace import trace_calls

ExplainFactory: TypeAlias = Callable[[nn.Module], Callable[[Tensor, Tensor], Any]]
"""A model -> (inputs, targets) -> a CamResult, or maps (N, H, W): a method's class is one, or a ``partial`` of it."""


@dataclass(frozen=True, eq=False)
class Randomisation:
    """How like the original maps are after each block of the model was randomised; K blocks, B pictures.

    A similarity is NaN where one of the two maps is constant.

    Args:
        blocks: the blocks, in the order in which they were randomised, from the logits down.
        spearman: (K, B), of the signed raw maps where the method gives them, else of the maps.
        absolute_spearman: (K, B), of their absolute values.
        ssim: (K, B), of the maps.
        hog: (K, B), the Pearson correlation of the maps' histograms of gradients.
    """

    blocks: tuple[str, ...]
    spearman: Tensor
    absolute_spearman: Tensor
    ssim: Tensor
    hog: Tensor

    def means(self) -> list[dict[str, float | str]]:
        """For each block its name and the mean of each similarity over the pictures where it is defined."""
        measures = {
            "spearman": self.spearman,
            "absolute_spearman": self.absolute_spearman,
            "ssim": self.ssim,
            "hog": self.hog,
        }
        return [
            {"block": block, **{name: float(values[step].nanmean()) for name, values in measures.items()}}
            for step, block in enumerate(self.blocks)
        ]


def cascading_randomisation(
    model: nn.Module | LoadedModel,
    explain_factory: ExplainFactory,
    inputs: Tensor,
    targets: Tensor,
    *,
    blocks: Sequence[str] | None = None,
    seed: int = 0,
) -> Randomisation:
    """Re-initialise a copy of a model block by block, from the logits down to the stem, and compare the maps.

    A map that explains what the model has learned becomes unlike the original. One that stays alike shows the picture
    (its edges, say), not the model.

    A module draws new weights by its own ``reset_parameters``; parameters of modules without one are drawn from a
    normal distribution of their own mean and standard deviation. ``reset_parameters`` of a BatchNorm also resets its
    running statistics, to mean 0 and variance 1, so that what was learned of the data is gone too. The model given is
    not touched, nor are torch's random numbers.

    Source: Adebayo et al., "Sanity Checks for Saliency Maps", NeurIPS 2018, section 3 (cascading randomisation).

    Args:
        model: what the maps explain.
        explain_factory: makes the method for a model, ``GradCAM`` say, or ``partial(GradCAM, layer="layer4")``. Name a
            layer rather than give its module, which the copy does not have.
        inputs: (B, C, H, W), normalised.
        targets: (B,) int64; the class stays the same although the model's scores change.
        blocks: modules by name, in the order in which they are randomised. None: ``default_blocks``.
        seed: of the new weights.

    Raises:
        UsageError: a block that the model does not have, or one without parameters.
    """
    original = unwrap(model.module if isinstance(model, LoadedModel) else model)
    randomised = copy.deepcopy(original)
    named = dict(randomised.named_modules())
    order = tuple(default_blocks(original, inputs) if blocks is None else blocks)
    for block in order:
        if block not in named:
            raise UsageError(f'No block "{block}" in the model.{did_you_mean(block, named)}')
        if not any(True for _ in named[block].parameters()):
            raise UsageError(f'The block "{block}" has no parameters: there is nothing to randomise.')
    if not order:
        raise UsageError("No block to randomise: the model has no modules with parameters.")
    signed, shown = _explained(explain_factory(original), inputs, targets)
    steps = []
    for number, block in enumerate(order):
        _randomise(named[block], seed + number)
        signed_now, shown_now = _explained(explain_factory(randomised), inputs, targets)
        steps.append(
            (
                spearman(signed, signed_now),
                spearman(signed.abs(), signed_now.abs()),
                ssim(shown, shown_now),
                hog_pearson(shown, shown_now),
            )
        )
    return Randomisation(order, *(torch.stack(values).float().cpu() for values in zip(*steps, strict=True)))


def default_blocks(model: nn.Module, inputs: Tensor) -> list[str]:
    """The model's blocks from the logits down to the stem: its children that have parameters, the last to run first.

    A ``Sequential`` or ``ModuleList`` is taken apart into its children once, and so is a module that is all there is.
    Parameters that belong to no child (class tokens, position embeddings) stay as they are.

    Args:
        model: an ``nn.Module``.
        inputs: (B, C, H, W), of which the first is run to learn the order.
    """
    found = list(_blocks("", model))
    ends = {call.name: number for number, call in enumerate(trace_calls(model, inputs[:1]))}

    def end(block: str) -> int:
        inside = [number for name, number in ends.items() if name == block or name.startswith(f"{block}.")]
        return max(inside, default=-1)

    return sorted(found, key=end, reverse=True)


def _blocks(name: str, module: nn.Module) -> Iterator[str]:
    children = [(f"{name}.{key}" if name else key, child) for key, child in module.named_children() if _learns(child)]
    if len(children) == 1 and any(_learns(inner) for inner in children[0][1].children()):
        yield from _blocks(*children[0])
        return
    for path, child in children:
        inner = [f"{path}.{key}" for key, part in child.named_children() if _learns(part)]
        yield from inner if inner and isinstance(child, nn.Sequential | nn.ModuleList) else [path]


def _learns(module: nn.Module) -> bool:
    return any(True for _ in module.parameters())


@torch.no_grad()
def _randomise(block: nn.Module, seed: int) -> None:
    devices = {parameter.device for parameter in block.parameters() if parameter.device.type == "cuda"}
    with torch.random.fork_rng(devices=list(devices)):
        torch.manual_seed(seed)
        for module in block.modules():
            own = list(module.parameters(recurse=False))
            if not own:
                continue
            reset = getattr(module, "reset_parameters", None)
            if callable(reset):
                reset()
                continue
            for parameter in own:
                spread = float(parameter.float().std(correction=0))
                parameter.normal_(float(parameter.float().mean()), spread)


def _explained(explain: Callable[[Tensor, Tensor], Any], inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The signed maps and the maps to look at; the same where the method gives one only."""
    result = explain(inputs, targets)
    if isinstance(result, CamResult):
        return result.raw, result.maps
    if not isinstance(result, Tensor) or result.dim() != 3 or len(result) != len(inputs):
        what = tuple(result.shape) if isinstance(result, Tensor) else type(result).__name__
        raise UsageError(f"The method gave {what}; needed is a CamResult or maps (N, H, W) for {len(inputs)} pictures.")
    return result.detach(), result.detach()
