"""The methods by name; each is a small class on top of the engine."""

from __future__ import annotations

import re

from camapp.cam.engine import Method
from camapp.cam.methods.gradcam import GradCAM
from camapp.errors import UsageError, did_you_mean

METHODS: dict[str, type[Method]] = {method.name: method for method in (GradCAM,)}


def find_method(name: str) -> type[Method]:
    """The method called ``name``, in any case and with or without dashes: ``GradCAM++``, ``gradcam-pp``, ``score_cam``.

    Raises:
        UsageError: there is none; the message names those that are.
    """
    method = {_plain(known): kind for known, kind in METHODS.items()}.get(_plain(name))
    if method is None:
        raise UsageError(f'No method "{name}".{did_you_mean(str(name), METHODS)} Methods: {", ".join(METHODS)}.')
    return method


def _plain(name: object) -> str:
    return re.sub(r"[-_ ]", "", str(name).lower()).replace("++", "pp").replace("plusplus", "pp")
