"""Whether any of many tensors holds NaN or infinity, in one read of them and without waiting for the device."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

_DEVICE_FREE = ("meta",)  # tensors without values


def nonfinite_flag(tensors: Iterable[torch.Tensor | None]) -> torch.Tensor:
    """Whether any element of any of ``tensors`` is NaN or infinite.

    Every element is looked at, and nothing is summed: large elements raise no false alarm, in float16 neither.

    Args:
        tensors: tensors of any shapes, dtypes and devices; None and tensors of integers are skipped.

    Returns:
        A 0-d bool tensor on the device of the first tensor, computed without a synchronisation; False for no tensors.
    """
    groups: dict[tuple[torch.device, torch.dtype], list[torch.Tensor]] = {}
    with torch.no_grad():
        for tensor in tensors:
            if tensor is not None and (real := real_values(tensor)) is not None:
                groups.setdefault((real.device, real.dtype), []).append(real)
        flags = [_flag(group) for group in groups.values()]
        if not flags:
            return torch.zeros((), dtype=torch.bool)
        if len(flags) == 1:
            return flags[0]
        return torch.stack([flag.to(flags[0].device, non_blocking=True) for flag in flags]).any()


def real_values(tensor: torch.Tensor) -> torch.Tensor | None:
    """The elements of ``tensor`` as real numbers in a dtype that can be measured; None where it has none.

    Complex numbers are their two parts; of a sparse tensor only the elements that are stored count.
    """
    if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.device.type in _DEVICE_FREE:
        return None
    values = stored(tensor).detach()
    if values.is_complex():
        values = torch.view_as_real(values.resolve_conj())
    if not values.numel():
        return None
    if values.element_size() == 1:
        return values.float()  # torch 2.14 compares no numbers of 8 bits
    return values


def stored(tensor: torch.Tensor) -> torch.Tensor:
    """The dense tensor that holds the elements of ``tensor``: itself, or the values of a sparse one."""
    if tensor.is_nested:
        return tensor.values()
    if tensor.layout is torch.strided:
        return tensor
    if tensor.layout is torch.sparse_coo:
        return tensor._values()
    if tensor.layout in _COMPRESSED:
        return tensor.values()
    return tensor.to_dense()


_COMPRESSED: tuple[Any, ...] = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


def _flag(group: list[torch.Tensor]) -> torch.Tensor:
    """The extremes of a tensor are NaN or infinite if any element is; neither of them can overflow.

    On a CPU the maximum norm of torch 2.14 takes 20 times as long as one read of memory, and the extremes one read; on
    a GPU the norms of all tensors take few launches, and the extremes at least one for each.
    """
    if group[0].device.type == "cpu":
        extremes = [extreme for tensor in group for extreme in tensor.aminmax()]
    else:
        extremes = list(torch._foreach_norm(group, float("inf")))
    return torch.stack(extremes).isfinite().all().logical_not()
