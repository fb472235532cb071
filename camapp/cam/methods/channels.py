"""What methods share that give each channel one weight."""

from __future__ import annotations

from abc import abstractmethod

import torch

from camapp.cam.layer_method import GradientMethod

# Of a sum of both signs, what is left below this part of the whole is a rounding error.
LEAST_SUM = 1e-6


class ChannelMethod(GradientMethod):
    """A method that gives each channel of the layer one weight: the map is the weighted sum of the channels."""

    @abstractmethod
    def weights(self, activation: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """The weights (N, C) of an activation and its gradient, both (N, C, *grid)."""

    def weigh(self, activation: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """Weights times activations, (N, C, *grid)."""
        return over_places(self.weights(activation, gradient), activation) * activation


def over_places(weights: torch.Tensor, activation: torch.Tensor) -> torch.Tensor:
    """Weights (N, C) with axes to spread over the places of an activation (N, C, *grid)."""
    return weights.view(*weights.shape, *[1] * (activation.dim() - 2))
