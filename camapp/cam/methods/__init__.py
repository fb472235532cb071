"""The methods by name; each is a small class on top of the engine."""

from __future__ import annotations

from camapp.cam.engine import GradientMethod
from camapp.cam.methods.gradcam import GradCAM
from camapp.errors import UsageError, did_you_mean

METHODS: dict[str, type[GradientMethod]] = {method.name: method for method in (GradCAM,)}


def find_method(name: str) -> type[GradientMethod]:
    """The method called ``name``.

    Raises:
        UsageError: there is none; the message names those that are.
    """
    method = METHODS.get(name.lower()) if isinstance(name, str) else None
    if method is None:
        raise UsageError(f'No method "{name}".{did_you_mean(str(name), METHODS)} Methods: {", ".join(METHODS)}.')
    return method
