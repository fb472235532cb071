"""The figures of one tensor, computed on its device without waiting for it, and read later with many others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from camapp.hooks.inspector.sample import Quantiles, quantiles, sampled

# Elements are brought into this range before they are squared, so that neither squares nor their sum leave float32.
_SMALLEST, _LARGEST = 1e-15, 1e12
# A sum of ones in float32 is exact up to here.
_EXACT = 2**24
# Within this share of its range from a limit, a bounded activation function is saturated.
SATURATION_MARGIN = 0.01


@dataclass(frozen=True)
class Bounds:
    """The limits of what an activation function gives.

    Args:
        lower: the lower limit; None where being there is not saturation (the zeros of ReLU6).
        upper: the upper limit.
        span: the width of the range.
    """

    lower: float | None
    upper: float
    span: float


@dataclass(frozen=True)
class Reading:
    """What was measured of a tensor, still on its device.

    Args:
        shape: the tensor's shape.
        dtype: its dtype.
        names: what the values are.
        values: 1-D, in that order; None of an empty tensor.
        sample: absolute values of some elements, 1-D.
        units: how many units the dead ones are counted of; 0 where they are not counted.
        bounded: whether elements close to limits were counted.
        implicit: how many zeros a sparse tensor does not store.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    names: tuple[str, ...]
    values: torch.Tensor | None
    sample: torch.Tensor
    units: int = 0
    bounded: bool = False
    implicit: int = 0


@dataclass(frozen=True)
class Figures:
    """The figures of one tensor as numbers; the fields are those of ``TensorStatistics``."""

    norm: float
    mean: float
    abs_max: float
    zero_share: float
    nonfinite: int
    p50: float
    p95: float
    p99: float
    dead_units: float | None = None
    saturated: float | None = None

    def over(self, scale: float) -> Figures:
        """The figures of the tensor divided by ``scale``, above 0."""
        if scale == 1.0:
            return self
        lengths = {name: getattr(self, name) / scale for name in ("norm", "mean", "abs_max", "p50", "p95", "p99")}
        return replace(self, **lengths)


def measurable(tensor: torch.Tensor) -> bool:
    """Whether a tensor holds real numbers that ordinary operations reach: not one of integers, meta or fake ones."""
    return (
        tensor.is_floating_point()
        and tensor.layout is torch.strided
        and tensor.device.type != "meta"
        and type(tensor).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)  # within vmap or torch.func.grad
    )


def measure(tensor: torch.Tensor, most: int, *, unit_axis: int | None = None, bounds: Bounds | None = None) -> Reading:
    """Measure a tensor on its device; nothing waits for the result, and the tensor may be changed afterwards.

    Args:
        tensor: any shape, of real numbers; gradients may also be sparse (COO).
        most: how many elements the quantiles may rest on.
        unit_axis: count the units along this axis that are 0 throughout.
        bounds: count the elements close to these limits.
    """
    shape, dtype, implicit = tuple(tensor.shape), tensor.dtype, 0
    tensor = tensor.detach()
    if tensor.layout is not torch.strided:
        tensor = tensor.coalesce().values()  # waits for a GPU: sparse gradients are known to torch no other way
        implicit = math.prod(shape) - tensor.numel()
    flat = _flat(tensor)
    if not flat.numel():
        return Reading(shape, dtype, (), None, flat.new_empty(0, dtype=torch.float32), implicit=implicit)
    values = flat if flat.dtype in (torch.float32, torch.float64) else flat.float()
    found = _scalars(values, bounds)
    units = 0
    if unit_axis is not None and tensor.dim() > 1:
        found["dead"] = _dead(tensor, unit_axis)
        units = tensor.shape[unit_axis]
    joined = torch.stack([_wide(value) for value in found.values()])  # one object to keep, not ten
    return Reading(shape, dtype, tuple(found), joined, sampled(values, most), units, bounds is not None, implicit)


def read(readings: Sequence[Reading], scalars: Sequence[torch.Tensor] = ()) -> tuple[list[Figures], list[float]]:
    """Fetch readings, and further scalars, with one transfer (one for each device that they are on).

    Args:
        readings: what ``measure`` gave.
        scalars: 0-d tensors of real numbers.

    Returns:
        The figures of the readings and the values of the scalars, in order.
    """
    figures: dict[int, Figures] = {}
    numbers: dict[int, float] = {}
    for device in dict.fromkeys([*(one.sample.device for one in readings), *(one.device for one in scalars)]):
        here = [place for place, one in enumerate(readings) if one.sample.device == device]
        extra = [place for place, one in enumerate(scalars) if one.device == device]
        values, found, fetched = _fetch([readings[place] for place in here], [scalars[place] for place in extra])
        for place, value, quantile in zip(here, values, found, strict=True):
            figures[place] = _figures(readings[place], value, quantile)
        numbers.update(zip(extra, fetched, strict=True))
    return [figures[place] for place in range(len(readings))], [numbers[place] for place in range(len(scalars))]


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """The elements in the order of memory: a view, except of what has gaps or repeats."""
    if tensor.is_contiguous():
        return tensor.view(-1)
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    return tensor.permute(order).reshape(-1)


