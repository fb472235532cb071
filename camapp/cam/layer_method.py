"""Methods of one layer: maps made of its activation, gradient or curvature, several methods from one shot."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Literal

import torch

from camapp.backbones.layouts import find_layout
from camapp.cam.engine import Method
from camapp.cam.evidence import Evidence
from camapp.cam.from_input import any_gradient
from camapp.cam.passes import Passes
from camapp.cam.shot import Read, Seen, Shot


class LayerMethod(Method):
    """A method that makes a map of what one layer gave; its three kinds below differ in what they look at."""

    #: What it looks at. Each includes the ones before it.
    needs: ClassVar[Literal["activation", "gradient", "curvature"]]
    differentiable = True

    @abstractmethod
    def read(
        self, activation: torch.Tensor, gradient: torch.Tensor | None, curvature: torch.Tensor | None
    ) -> torch.Tensor:
        """The raw map (N, *grid) of what the layer gave, each (N, C, *grid) float32 or None as ``needs`` says."""

    def evidence(self, passes: Passes) -> Evidence:
        """One pass over the network."""
        return read_evidence(shoot(passes, [self]), 0)


class ActivationMethod(LayerMethod):
    """A method that looks at activations alone: one forward, and the same map for every target."""

    needs = "activation"
    class_specific = False
    cost = "one forward"

    @abstractmethod
    def combine(self, activation: torch.Tensor) -> torch.Tensor:
        """The raw map (N, *grid) of an activation (N, C, *grid)."""

    def read(
        self, activation: torch.Tensor, gradient: torch.Tensor | None, curvature: torch.Tensor | None
    ) -> torch.Tensor:
        """``combine``, whatever else there is."""
        return self.combine(activation)


class GradientMethod(LayerMethod):
    """A method that looks at an activation and its gradient; ``weigh`` says what each channel contributes."""

    needs = "gradient"

    @abstractmethod
    def weigh(self, activation: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """What each channel contributes to the map, (N, C, *grid), of an activation and its gradient, both alike."""

    def combine(self, activation: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """The raw map (N, *grid): the sum over the channels."""
        return self.weigh(activation, gradient).sum(1)

    def read(
        self, activation: torch.Tensor, gradient: torch.Tensor | None, curvature: torch.Tensor | None
    ) -> torch.Tensor:
        """``combine``."""
        assert gradient is not None, "shoot gives what needs says"
        return self.combine(activation, gradient)


class CurvatureMethod(LayerMethod):
    """A method that looks at second derivatives too: the Hessian of the score times the activation."""

    needs = "curvature"

    @abstractmethod
    def weigh(self, activation: torch.Tensor, gradient: torch.Tensor, curvature: torch.Tensor) -> torch.Tensor:
        """What each channel contributes to the map, (N, C, *grid)."""

    def read(
        self, activation: torch.Tensor, gradient: torch.Tensor | None, curvature: torch.Tensor | None
    ) -> torch.Tensor:
        """The sum over the channels."""
        assert gradient is not None, "shoot gives what needs says"
        assert curvature is not None, "shoot gives what needs says"
        return self.weigh(activation, gradient, curvature).sum(1)


def shoot(passes: Passes, methods: Sequence[LayerMethod]) -> Shot:
    """One pass for several methods that look at the same layers.

    Returns:
        The shot, whose readings of a layer are the methods' raw maps (N, *grid), in their order, and then which of the
        N maps any gradient reaches.
    """
    needs = {method.needs for method in methods}
    read = _reader(passes, methods)
    if "curvature" in needs or passes.differentiable:
        return passes.graph(read, curvature="curvature" in needs, whole_graph=passes.differentiable)
    if needs == {"activation"}:
        shot = passes.activations(read)
        per_row = passes.plan.per_row
        wide = {key: tuple(one.repeat_interleave(per_row, 0) for one in each) for key, each in shot.read.items()}
        return replace(shot, read=wide)
    return passes.gradients(read)


def read_evidence(shot: Shot, number: int) -> Evidence:
    """The evidence of the method ``number`` of those that shared a shot."""
    raws = {layer: each[number] for layer, each in shot.read.items()}
    return Evidence(raws, {layer: each[-1] for layer, each in shot.read.items()}, shot)


def _reader(passes: Passes, methods: Sequence[LayerMethod]) -> Read:
    """How the passes turn what they captured into the raw maps of each method."""

    def read(seen: Seen) -> tuple[torch.Tensor, ...]:
        layout = find_layout(passes.model, seen.layer, seen.activation.shape, passes.inputs.shape)
        activation, gradient, curvature = (
            None if one is None else layout.to_maps(one).float()
            for one in (seen.activation, seen.gradient, seen.curvature)
        )
        assert activation is not None
        if gradient is None:
            reached = torch.ones(len(activation), dtype=torch.bool, device=activation.device)
            return (*(method.read(activation, None, None) for method in methods), reached)
        copies = len(gradient) // len(activation)
        repeated = activation.repeat_interleave(copies, dim=0) if copies > 1 else activation
        # No gradient on the map, though perhaps on a class token: no path from the map to the score.
        reached = any_gradient(gradient)
        return (*(method.read(repeated, gradient, curvature) for method in methods), reached)

    def quietly(seen: Seen) -> tuple[torch.Tensor, ...]:
        grad_mode = torch.set_grad_enabled(passes.differentiable)
        with grad_mode, torch.autocast(passes.inputs.device.type, enabled=False):
            return read(seen)

    return quietly
