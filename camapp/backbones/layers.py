"""What is inside a backbone: every layer, what it gives, and which one is explained by default."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from camapp.backbones.layouts import map_layout
from camapp.backbones.load import LoadedModel
from camapp.backbones.recommend import best_layer
from camapp.backbones.stages import PASSING_ON
from camapp.errors import UsageError
from camapp.hooks.layers import unwrap
from camapp.hooks.trace import trace_calls


@dataclass(frozen=True)
class LayerInfo:
    """One layer as ``camapp layers`` lists it.

    Args:
        name: dotted name.
        kind: class name of the module.
        shape: shape of its output for one picture, without the batch axis; None where the output is no tensor.
        calls: how often it runs in one forward; 0 for a layer that never runs.
        parameters: how many parameters it holds, those of its parts included.
        grid: extent of its map, such as rows and columns; None where its output has no place in the picture.
        recommended: whether it is the layer to explain by default.
    """

    name: str
    kind: str
    shape: tuple[int, ...] | None
    calls: int
    parameters: int
    grid: tuple[int, ...] | None
    recommended: bool

    @property
    def worth_explaining(self) -> bool:
        """Whether it has a map of its own; some layers only pass on what the layer before them gave."""
        return self.grid is not None and (self.recommended or self.kind not in PASSING_ON)


class LayerTable(tuple[LayerInfo, ...]):
    """The layers of a backbone; printed, a table."""

    def __str__(self) -> str:
        rows = [("layer", "class", "shape", "calls", "parameters")]
        for one in self:
            shape = "x".join(map(str, one.shape)) if one.shape else "" if one.calls else "never runs"
            rows.append((one.name, one.kind, shape, str(one.calls), f"{one.parameters:,}"))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        right = (False, False, False, True, True)
        lines = (
            "  ".join(
                cell.rjust(width) if side else cell.ljust(width)
                for cell, width, side in zip(row, widths, right, strict=True)
            )
            for row in rows
        )
        return "\n".join(line.rstrip() for line in lines)


def list_layers(model: nn.Module | LoadedModel, inputs: torch.Tensor | None = None) -> list[LayerInfo]:
    """Every layer of a model, with what it gives for one picture; found by a dry run.

    Args:
        model: a network, or a ``LoadedModel``.
        inputs: (1, C, H, W), (1, C, L) or (1, C, D, H, W), or more rows, of which the first is run; a ``LoadedModel``
            needs none.

    Raises:
        UsageError: a plain network without inputs.
        ModelError: a network that cannot be hooked, or a ``LoadedModel`` that fails on its own input.
    """
    recommended = None
    if isinstance(model, LoadedModel):
        inputs = torch.zeros(1, 3, *model.card.input.size, device=model.device) if inputs is None else inputs
        recommended = model.card.layer
        with model.named_failures():
            calls = trace_calls(model.module, inputs[:1])
        network = model.module
    elif inputs is None:
        raise UsageError("A plain nn.Module does not say how large its pictures are: give inputs, such as one picture.")
    else:
        network = unwrap(model)
        calls = trace_calls(network, inputs[:1])
    best = recommended or best_layer(network, inputs[:1], calls)
    outputs: dict[str, list[tuple[int, ...] | None]] = {}
    for call in calls:
        outputs.setdefault(call.name, []).append(call.outputs)
    plain = best.partition("@")[0] if best else None
    return [
        _info(name, module, network, outputs.get(name, []), inputs[:1], plain)
        for name, module in network.named_modules()
        if name
    ]


def _info(
    name: str,
    module: nn.Module,
    model: nn.Module,
    shapes: list[tuple[int, ...] | None],
    inputs: torch.Tensor,
    best: str | None,
) -> LayerInfo:
    shape = shapes[-1] if shapes else None
    layout = map_layout(model, name, shape, inputs.shape)
    return LayerInfo(
        name=name,
        kind=type(module).__name__,
        shape=shape[1:] if shape else None,
        calls=len(shapes),
        parameters=sum(parameter.numel() for parameter in module.parameters()),
        grid=layout.grid if layout else None,
        recommended=name == best,
    )
