"""What every part of a backbone costs: its parameters, and how much of the multiplying of one picture it does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import nn

from camapp.backbones.inputs import like_parameters
from camapp.backbones.load import LoadedModel
from camapp.errors import UsageError
from camapp.hooks.layers import unwrap
from camapp.hooks.operations import count_work


@dataclass(frozen=True)
class ModuleCost:
    """One module of a network, with its parts.

    Args:
        name: dotted name; "" for the network itself.
        kind: class name.
        depth: how many modules it lies in; 0 for the network itself.
        children: the names of its parts, in the order in which they were defined.
        shape: of its output for one picture, without the batch axis; None where it gives no tensor or never runs.
        calls: how often it runs in one forward.
        parameters: how many numbers it learns, those of its parts included; what is shared counts once.
        own_parameters: those that are its own and not its parts'.
        macs: multiply-accumulates for one picture, of all its calls and parts.
        share: of the network's multiply-accumulates, 0-1; 0 where the network has none.
    """

    name: str
    kind: str
    depth: int
    children: tuple[str, ...]
    shape: tuple[int, ...] | None
    calls: int
    parameters: int
    own_parameters: int
    macs: int
    share: float

    @property
    def short_name(self) -> str:
        """Its name within the module that holds it."""
        return self.name.rpartition(".")[2]


@dataclass(frozen=True, repr=False)
class Costs:
    """The modules of a network, each before its parts; a tree by ``children``.

    Args:
        modules: the network itself first.
        size: height and width of the picture that the figures are for (or whatever axes the input has).
    """

    modules: tuple[ModuleCost, ...]
    size: tuple[int, ...]

    def __getitem__(self, name: str) -> ModuleCost:
        """The module of that dotted name; ``""`` is the network itself."""
        return self._by_name[name]

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[ModuleCost]:
        return iter(self.modules)

    def __len__(self) -> int:
        return len(self.modules)

    @property
    def parameters(self) -> int:
        """Of the whole network."""
        return self.modules[0].parameters

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the whole network for one picture."""
        return self.modules[0].macs

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {"size": list(self.size), "modules": [vars(one) for one in self.modules]}

    def __repr__(self) -> str:
        size = "x".join(map(str, self.size))
        return f"Costs({len(self) - 1} layers, {self.parameters:,} parameters, {self.macs:,} MACs at {size})"

    @cached_property
    def _by_name(self) -> dict[str, ModuleCost]:
        return {one.name: one for one in self.modules}


def measure_costs(model: nn.Module | LoadedModel, inputs: torch.Tensor | None = None) -> Costs:
    """What every module of a network costs for one picture; found by one forward, and the network is left as found.

    Multiply-accumulates are those of convolutions, matrix products and attention, functional ones too: they count for
    the module whose forward calls them. A convolution of k x k over c channels to d channels in g groups costs
    k * k * c * d / g of them at each place of its output. Norms, activation functions and sums count nothing.

    Args:
        model: a network, or a ``LoadedModel``.
        inputs: (1, C, H, W), (1, C, L) or (1, C, D, H, W), or more rows, of which the first is run; a ``LoadedModel``
            needs none.

    Raises:
        UsageError: a plain network without inputs.
        ModelError: a network that cannot be hooked, or a ``LoadedModel`` that fails on its own input.

    Example:
        >>> costs = measure_costs(camapp.load_model("efficientnet_lite0"))
        >>> max(costs, key=lambda one: one.macs if not one.children else 0)
    """
    if isinstance(model, LoadedModel):
        network = unwrap(model.module)
        inputs = torch.zeros(1, 3, *model.card.input.size) if inputs is None else inputs
        with model.named_failures():
            work = count_work(network, like_parameters(inputs[:1], network, keep_graph=False))
    elif inputs is None:
        raise UsageError("A plain nn.Module does not say how large its pictures are: give inputs, such as one picture.")
    else:
        network = unwrap(model)
        work = count_work(network, like_parameters(inputs[:1], network, keep_graph=False))
    named = dict(network.named_modules())
    children: dict[str, list[str]] = {name: [] for name in named}
    for name in named:
        if name:
            children[_holder(name, named)].append(name)
    whole = work[""].macs
    modules = tuple(
        ModuleCost(
            name=name,
            kind=type(module).__name__,
            depth=_depth(name, named),
            children=tuple(children[name]),
            shape=None if (shape := work[name].shape) is None else shape[1:],
            calls=work[name].calls,
            parameters=sum(one.numel() for one in module.parameters()),
            own_parameters=sum(one.numel() for one in module.parameters(recurse=False)),
            macs=work[name].macs,
            share=work[name].macs / whole if whole else 0.0,
        )
        for name, module in named.items()
    )
    return Costs(modules, tuple(inputs.shape[2:]))


def _holder(name: str, named: dict[str, nn.Module]) -> str:
    """The module that a module lies in; of names without a module of their own between the two there may be some."""
    above = name.rpartition(".")[0]
    while above and above not in named:
        above = above.rpartition(".")[0]
    return above


def _depth(name: str, named: dict[str, nn.Module]) -> int:
    depth = 0
    while name:
        name, depth = _holder(name, named), depth + 1
    return depth
