"""What methods built over another method share: they make it, ask it, and say what it says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import Any, TypeVar

import torch
from torch import nn

from camapp.backbones.load import LoadedModel
from camapp.cam.engine import LayerChoice, Method
from camapp.cam.methods.gradcam import GradCAM
from camapp.cam.targets.output import How
from camapp.errors import UsageError

AnyMethod = TypeVar("AnyMethod", bound=Method)


class Wrapper(Method):
    """A method that asks another one, its base, and makes something of what the base finds.

    Args:
        model: as for every method.
        layer: as for every method; handed to the base.
        base: the base, a method's class or its name.
        base_options: what the base's constructor takes beside ``layer``, ``output`` and ``fuse``, such as
            ``{"samples": 8}``.
        output: as for every method.
        fuse: as for every method; by default as the base does it.

    Raises:
        UsageError: a base that there is not, or an option that it does not take.
    """

    differentiable = True

    def __init__(
        self,
        model: nn.Module | LoadedModel,
        layer: LayerChoice = None,
        *,
        base: type[Method] | str = GradCAM,
        base_options: Mapping[str, Any] | None = None,
        output: How = None,
        fuse: str | None = None,
    ) -> None:
        super().__init__(model, layer, output=output, fuse=fuse)
        kind = base_class(base)
        self.base: Method = make_base(kind, model, layer, output, fuse, base_options)
        self.fuse = self.base.fuse
        self.differentiable = type(self).differentiable and self.base.differentiable
        self.class_specific = self.base.class_specific

    def default_layers(self, inputs: torch.Tensor) -> tuple[str, ...]:
        """The base's."""
        return self.base.default_layers(inputs)


def base_class(base: type[Method] | str) -> type[Method]:
    """The class of a base that was given as such, or by its name.

    Raises:
        UsageError: there is none.
    """
    if isinstance(base, type) and issubclass(base, Method):
        return base
    if not isinstance(base, str):
        raise UsageError(f"base={base!r}; give a method's class or its name, such as base='gradcam'.")
    # Imported here, since the list of all methods holds the wrappers themselves.
    from camapp.cam.methods import find_method

    return find_method(base)


def make_base(
    kind: type[AnyMethod],
    model: nn.Module | LoadedModel,
    layer: LayerChoice,
    output: How,
    fuse: str | None,
    options: Mapping[str, Any] | None,
) -> AnyMethod:
    """A base with its options.

    Raises:
        UsageError: an option that it does not take; and as its constructor.
    """
    known = signature(kind).parameters
    unknown = [name for name in options or {} if name not in known or name in ("model", "layer", "output", "fuse")]
    if unknown:
        raise UsageError(f"base_options={dict(options or {})}: {kind.title} takes no {', '.join(unknown)} there.")
    return kind(model, layer, output=output, fuse=fuse, **(options or {}))
