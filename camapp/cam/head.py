"""The linear head of a classifier: the layer that turns a pooled map into class scores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn

from camapp.errors import LayerError

# How far pooled map times weights may be from the scores, relative to the largest score.
MOST_DIFFERENCE = 1e-4

_POINTWISE = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass(frozen=True)
class LinearHead:
    """A classifier's last layer.

    Args:
        name: its dotted name.
        weight: (classes, C), the parameter itself.
        bias: (classes,), or None.
    """

    name: str
    weight: torch.Tensor
    bias: torch.Tensor | None

    def scores(self, features: torch.Tensor) -> torch.Tensor:
        """The class scores (N, classes) float32 of pooled features (N, C)."""
        scores = features.float() @ self.weight.float().T
        return scores if self.bias is None else scores + self.bias.float()


def find_head(model: nn.Module, layer: str, activation: torch.Tensor, scores: torch.Tensor) -> LinearHead:
    """The head that the layer's map is averaged into: the mean, times its weight, plus its bias, is the class score.

    Args:
        model: the classifier.
        layer: the layer's key, for the text of errors.
        activation: (B, C, *grid), what the layer gave.
        scores: (B, classes), what the model gave.

    Raises:
        LayerError: there is none; the message says what is in the way.
    """
    classes, channels = scores.shape[1], activation.shape[1]
    linear = list(_linear_layers(model, classes))
    fitting = [head for head in linear if head.weight.shape[1] == channels]
    pooled = activation.detach().float().flatten(2).mean(2)
    for head in fitting:
        if _agrees(head.scores(pooled).detach(), scores.detach()):
            return head
    if fitting:
        raise LayerError(
            f'The mean of "{layer}" over its places, times the weights of "{fitting[0].name}", is not the class score: '
            "something lies between them, such as another layer, a nonlinearity or another pooling. CAM needs the last "
            "map before average pooling and a linear head. Choose that layer, or GradCAM, which needs no such head."
        )
    if linear:
        takes = " or ".join(f'{head.weight.shape[1]} ("{head.name}")' for head in linear)
        raise LayerError(
            f'"{layer}" has {channels} channels, and the linear head takes {takes}: it is not the map that is pooled '
            "into the head. Choose the last map before the pooling, or GradCAM, which needs no such head."
        )
    raise LayerError(
        f"This {type(model).__name__} has no linear head: no nn.Linear or 1x1 convolution with {classes} outputs, one "
        "a class. CAM is made of such a head's weights; GradCAM needs none."
    )


def _linear_layers(model: nn.Module, classes: int) -> Iterator[LinearHead]:
    """The linear layers of as many outputs as there are classes, the last one first."""
    for name, module in reversed(list(model.named_modules())):
        if isinstance(module, nn.Linear) and module.out_features == classes:
            yield LinearHead(name, module.weight, module.bias)
        elif isinstance(module, _POINTWISE) and module.out_channels == classes and _is_linear(module):
            yield LinearHead(name, module.weight.flatten(1), module.bias)


def _is_linear(convolution: nn.Conv1d | nn.Conv2d | nn.Conv3d) -> bool:
    """Whether a convolution is a linear layer at each place."""
    return convolution.groups == 1 and convolution.weight[0, 0].numel() == 1


def _agrees(given: torch.Tensor, scores: torch.Tensor) -> bool:
    """Whether two (B, classes) are alike, up to the rounding of the model's own type; rows with NaN say nothing."""
    tolerance = max(MOST_DIFFERENCE, 8 * torch.finfo(scores.dtype).eps)
    scores = scores.float()
    finite = given.isfinite().all(1) & scores.isfinite().all(1)
    difference, size = (given - scores).abs().amax(1), scores.abs().amax(1)
    return bool((difference <= tolerance * size)[finite].all())