def _scalars(values: torch.Tensor, bounds: Bounds | None) -> dict[str, torch.Tensor]:
    """Read the tensor a few times, in as few operations as there can be: they are most of what an inspection costs.

    On a CPU torch 2.14 counts non-zeros, reduces boolean tensors and takes maximum norms 4 to 25 times slower than it
    sums, so that everything is a sum here; and its norm of 20 million float32 is off by 3e-4, its sum by 4e-8.
    """
    low, high = torch.aminmax(values)
    largest = torch.maximum(high, -low)
    # 1 for ordinary elements, 0 where any is not finite: then what is left of a product is 0, or NaN for just those.
    scale = (largest.clamp(_SMALLEST, _LARGEST) / largest).nan_to_num(nan=0.0, posinf=1.0)
    work = values * scale
    found = {"low": low, "high": high, "scale": scale, "total": work.sum()}
    found["square"] = work.mul_(work).sum()
    found["nonfinite"] = _counted(torch.ne(work, work, out=work))
    found["zeros"] = _counted(torch.eq(values, 0.0, out=work))
    if bounds is not None:
        margin = SATURATION_MARGIN * bounds.span
        found["upper"] = _counted(torch.ge(values, bounds.upper - margin, out=work))
        if bounds.lower is not None:
            found["lower"] = _counted(torch.le(values, bounds.lower + margin, out=work))
    return found


def _counted(ones: torch.Tensor) -> torch.Tensor:
    return ones.sum() if ones.numel() <= _EXACT else torch.count_nonzero(ones)


def _dead(tensor: torch.Tensor, axis: int) -> torch.Tensor:
    """How many units along ``axis`` are 0 throughout; NaN is not 0."""
    others = tuple(place for place in range(tensor.dim()) if place != axis % tensor.dim())
    return ((tensor.amax(others) == 0) & (tensor.amin(others) == 0)).sum()


def _fetch(
    readings: list[Reading], scalars: list[torch.Tensor]
) -> tuple[list[dict[str, float]], list[Quantiles], list[float]]:
    samples = quantiles([one.sample for one in readings])
    own = [one.values for one in readings if one.values is not None]
    parts = [*own, *([torch.stack([_wide(one.detach()) for one in scalars])] if scalars else []), *samples.parts]
    numbers = iter(torch.cat(parts).cpu().tolist() if parts else [])
    values = [{name: next(numbers) for name in one.names} for one in readings]
    fetched = [next(numbers) for _ in scalars]
    return values, samples.read(list(numbers)), fetched


def _wide(value: torch.Tensor) -> torch.Tensor:
    """A count of more than float32 can tell apart goes into float64, and torch.stack takes the others with it."""
    value = value.reshape(())
    if value.dtype in (torch.float32, torch.float64):
        return value
    return value.float() if value.is_floating_point() or value.device.type == "mps" else value.double()


def _figures(reading: Reading, values: dict[str, float], quantile: Quantiles) -> Figures:
    count = math.prod(reading.shape)
    if not values:
        return Figures(0.0, 0.0 if count else math.nan, 0.0, 1.0 if count else 0.0, 0, *quantile)
    low, high, scale = values["low"], values["high"], values["scale"]
    abs_max = math.nan if math.isnan(low) or math.isnan(high) else max(abs(low), abs(high))
    finite = math.isfinite(abs_max)
    near = values.get("upper", 0.0) + values.get("lower", 0.0)
    return Figures(
        norm=math.sqrt(values["square"]) / scale if finite else abs_max,
        # Of infinite elements of both signs the mean is NaN, as is their sum.
        mean=values["total"] / scale / count if finite else low + high if math.isinf(abs_max) else math.nan,
        abs_max=abs_max,
        zero_share=(values["zeros"] + reading.implicit) / count,
        nonfinite=round(values["nonfinite"]),
        p50=quantile[0],
        p95=quantile[1],
        p99=quantile[2],
        dead_units=values["dead"] / reading.units if reading.units else None,
        saturated=near / count if reading.bounded else None,
    )
