"""Which part of what a model returned is explained, and what of it belongs to one picture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch

from camapp.errors import OutputError

# A key or field, a position, or a function of what the model returned; None to find it.
How: TypeAlias = str | int | Callable[[Any], Any] | None
# A tensor whose first axis is the batch, or a list of one entry a picture.
Output: TypeAlias = torch.Tensor | list[Any]

# Where models put what they are asked for: Hugging Face, torchvision's segmentation, CLIP, encoders.
USUAL_KEYS = ("logits", "out", "logits_per_image", "image_embeds", "pooler_output")


def pick_output(output: Any, rows: int, how: How = None) -> Output:
    """The part of a model's output that is explained.

    Without ``how``: a tensor as it is; the first tensor of a tuple or list; the first of ``USUAL_KEYS`` that a dict
    or an object has; a list of one dict a picture (a detector's).

    Args:
        output: what the model returned.
        rows: the batch size N.
        how: a key or field's name, a position, or a function that returns a tensor (N, ...), a list of N entries, or
            a dict or tuple of tensors (N, ...), of which targets then see one row.

    Returns:
        A tensor (N, ...), or a list of N.

    Raises:
        OutputError: there is nothing of the kind; the message says what there is.
    """
    found = _find(output, rows) if how is None else _pick(output, how)
    if isinstance(found, torch.Tensor):
        return _checked(found, rows)
    if how is not None and isinstance(found, dict) and _are_rows(list(found.values()), rows):
        return [{key: value[row] for key, value in found.items()} for row in range(rows)]
    if how is not None and isinstance(found, tuple | list) and _are_rows(list(found), rows):
        return [tuple(value[row] for value in found) for row in range(rows)]
    if isinstance(found, tuple | list) and len(found) == rows:
        return list(found)
    raise OutputError(
        f"The model returned {_describe(output)}, which contains no class scores. Say by output=... where they are: "
        "a key, a position, or a function of what the model returned."
    )


def class_logits(output: Any, rows: int) -> torch.Tensor:
    """The class scores (N, classes) in what a classifier returned.

    Args:
        output: what the model returned.
        rows: the batch size N.

    Raises:
        OutputError: there are none; the message says what there is.
    """
    found = pick_output(output, rows)
    if not isinstance(found, torch.Tensor) or found.dim() != 2:
        raise OutputError(f"The model returned {_describe(output)}; needed are class scores (batch, classes).")
    return found


def _find(output: Any, rows: int) -> Any:
    if isinstance(output, torch.Tensor):
        return output
    for key in USUAL_KEYS:
        value = output.get(key) if isinstance(output, dict) else getattr(output, key, None)
        if isinstance(value, torch.Tensor):
            return value
    if isinstance(output, tuple | list):
        if len(output) == rows and output and all(isinstance(item, dict) for item in output):
            return output
        return next((item for item in output if isinstance(item, torch.Tensor)), None)
    return None


def _pick(output: Any, how: How) -> Any:
    if callable(how):
        return how(output)
    try:
        if isinstance(how, str) and not isinstance(output, dict):
            return getattr(output, how)
        return output[how]
    except (AttributeError, KeyError, IndexError, TypeError) as error:
        raise OutputError(f"output={how!r}: the model returned {_describe(output)}, which has no such part.") from error


def _checked(found: torch.Tensor, rows: int) -> torch.Tensor:
    if found.dim() == 0 or len(found) != rows:
        raise OutputError(
            f"The model returned scores of shape {tuple(found.shape)} for a batch of {rows}; needed: (batch, classes)."
        )
    return found[:, None] if found.dim() == 1 else found


def _are_rows(values: list[Any], rows: int) -> bool:
    return bool(values) and all(isinstance(v, torch.Tensor) and v.dim() and len(v) == rows for v in values)


def _describe(output: Any) -> str:
    if isinstance(output, torch.Tensor):
        return f"a tensor {tuple(output.shape)}"
    if isinstance(output, dict):
        return f"a dict with the keys {', '.join(map(str, output))}"
    if isinstance(output, tuple | list):
        return f"a {type(output).__name__} of {len(output)}"
    fields = [name for name, value in getattr(output, "__dict__", {}).items() if isinstance(value, torch.Tensor)]
    return f"a {type(output).__name__}" + (f" with the tensors {', '.join(fields)}" if fields else "")
