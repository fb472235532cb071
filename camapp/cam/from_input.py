"""One forward from the inputs on with the whole graph, and a backward for each target: for whole-network methods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from camapp.cam.passes import Passes
from camapp.cam.shot import Shot
from camapp.cam.targets.output import Output
from camapp.cam.targets.plan import Aims
from camapp.errors import LayerError
from camapp.hooks.attention import precise


@dataclass(frozen=True)
class FromInput:
    """A forward whose graph reaches back to the inputs.

    Args:
        inputs: (B, C, *size), the leaf of the graph.
        output: what is explained of the model's output.
        aims: the targets explained.
        scores: (B, K), the targets' scores, with their graph.
    """

    inputs: torch.Tensor
    output: Output
    aims: Aims
    scores: torch.Tensor

    @property
    def shot(self) -> Shot:
        """The same for ``Evidence``, without the graph."""
        output = self.output.detach() if isinstance(self.output, torch.Tensor) else self.output
        return Shot({}, self.aims, self.scores.detach(), output)


def from_input(passes: Passes) -> FromInput:
    """Run the model on a leaf of its own, as grad mode and whatever else is entered have it."""
    inputs = passes.inputs.detach().clone().requires_grad_()
    output = passes.pick(passes.model(inputs.clone()), len(inputs))  # a model may change its input in place
    aims = passes.plan.settle(output)
    return FromInput(inputs, output, aims, aims.scores(output))


def backward_each(scores: torch.Tensor, tensors: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor | None]]:
    """The gradients of each target's score with respect to ``tensors``, in float32 or better; no ``.grad`` is written.

    Args:
        scores: (B, K); each must depend on its own row alone.
        tensors: parts of the graph.

    Yields:
        K times a gradient for each tensor, None where the score does not depend on it.

    Raises:
        LayerError: no score depends on any of the tensors through a graph.
    """
    count = scores.shape[1]
    # Keeps gradients of float16, whose smallest step is 6e-8, from vanishing on their way.
    scale = 256.0 if scores.dtype == torch.float16 else 1.0
    for k in range(count):
        found: Sequence[torch.Tensor | None] = [None] * len(tensors)
        if scores.requires_grad:
            found = torch.autograd.grad(
                scores[:, k].sum() * scale, tensors, retain_graph=k + 1 < count, allow_unused=True
            )
        if all(gradient is None for gradient in found):
            raise LayerError(
                "The score depends on nothing that this method looks at through a graph: the model detaches or runs "
                "under its own no_grad(). Use GradCAM with a layer after that point, or a method that needs no "
                "gradients."
            )
        yield [None if one is None else precise(one) / scale for one in found]


def any_gradient(gradient: torch.Tensor) -> torch.Tensor:
    """Which rows (N,) of a gradient (N, ...) are not zero everywhere: those that the score depends on."""
    return (gradient != 0).flatten(1).any(1)
