"""What is wrong in a snapshot, judged by its numbers and by those before it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from camapp.hooks.report.records import Of, Snapshot, TensorStatistics, Verdict

_PARAMETER: Of = "parameter gradient"


@dataclass(frozen=True)
class Thresholds:
    """From where on something is called wrong.

    The defaults leave healthy networks alone, freshly initialised or in training. Measured at the first steps of
    twelve of them (ResNet-18, DenseNet-121, VGG-11, MobileNetV3, EfficientNet-B0, ViT, Swin, ConvNeXt, an LSTM, MLPs
    with 20 layers): the root mean square (RMS) of a layer's gradient is from 1e-3 to 1e2 times that of the median
    layer, the head's up to 1e4 behind deep MLPs, and more only where layer scales of 1e-6 hold the others back.

    Args:
        vanishing_share: a layer's gradient vanishes below this share of the RMS of the median layer's.
        vanishing_p99: and where 99 of 100 of its elements are below this. (Adam divides by a gradient's own size plus
            1e-8, so that a gradient this small changes nothing there, nor in SGD; ConvNeXt begins at 1e-8.)
        exploding_rise: a norm explodes above this multiple of its own median in the last snapshots, if it is also
            above that of all others of its kind then: layers that begin at 0 may rise.
        exploding_after: so many earlier snapshots that median must rest on.
        exploding_spread: and where its RMS is above this multiple of the median layer's; a gradient's also above 1,
            where one step moves a weight by more than the learning rate.
        overflow_share: and where an element is above this share of the largest number of its dtype.
        dead_zeros: an activation function is dead where this share of its output is 0. (In trained networks 0.9
            occurs in healthy layers.)
        dead_units: or where this share of its units is 0 for the whole batch. (In deep, plain networks half of them
            are, from the beginning.)
        dead_batch: dead units of vectors count from this batch size on: of a few inputs many are 0 by chance.
        saturated: a bounded activation function is saturated where this share of its output is at a limit.
    """

    vanishing_share: float = 1e-5
    vanishing_p99: float = 1e-12
    exploding_rise: float = 100.0
    exploding_after: int = 5
    exploding_spread: float = 1e4
    overflow_share: float = 0.1
    dead_zeros: float = 0.99
    dead_units: float = 0.9
    dead_batch: int = 8
    saturated: float = 0.9


def verdicts(
    snapshot: Snapshot,
    history: Sequence[Snapshot] | None = None,
    *,
    thresholds: Thresholds | None = None,
    largest: Mapping[tuple[str, Of], float] | None = None,
) -> tuple[Verdict, ...]:
    """What is wrong in a snapshot, worst first.

    Args:
        snapshot: what was measured.
        history: the snapshots before it, oldest first; None where there can be none.
        thresholds: from where on something is wrong.
        largest: the largest number that a tensor's dtype holds, by name and kind; a tensor that is not in it is not
            judged by that.

    Returns:
        First what is not finite, in the order in which it spread: activations as they ran, gradients from the last
        layer back, parameters. Then what explodes, vanishes, is dead, is saturated, each in order.
    """
    limits = thresholds or Thresholds()
    past = [one for one in history or () if one.statistics][-50:]
    return (
        *_nonfinite(snapshot),
        *_unique(_exploding(snapshot, past, limits, largest or {})),
        *_vanishing(snapshot, None if history is None else past, limits),
        *_dead(snapshot, limits),
        *_saturated(snapshot, limits),
    )


def _nonfinite(snapshot: Snapshot) -> Iterator[Verdict]:
    if snapshot.loss is not None and not math.isfinite(snapshot.loss):
        yield Verdict("loss", "activation", "non-finite", f"The loss is {snapshot.loss}.")
    gradients = list(snapshot.of("gradient"))[::-1]
    for one in [*snapshot.of("activation"), *gradients, *snapshot.of(_PARAMETER)]:
        if one.nonfinite:
            count = math.prod(one.shape)
            why = f"{one.nonfinite} of {count} elements are NaN or infinite."
            yield Verdict(one.name, one.of, "non-finite", why)


def _exploding(
    snapshot: Snapshot, past: list[Snapshot], limits: Thresholds, largest: Mapping[tuple[str, Of], float]
) -> Iterator[Verdict]:
    for one in snapshot.statistics:
        top = largest.get((one.name, one.of), math.inf)
        if math.isfinite(one.abs_max) and one.abs_max > limits.overflow_share * top:
            why = f"The largest element is {one.abs_max:.2g}; its dtype ends at {top:.2g}."
            yield Verdict(one.name, one.of, "exploding", why)
    yield from _spread(snapshot, limits)
    if len(past) < limits.exploding_after:
        return
    before: dict[tuple[str, Of], list[float]] = {}
    for earlier in past:
        for one in earlier.statistics:
            if not one.nonfinite:
                before.setdefault((one.name, one.of), []).append(_rms(one))
    usual = {key: median(norms) for key, norms in before.items() if len(norms) >= limits.exploding_after}
    highest: dict[Of, float] = {}
    for (_, of), value in usual.items():
        highest[of] = max(value, highest.get(of, 0.0))
    for one in snapshot.statistics:
        level = usual.get((one.name, one.of))
        if level is None or one.nonfinite or _rms(one) <= max(limits.exploding_rise * level, highest[one.of]):
            continue
        times = f"{_rms(one) / level:.2g} times" if level else "far above"
        why = f"The norm {one.norm:.2g} is {times} its median of {level * _root(one):.2g} in the last snapshots."
        yield Verdict(one.name, one.of, "exploding", why)


def _spread(snapshot: Snapshot, limits: Thresholds) -> Iterator[Verdict]:
    """What is far above the others of its kind in the same snapshot."""
    active = [one for one in snapshot.of("activation") if not one.nonfinite]
    if active:
        level = median(_rms(one) for one in active)
        for one in active:
            if level and _rms(one) > limits.exploding_spread * level:
                why = f"The RMS {_rms(one):.2g} is {_rms(one) / level:.2g} times that of the median layer, {level:.2g}."
                yield Verdict(one.name, one.of, "exploding", why)
    layers = _by_layer(snapshot)
    if layers:
        level = median(layer.rms for layer in layers)
        for layer in layers:
            if level and layer.rms > max(1.0, limits.exploding_spread * level):
                why = (
                    f"The gradient's RMS {layer.rms:.2g} is {layer.rms / level:.2g} times that of the median layer, "
                    f"{level:.2g}."
                )
                yield Verdict(layer.name, _PARAMETER, "exploding", why)


def _vanishing(snapshot: Snapshot, past: list[Snapshot] | None, limits: Thresholds) -> Iterator[Verdict]:
    layers = _by_layer(snapshot)
    if not layers:
        return
    level = median(layer.rms for layer in layers)
    earlier = None if past is None else {layer.name: layer.rms for layer in (_by_layer(past[-1]) if past else ())}
    for layer in layers:
        if layer.rms == 0.0:
            # Branches that begin at 0 (the last norm of timm's residual blocks) pass no gradient at the first step.
            if earlier is None or earlier.get(layer.name) == 0.0:
                yield Verdict(layer.name, _PARAMETER, "vanishing", "All elements of the gradient are 0.")
        elif layer.rms < limits.vanishing_share * level:
            why = (
                f"The gradient's RMS {layer.rms:.2g} is {layer.rms / level:.2g} times that of the median layer, "
                f"{level:.2g}."
            )
            yield Verdict(layer.name, _PARAMETER, "vanishing", why)
        elif layer.p99 < limits.vanishing_p99:
            why = f"99 of 100 elements of the gradient are below {layer.p99:.2g}; RMS {layer.rms:.2g}."
            yield Verdict(layer.name, _PARAMETER, "vanishing", why)


def _dead(snapshot: Snapshot, limits: Thresholds) -> Iterator[Verdict]:
    for one in snapshot.of("activation"):
        if one.dead_units is None or one.nonfinite:
            continue
        enough = len(one.shape) > 2 or one.shape[0] >= limits.dead_batch
        if one.zero_share >= limits.dead_zeros or (enough and one.dead_units >= limits.dead_units):
            why = f"{one.dead_units:.1%} of the units are 0 for the whole batch, {one.zero_share:.1%} of all elements."
            yield Verdict(one.name, one.of, "dead", why)


def _saturated(snapshot: Snapshot, limits: Thresholds) -> Iterator[Verdict]:
    for one in snapshot.of("activation"):
        if one.saturated is not None and not one.nonfinite and one.saturated >= limits.saturated:
            why = f"{one.saturated:.1%} of the elements are within a hundredth of the range from a limit."
            yield Verdict(one.name, one.of, "saturated", why)


@dataclass(frozen=True)
class _LayerGradient:
    """The gradients of all parameters of one layer together.

    A layer is judged as a whole: the bias of an attention's keys gets no gradient by design, as softmax cancels it,
    and neither does a convolution's bias before a normalisation.
    """

    name: str
    rms: float
    p99: float


def _by_layer(snapshot: Snapshot) -> list[_LayerGradient]:
    owned: dict[str, list[TensorStatistics]] = {}
    for one in snapshot.of(_PARAMETER):
        owned.setdefault(one.name.rpartition(".")[0], []).append(one)
    found = []
    for of_layer in owned.values():
        if any(one.nonfinite for one in of_layer):
            continue
        main = max(of_layer, key=_rms)
        count = sum(math.prod(one.shape) for one in of_layer)
        rms = math.hypot(*(one.norm for one in of_layer)) / math.sqrt(max(1, count))
        found.append(_LayerGradient(main.name, rms, max(one.p99 for one in of_layer)))
    return found


def _rms(one: TensorStatistics) -> float:
    return one.norm / _root(one)


def _root(one: TensorStatistics) -> float:
    return math.sqrt(max(1, math.prod(one.shape)))


def _unique(found: Iterable[Verdict]) -> Iterator[Verdict]:
    """One verdict of a kind for each tensor: the first."""
    told: set[tuple[str, Of]] = set()
    for one in found:
        if (one.name, one.of) not in told:
            told.add((one.name, one.of))
            yield one
