"""Score functions and samples small enough to be worked out by hand."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from camapp.cam.metrics import Sample


def mean_score(inputs: Tensor, targets: Tensor) -> Tensor:
    """A model that is linear in its pixels: the mean of the first channel."""
    return inputs[:, 0].mean((1, 2))


def patch_score(inputs: Tensor, targets: Tensor) -> Tensor:
    """A model that looks at one place only: rows 4 to 11, columns 20 to 27."""
    return inputs[:, :, 4:12, 20:28].mean((1, 2, 3)).sigmoid()


def sample(maps: Tensor, inputs: Tensor | None = None, score: Any = mean_score, **more: Any) -> Sample:
    inputs = torch.ones(len(maps), 1, *maps.shape[1:]) if inputs is None else inputs
    targets = more.pop("targets", torch.zeros(len(maps), dtype=torch.int64))
    return Sample(score, inputs, targets, maps, **more)


class Tiny(nn.Module):
    """Two convolutions and a linear head."""

    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 5, 3, padding=1), nn.ReLU(), nn.BatchNorm2d(5), nn.Conv2d(5, 6, 3, padding=1), nn.ReLU()
        )
        self.head = nn.Linear(6, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).mean((2, 3)))


def input_gradient_map(model: nn.Module) -> Any:
    """Explain with the absolute gradient of the class score at the input, each map divided by its maximum."""

    def explain(inputs: Tensor, targets: Tensor) -> Tensor:
        leaf = inputs.detach().clone().requires_grad_()
        with torch.enable_grad():
            model.eval()(leaf).gather(1, targets[:, None]).sum().backward()
        heat = leaf.grad.abs().sum(1)
        return heat / heat.amax((1, 2), keepdim=True)

    return explain
