"""The plain way to a layer's activation and gradient: the full graph, every parameter in it, no tricks."""

from __future__ import annotations

import torch
from torch import nn


def full_autograd(
    model: nn.Module, layer: str, inputs: torch.Tensor, classes: list[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Activation of ``layer``, and the gradient of each row's class score with respect to it (a model in eval mode)."""
    kept: dict[str, torch.Tensor] = {}

    def keep(module: nn.Module, args: object, output: torch.Tensor) -> torch.Tensor:
        kept["activation"] = output.detach().clone()
        output.retain_grad()
        kept["output"] = output
        return output.clone()

    for parameter in model.parameters():
        parameter.requires_grad_(True)
    handle = model.get_submodule(layer).register_forward_hook(keep)
    logits = model(inputs)
    handle.remove()
    logits[torch.arange(len(inputs)), classes].sum().backward()
    gradient = kept["output"].grad
    model.zero_grad(set_to_none=True)
    assert gradient is not None
    return kept["activation"], gradient
