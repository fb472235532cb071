"""Every error a user can cause: what happened, why, and what to do next."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class CamappError(Exception):
    """The base of all errors that camapp raises on purpose; its text is fit to be shown to a user."""


class UsageError(CamappError, ValueError):
    """An argument that cannot be meant: a wrong length, an unknown option, a class out of range."""


class DecodeError(CamappError, ValueError):
    """A file that is not a picture camapp reads, is damaged, or is too large."""


class StoreError(CamappError):
    """A store of pictures, named by a URL, that cannot be reached, refuses, or needs a package that is missing."""


class ModelError(CamappError):
    """A model card or a model that cannot be loaded."""


class WeightsError(ModelError):
    """Weights that are missing, damaged, or of another architecture."""


class LayerError(CamappError, LookupError):
    """A layer that the model does not have, or that gave no usable activation."""


class TargetError(CamappError, ValueError):
    """A class that the model does not have, or a target that cannot be explained."""


class AnnotationError(CamappError, ValueError):
    """A file of boxes that cannot be read, or boxes that do not fit their pictures."""


class OutputError(CamappError, TypeError):
    """A model whose output is not a tensor of class scores."""


class StoppedError(CamappError):
    """A long call that was cancelled, or that its deadline ended."""


def closest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The names most like ``name``, best first: first those that contain it, then those spelled alike."""
    names = list(dict.fromkeys(known))
    lowered = {other.lower(): other for other in names}
    inside = [other for other in names if name and name.lower() in other.lower()]
    alike = [lowered[hit] for hit in get_close_matches(name.lower(), lowered, n=count, cutoff=0.6)]
    return list(dict.fromkeys(alike + inside))[:count]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``" Did you mean a, b?"``, or nothing where no name is like ``name``."""
    hits = closest(name, known)
    return f" Did you mean {', '.join(hits)}?" if hits else ""
