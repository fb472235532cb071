"""Replays: a network run again, without gradients, on altered pictures or altered activations, for its scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Literal, TypeAlias
from weakref import WeakKeyDictionary

import torch
from torch import nn

from camapp.backbones.inputs import run_channels_last
from camapp.backbones.layouts import Layout, find_layout
from camapp.cam.passes import Passes, mixes_rows
from camapp.cam.shot import Seen, Shot
from camapp.cam.targets.target import whole_number
from camapp.errors import LayerError, UsageError
from camapp.hooks.capture import REPETITION_FAULTS, NotExpandable
from camapp.hooks.layers import find_layer
from camapp.hooks.substitute import Substitute

# What the altered copies of a layer's output may take in one run, where no batch size was given.
MOST_LAYER_BYTES = 256 * 2**20
# Of a call that somebody watches, or that may be stopped, no more copies run at once.
WATCHED_ROWS = 64
# What altered pictures may take in one run: the network's own activations take tens of times more.
MOST_PICTURE_BYTES = 5 * 2**20

# Changes rows of a layer's output in place: ``maps`` (n, C, *grid) is a view of them, ``numbers`` (n,) says which
# alteration each row is to have.
AlterMaps: TypeAlias = Callable[[torch.Tensor, torch.Tensor], None]
# Pictures (n, C, *size) made from one, (1, C, *size), for the alterations ``numbers`` (n,).
AlterPicture: TypeAlias = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

# How a layer is replayed: the copies are made behind it; the picture is repeated before the network; or, where the
# network mixes the rows of a batch, one copy at a time.
Way: TypeAlias = Literal["behind", "before", "alone"]

# Per model, and per layer, output and modules: the way that works, once known.
_ways: WeakKeyDictionary[nn.Module, dict[tuple[Any, ...] | None, Way]] = WeakKeyDictionary()

# Per model, and per output and modules: whether the rows of a batch do not depend on each other, once known.
_apart: WeakKeyDictionary[nn.Module, dict[tuple[Any, ...] | None, bool]] = WeakKeyDictionary()


def layer_maps(passes: Passes) -> Shot:
    """One forward; its reading of each layer is the activation as maps (B, C, *grid) in float32."""

    def read(seen: Seen) -> tuple[torch.Tensor, ...]:
        layout = find_layout(passes.model, seen.layer, seen.activation.shape, passes.inputs.shape)
        return (layout.to_maps(seen.activation).float(),)

    return passes.activations(read)


def weighted_maps(weights: torch.Tensor, maps: torch.Tensor) -> torch.Tensor:
    """The maps (B, C, *grid) summed over their channels by weights (B, K, C), as (B * K, *grid)."""
    with torch.autocast(maps.device.type, enabled=False):
        summed = weights.to(maps.dtype) @ maps.flatten(2)
    return summed.flatten(0, 1).unflatten(1, maps.shape[2:])


def picture_scores(
    passes: Passes, shot: Shot, row: int, count: int, alter: AlterPicture, batch_size: int | None = None
) -> torch.Tensor:
    """The scores (count, K) of ``count`` altered versions of the picture ``row``, made as they are needed.

    Args:
        passes: the call's passes; its watch counts the versions run.
        shot: where the targets were settled.
        row: the picture.
        count: how many versions there are.
        alter: makes some of them.
        batch_size: how many run at once; by default as many as ``MOST_PICTURE_BYTES`` hold. One at a time where the
            rows of a batch depend on each other, which the first chunk tells.
    """
    picture = passes.inputs[row : row + 1]
    size = 1 if mixes_rows(passes.model) else batch_size or rows_within(MOST_PICTURE_BYTES, picture)

    def scores(numbers: torch.Tensor, *, counted: bool = True) -> torch.Tensor:
        with torch.no_grad(), torch.autocast(picture.device.type, enabled=False):
            pictures = alter(picture, numbers)

        def run(batch: torch.Tensor) -> torch.Tensor:
            return passes.scores(batch, shot.aims, row, counted=counted)

        return run_channels_last(passes.model, run, pictures.to(picture.dtype))

    known, case = _apart.setdefault(passes.model, {}), passes.case()
    apart = known.get(case)
    if apart is None and size > 1 and count > 1:
        first = torch.arange(min(size, count, 4), device=picture.device)
        apart = _alike(scores(first, counted=False)[:1], scores(first[:1], counted=False))
        if case is not None:
            known[case] = apart
    size = 1 if apart is False else size
    return torch.cat([scores(numbers) for numbers in _chunks(count, size, picture.device)])


class LayerReplay:
    """Runs a network again on altered copies of what one layer gave.

    The network before the layer runs on one picture; the copies are made at the layer, so that only the network behind
    it runs on many rows. Where a branch around the layer still carries one row and cannot be joined to them, the
    picture is repeated before the network and the copies are altered at the layer; where the network mixes the rows of
    a batch, the copies run one by one. Which of the three is found out once for each layer and remembered for the
    model: three copies, of which two are altered strongly, must leave the third with the scores of the picture alone.

    Args:
        passes: the call's passes; its watch counts the copies run.
        shot: the first forward: the targets, and how often the layer runs.
        layer: the layer's key.
        batch_size: how many copies run at once; by default as many as ``MOST_LAYER_BYTES`` hold.
    """

    def __init__(self, passes: Passes, shot: Shot, layer: str, batch_size: int | None = None) -> None:
        found = find_layer(passes.model, layer)
        call = shot.calls[layer] - 1 if found.call is None else found.call
        self._passes = passes
        self._shot = shot
        self._layer = layer
        self._place = replace(found, call=call).key  # the copies of a last call would reach the calls before it
        self._batch_size = batch_size
        self._layout: Layout | None = None

    def scores(self, row: int, count: int, alter: AlterMaps) -> torch.Tensor:
        """The scores (count, K) of the picture ``row``, for ``count`` alterations of what the layer gave."""
        known = _ways.setdefault(self._passes.model, {})
        case = self._passes.case(self._layer)
        way = known.get(case) or self._way_that_works(row)
        if case is not None:
            known[case] = way
        done = 0
        parts = []
        while done < count:
            numbers = torch.arange(done, min(count, done + self._rows(row, way)), device=self._passes.inputs.device)
            try:
                parts.append(self._run(row, numbers, alter, way))
            except NotExpandable:  # it took the copies once, but not this many, or not of this picture
                way = "before"
                continue
            done += len(numbers)
            self._passes.watch.step(len(numbers))
        return torch.cat(parts)

    def _rows(self, row: int, way: Way) -> int:
        """How many copies run at once."""
        if way == "alone":
            return 1
        maps, picture = self._shot.read[self._layer][0], self._passes.inputs[row : row + 1]
        if way == "behind":
            fitting = rows_within(MOST_LAYER_BYTES, maps[:1])
            return self._batch_size or (min(fitting, WATCHED_ROWS) if self._passes.watch.watched else fitting)
        return self._batch_size or rows_within(MOST_PICTURE_BYTES, picture)

    def _way_that_works(self, row: int) -> Way:
        numbers = torch.arange(3, device=self._passes.inputs.device)
        alone = self._run(row, numbers[:1], _strongly, "alone")
        ways: tuple[Way, ...] = ("behind", "before")
        for way in ways:
            try:
                scores = self._run(row, numbers, _strongly, way)
            except torch.OutOfMemoryError:
                raise
            except _FAULTS:
                continue  # a fault that is not of the copies has shown above, on one row
            if _alike(scores[:1], alone):
                return way
        return "alone"

    def _run(self, row: int, numbers: torch.Tensor, alter: AlterMaps, way: Way) -> torch.Tensor:
        """One run, on as many copies as there are numbers.

        Raises:
            NotExpandable: the network behind the layer does not take the copies.
        """
        passes, copies = self._passes, len(numbers)
        picture = passes.inputs[row : row + 1]

        def altered(output: torch.Tensor) -> torch.Tensor:
            rows = _repeated(output, copies) if way == "behind" else output.clone()
            layout = self._layout or find_layout(
                passes.model, self._layer, rows.shape, (len(rows), *passes.inputs.shape[1:])
            )
            self._layout = layout
            maps = layout.to_maps(rows)
            alter(maps, numbers)
            layout.put_back(maps, rows)
            return rows

        inputs = picture.clone() if way == "behind" else _repeated(picture, copies)
        with Substitute(passes.model, self._place, altered) as substitute, torch.no_grad():
            try:
                scores = self._shot.aims.scores_of_row(passes.pick(passes.model(inputs), copies), row)
            except _FAULTS as error:
                if way != "behind" or isinstance(error, torch.OutOfMemoryError):
                    raise
                raise NotExpandable from error
        if substitute.altered == 0:
            raise LayerError(
                f'"{self._place}" ran in the first forward, but not in a second one. Choose another layer.'
            )
        return scores


def rows_within(most_bytes: int, one: torch.Tensor) -> int:
    """How many rows like ``one`` (1, ...) fit into so many bytes, one at least."""
    return max(1, most_bytes // max(1, one.nbytes))


def checked_count(name: str, value: int) -> int:
    """An option that is a positive whole number.

    Raises:
        UsageError: it is none.
    """
    count = whole_number(value)
    if count is None or count < 1:
        raise UsageError(f"{name} = {value!r} is no positive whole number.")
    return count


_FAULTS = (*REPETITION_FAULTS, NotExpandable)


def _chunks(count: int, size: int, device: torch.device) -> Iterator[torch.Tensor]:
    for start in range(0, count, size):
        yield torch.arange(start, min(count, start + size), device=device)


def _alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two scores of one picture differ by no more than the rounding of another batch size."""
    half = one.dtype in (torch.float16, torch.bfloat16)
    rtol, atol = (2e-2, 1e-2) if half else (1e-4, 1e-5)
    return torch.allclose(one, other, rtol=rtol, atol=atol, equal_nan=True)


def _repeated(one: torch.Tensor, copies: int) -> torch.Tensor:
    """Copies of one row, each with memory of its own."""
    if len(one) != 1:
        raise NotExpandable
    return one.repeat(copies, *[1] * (one.dim() - 1))


def _strongly(maps: torch.Tensor, numbers: torch.Tensor) -> None:
    """Leave the first row as it is, blank the second, enlarge the third: their mean is not the first."""
    factors = maps.new_tensor([1.0, 0.0, 3.0])[numbers]
    maps.mul_(factors.view(-1, *[1] * (maps.dim() - 1)))
