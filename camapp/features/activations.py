"""ActivationExtractor: records named modules whenever the user runs the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

import torch
from torch import nn

from camapp.hooks.handles import Handles
from camapp.hooks.hookable import check_layers
from camapp.hooks.layers import Layer, find_layer, unwrap
from camapp.hooks.visits import Visits


class ActivationExtractor:
    """Records what modules give in the forwards that you run yourself.

    ``FeatureExtractor`` is the better tool where one call shall run the model, pool and stop early. This one leaves the
    forward to you, as in a training loop or a debugger, and keeps what it saw until it is cleared.

    Activations are detached copies: no later in-place operation reaches them. A module that runs several times is kept
    at its last call; ``"name@0"`` names one. Only forwards of the thread that registered the hooks are seen.

    Args:
        model: the network.

    Example:
        >>> extractor = ActivationExtractor(model)
        >>> extractor.register_hooks({"stem": model.conv1, "deep": model.layer4})
        >>> model(inputs)
        >>> extractor.activations["deep"].shape
        >>> extractor.remove_hooks()
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = unwrap(model)
        self.activations: dict[str, torch.Tensor] = {}  #: by the names given, what each module gave last
        self._visits: list[Visits] = []
        self._hooks = Handles()

    def register_hooks(self, modules: Mapping[str, nn.Module | str] | Iterable[str]) -> None:
        """Begin to record; modules registered before are recorded too.

        Args:
            modules: by the name under which each is kept, a module of the model or its name; or names alone.

        Raises:
            LayerError: a module or name that is not in the model; then none is registered.
            ModelError: a compiled or scripted layer, whose hooks would be skipped; ``camapp.FeatureExtractor`` runs
                the first kind eagerly.
        """
        named = dict(modules) if isinstance(modules, Mapping) else {name: name for name in modules}
        found = {name: find_layer(self.model, module) for name, module in named.items()}
        check_layers(self.model, [(layer.name, layer.module) for layer in found.values()])
        if not self._visits:
            self._hooks.forward_pre(self.model, self._begin)
        for name, layer in found.items():
            self._visits.append(Visits([layer], _Keep(self.activations, name)).__enter__())

    def clear_activations(self) -> None:
        """Forget what was recorded; the hooks stay."""
        self.activations.clear()

    def remove_hooks(self) -> None:
        """Remove the hooks, and no one else's; what was recorded stays. Harmless to repeat."""
        self._hooks.remove()
        while self._visits:
            self._visits.pop().__exit__(None, None, None)

    def _begin(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """A forward begins: calls count from 0 again."""
        for visits in self._visits:
            visits.count_anew()

    def __enter__(self) -> ActivationExtractor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove_hooks()


class _Keep:
    """Writes what a layer gives under a name; holds no extractor, which could then not be freed without a collector."""

    def __init__(self, activations: dict[str, torch.Tensor], name: str) -> None:
        self._activations = activations
        self._name = name

    def __call__(self, layer: Layer, call: int, output: torch.Tensor) -> None:
        self._activations[self._name] = output.detach().clone()
