"""Checks of a probe that comes from files: its facts, its tensors, and that they belong together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

import torch
from torch import Tensor

from camapp.errors import ModelError

FORMAT, VERSION = "camapp-probe", 1

_TENSORS = {
    "linear": {"weight": torch.float32, "bias": torch.float32},
    "ridge": {"weight": torch.float32, "bias": torch.float32},
    "knn": {"features": torch.float32, "targets": torch.int64},
}
# How far the length of a training picture's features may be from 1.
_MOST_OFF = 1e-3


def check_parts(tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Make sure that a probe can be made of parts.

    Raises:
        ModelError: it cannot; the message says what is wrong.
    """
    _check_facts(facts)
    kind, classes = facts["kind"], len(facts["classes"])
    _check_tensors(tensors, kind)
    if kind == "knn":
        _check_neighbours(tensors["features"], tensors["targets"], classes, facts["settings"])
    else:
        _check_linear(tensors["weight"], tensors["bias"], classes)


def _check_facts(facts: Mapping[str, Any]) -> None:
    if not isinstance(facts, Mapping) or facts.get("format") != FORMAT:
        raise _damaged(f'its facts do not say "format": "{FORMAT}"')
    version = facts.get("version")
    if not _is_whole(version) or version < 1:
        raise _damaged(f'"version" is {version!r}')
    if version > VERSION:
        raise ModelError(
            f"This probe is of format version {version}, and this camapp reads up to {VERSION}. Update camapp."
        )
    if not isinstance(facts.get("kind"), str) or facts["kind"] not in _TENSORS:
        raise _damaged(f'"kind" is {facts.get("kind")!r}, none of {", ".join(_TENSORS)}')
    classes = facts.get("classes")
    if not isinstance(classes, (list, tuple)) or not all(isinstance(name, str) and name for name in classes):
        raise _damaged('"classes" are no list of names')
    if len(classes) < 2 or list(classes) != sorted(set(classes)):
        raise _damaged('"classes" are not two or more different names in sorted order')
    notes = facts.get("notes")
    if not isinstance(notes, (list, tuple)) or not all(isinstance(note, str) for note in notes):
        raise _damaged('"notes" are no list of texts')
    if not isinstance(facts.get("settings"), Mapping):
        raise _damaged('"settings" are missing')


def _check_tensors(tensors: Mapping[str, Tensor], kind: str) -> None:
    wanted = _TENSORS[kind]
    if not isinstance(tensors, Mapping) or set(tensors) != set(wanted):
        there = ", ".join(map(str, tensors)) if isinstance(tensors, Mapping) else "no mapping"
        raise _damaged(f"a {kind} probe has the tensors {' and '.join(wanted)}, and these are {there or 'none'}")
    for name, dtype in wanted.items():
        tensor = tensors[name]
        if not isinstance(tensor, Tensor) or tensor.dtype != dtype:
            raise _damaged(f'"{name}" is {getattr(tensor, "dtype", type(tensor).__name__)}, not {dtype}')
        if not tensor.isfinite().all():
            raise _damaged(f'"{name}" holds NaN or infinity')


def _check_linear(weight: Tensor, bias: Tensor, classes: int) -> None:
    if weight.dim() != 2 or not weight.shape[1] or weight.shape[0] != classes or bias.shape != (classes,):
        raise _damaged(
            f"weights {tuple(weight.shape)} and biases {tuple(bias.shape)} do not fit {classes} classes: they should "
            f"be ({classes}, D) and ({classes},)"
        )


def _check_neighbours(features: Tensor, targets: Tensor, classes: int, settings: Mapping[str, Any]) -> None:
    if features.dim() != 2 or not features.numel() or targets.shape != features.shape[:1]:
        raise _damaged(
            f"features {tuple(features.shape)} and targets {tuple(targets.shape)} do not belong together: they should "
            "be (N, D) and (N,)"
        )
    if targets.unique().tolist() != list(range(classes)):
        raise _damaged(f"its targets are not the numbers 0 to {classes - 1} of its {classes} classes")
    lengths = torch.linalg.vector_norm(features, dim=1)
    if not ((lengths - 1).abs().lt(_MOST_OFF) | lengths.eq(0)).all():
        raise _damaged("its features are not of unit length")
    k = settings.get("k")
    if not _is_whole(k) or not 1 <= k <= len(features):
        raise _damaged(f'"k" is {k!r}, no whole number from 1 to its {len(features)} training pictures')


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _damaged(reason: str) -> ModelError:
    return ModelError(f"This probe is damaged: {reason}. Save it again from the run that made it, or fit it again.")
