"""What an operation takes, changes and gives, as its schema says, and where torch's schemas keep silent."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

# Tensors within torch.func.vmap and grad show no values; the operations on what they wrap are seen.
_is_wrapped = getattr(torch._C._functorch, "is_functorch_wrapped_tensor", lambda tensor: False)

_MAKE_MEMORY = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}
# What these find in the tensor that they write plays no part.
_OVERWRITE = {"copy_", "fill_", "zero_", "normal_", "uniform_", "bernoulli_", "random_"}
# torch 2.14 does not say in their schemas that these write running statistics.
_WRITE_SILENTLY = {
    "native_batch_norm": ("running_mean", "running_var"),
    "cudnn_batch_norm": ("running_mean", "running_var"),
    "miopen_batch_norm": ("running_mean", "running_var"),
}


@dataclass(frozen=True)
class Operand:
    """An argument of a call.

    Args:
        name: its name in the schema; empty where that has none.
        value: what was given.
        written: whether the operation writes it.
        read: whether what was in it plays a part.
    """

    name: str
    value: Any
    written: bool = False
    read: bool = True

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The tensors of real or complex numbers in it."""
        return real_tensors(self.value)


def operands(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Operand]:
    """The arguments of a call of an operation, in order."""
    declared = _declared(func)
    found = [
        Operand(*((declared[place].name, value, *declared[place].uses) if place < len(declared) else ("", value)))
        for place, value in enumerate(args)
    ]
    if kwargs:
        uses = {one.name: one.uses for one in declared}
        found += [Operand(name, value, *uses.get(name, ())) for name, value in kwargs.items()]
    return found


@cache
def may_be_view(func: Any) -> bool:
    """Whether all that an operation returns may be views of what it takes, while it writes nothing."""
    schema = getattr(func, "_schema", None)
    if schema is None or not schema.returns or any(one.uses[0] for one in _declared(func)):
        return False
    return all(returned.alias_info is not None for returned in schema.returns)


@cache
def makes_memory(func: Any) -> bool:
    """Whether an operation makes memory and leaves in it what was there."""
    return short_name(func) in _MAKE_MEMORY


@cache
def short_name(func: Any) -> str:
    """The name of an operation without its namespace and its overload, such as ``div``."""
    schema = getattr(func, "_schema", None)
    return str(func) if schema is None else str(schema.name).rpartition("::")[2]


def real_tensors(value: Any) -> list[torch.Tensor]:
    """The tensors of real or complex numbers in an argument or a result."""
    if isinstance(value, torch.Tensor):
        real = (value.is_floating_point() or value.is_complex()) and not _is_wrapped(value)
        return [value] if real else []
    if isinstance(value, list | tuple):
        return [tensor for part in value for tensor in real_tensors(part)]
    return []


@dataclass(frozen=True)
class _Declared:
    name: str
    uses: tuple[bool, bool]  # whether it is written, and whether it is read


@cache
def _declared(func: Any) -> list[_Declared]:
    schema = getattr(func, "_schema", None)
    if schema is None:  # of operations that take functions
        return []
    silently = _WRITE_SILENTLY.get(short_name(func), ())
    overwrites = short_name(func) in _OVERWRITE
    found = []
    for argument in schema.arguments:
        said = argument.alias_info is not None and argument.alias_info.is_write
        written = said or argument.name in silently
        found.append(_Declared(argument.name, (written, not (said and (overwrites or argument.kwarg_only)))))
    return found
