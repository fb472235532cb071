"""Recording: the first layer of a manager, which only collects."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from camapp.errors import UsageError
from camapp.hooks.edits import precise
from camapp.hooks.layers import Layer
from camapp.hooks.manager.places import Place, find_places
from camapp.hooks.manager.recordings import Recorded, Recordings, Spot, within
from camapp.hooks.manager.reducers import Reducer, find_reducer
from camapp.hooks.manager.registry import Registry
from camapp.hooks.manager.session import Session
from camapp.hooks.manager.stations import Action, LayerStation, Of, Station, TensorStation
from camapp.hooks.manager.storage import Storage
from camapp.hooks.schedules import Active, schedule
from camapp.hooks.structures import tensors_in, with_tensors


class Recording(Registry):
    """What a manager records, and where it can be read."""

    @property
    def activations(self) -> Recorded:
        """What recorded layers gave (or were given), by name."""
        return self._session.recordings.activations

    @property
    def gradients(self) -> Recorded:
        """The gradients of what recorded layers gave (or were given), of parameters and of tensors, by name."""
        return self._session.recordings.gradients

    @property
    def recordings(self) -> Recordings:
        """Both together, as rules of edits see them; holds no manager."""
        return self._session.recordings

    def record(
        self,
        place: Place | Iterable[Place],
        *,
        of: Of | None = None,
        reduce: str | Reducer | None = None,
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = None,
        every: int | Active = 1,
        keep: int = 1,
        accumulated: bool = False,
        name: str | None = None,
    ) -> None:
        """Record what layers give, or the gradients of layers, parameters and tensors; nothing is changed.

        What is kept is detached, and a copy wherever later operations could write to it. What stands before an edit at
        the same place records what comes in, what stands behind it what goes out.

        Args:
            place: layers by name (``"layer4"``, ``"layer4:input"``, ``"lstm#1.0"``, ``"relu@0"``), glob, class
                (``nn.Conv2d``) or module; parameters by name, glob (``"*.weight"``) or themselves; a tensor; several.
            of: ``"activation"`` or ``"gradient"``; by default the activation of layers and the gradient of the rest.
            reduce: what to keep instead of all: ``"norm"``, ``"mean"``, ``"abs_max"``, ``"histogram"`` or any function
                of the tensor; stays on the device, so that nothing waits for it.
            device: where to keep it, such as ``"cpu"``; where it is by default.
            dtype: as what to keep it, such as ``torch.float16``; as it is by default.
            every: record at every so many forwards, or a function of the forward's number that says whether to.
            keep: of how many steps; ``steps()`` of the recordings has all of them.
            accumulated: of parameters, their ``.grad`` after each backward, the sum over micro-batches, instead of the
                gradient of that backward alone.
            name: a name for it, by which it can be removed.

        Raises:
            LayerError: a place that the model does not have.
            UsageError: an activation of a parameter, an unknown reducer, or a closed manager.
        """
        active = schedule(every)
        reducer = find_reducer(reduce)
        if isinstance(keep, bool) or not isinstance(keep, int) or keep < 1:
            raise UsageError(f"keep is a whole number of steps from 1, not {keep!r}.")
        keeping = _Keeping(self._session, reducer, device, dtype, keep)
        self._check_open()
        twice = self._recorded_already(place, of, name)

        def make(name: str, key: str, layer: bool) -> Action:
            kind = _kind(of, layer, accumulated)
            filed = _Filed(name, twice[key]) if key in twice else None
            run = _look if accumulated else keeping.writer(kind, filed)
            return Action(name, name, "record", kind, run, active, watches=True)

        for station, action in self._register(place, "record", name, make):
            if isinstance(station, TensorStation) and accumulated:
                self._accumulated(station, action, keeping)
            filed = action.name if _key_at(station, action) in twice else station.name
            recorded = self._session.recordings.of(action.of)
            recorded.expect(action.name, filed)
            self._session.on_begin[action.name] = _beginning(station, action, recorded, filed)

    def store_gradients(self, place: Place | Iterable[Place] = "*", **options: Any) -> None:
        """Record the gradient of every parameter (or of those meant) as each is produced; options as in ``record``."""
        names = [name for name, one in self.model.named_parameters() if one.requires_grad] if place == "*" else place
        self.record(names, of="gradient", **options)

    def collect(
        self,
        place: Place,
        rows: int,
        *,
        reduce: Callable[[torch.Tensor], torch.Tensor] | None = None,
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = None,
        name: str | None = None,
    ) -> Storage:
        """Keep what one layer gives for a whole data set, in one tensor that is allocated once and written by index.

        Args:
            place: one layer.
            rows: how many rows there will be.
            reduce: what to keep of a batch, its first axis kept, such as ``lambda x: x.mean((2, 3))``.
            device: where the tensor lies; on the CPU by default.
            dtype: its dtype; that of the first batch by default.
            name: a name for it, by which it can be removed.

        Returns:
            The storage: ``storage.tensor`` are the rows so far; ``storage.next_rows`` says where the next batch goes,
            for data in another order.

        Raises:
            LayerError: a place that the model does not have.
            UsageError: several places, or no whole number of rows from 1.
        """
        storage = Storage(rows, reduce, device or "cpu", dtype)

        if reduce is not None and not callable(reduce):
            raise UsageError(f"reduce is a function of a batch that keeps its first axis, not {reduce!r}.")

        def write(tensor: torch.Tensor, spot: Spot, step: int) -> None:
            storage.write(tensor)

        def make(name: str, key: str, layer: bool) -> Action:
            return Action(name, name, "collect", _kind("activation", layer, False), write, schedule(1), watches=True)

        layers = self._register(place, "collect", name, make)
        if len(layers) != 1:
            for station, action in layers:
                station.actions.remove(action)
            raise UsageError(f"One storage takes the rows of one layer; {len(layers)} are meant by {place!r}.")
        return storage

    @property
    def without_gradient(self) -> dict[str, str]:
        """The places whose gradients were asked for in the last forward and did not come, each with the reason."""
        missing = {}
        for station in self._stations:
            if isinstance(station, LayerStation) and station.step != self._session.step:
                continue
            for spot in station.no_graph:
                missing[spot.key] = "requires no gradient: it is frozen, or ran under no_grad()"
            for spot in station.asked:
                missing[spot.key] = "no gradient came back: it is not on the way to the loss, or no backward ran"
        return missing

    def _recorded_already(self, place: Place | Iterable[Place], of: Of | None, name: str | None) -> dict[str, Layer]:
        """The places, by key, that something records already, whose second record needs a name of its own."""
        layers, tensors = find_places(self.model, place)
        found: dict[str, Layer] = {}
        for station in self._stations:
            for action in station.actions:
                if action.what != "record":
                    continue
                if isinstance(station, LayerStation) and of in (None, action.of):
                    found |= {layer.key: layer for layer in layers if _overlap(layer, station, action)}
                elif isinstance(station, TensorStation):
                    same = [key for key, tensor in tensors.items() if tensor is station.tensor()]
                    found |= {key: Layer(key, self.model) for key in same}
        if found and name is None:
            which = ", ".join(sorted(found)[:3])
            raise UsageError(f"{which}: recorded already. Give this record a name=, under which it is found.")
        return found

    def _accumulated(self, station: TensorStation, action: Action, keeping: _Keeping) -> None:
        parameter = station.tensor()
        if parameter is None or not parameter.is_leaf:
            raise UsageError(f"{station.name} accumulates no gradient: only parameters and other leaves do.")
        session, name, write = self._session, station.name, keeping.writer("gradient", None)

        def on_accumulated(parameter: torch.Tensor) -> None:
            if action.live and session.heeded and action.active(session.step) and parameter.grad is not None:
                write(parameter.grad, Spot(name), session.step)

        session.handles.post_accumulate(parameter, on_accumulated)


class _Keeping:
    """How values are kept; holds the session and no manager."""

    def __init__(
        self,
        session: Session,
        reducer: Reducer | None,
        device: str | torch.device | None,
        dtype: torch.dtype | None,
        keep: int,
    ) -> None:
        self._session = session
        self._reducer = reducer
        self._device = device
        self._dtype = dtype
        self._keep = keep

    def writer(self, kind: Of, filed: _Filed | None) -> Callable[[torch.Tensor, Spot, int], None]:
        """What writes a tensor that comes by into the recordings of a kind, under a name of its own or its place's."""

        def write(tensor: torch.Tensor, spot: Spot, step: int) -> None:
            where = spot if filed is None else filed.spot(spot)
            self._session.recordings.of(kind).put(where, step, self._kept(tensor.detach(), kind), self._keep)

        return write

    def _kept(self, tensor: torch.Tensor, kind: Of) -> Any:
        if kind == "gradient":
            scale = self._session.loss_scale(tensor)
            if scale is not None:
                tensor = tensor.to(precise(tensor.dtype)) / scale  # half precision may not hold what is left
        value = tensor if self._reducer is None else self._reducer(tensor)
        parts = tensors_in(value)
        return with_tensors(value, {place: self._own(part, tensor) for place, part in parts.items()})

    def _own(self, kept: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        """What is kept where and as asked, in memory that no later operation of the model writes to."""
        dtype = self._dtype if self._dtype is not None and kept.is_floating_point() else kept.dtype
        moved = kept.to(self._device or kept.device, dtype)
        if moved.is_inference():
            with torch.inference_mode(False):
                return moved.clone()  # an inference tensor could not be used in a training
        if moved.layout != torch.strided or seen.layout != torch.strided:
            return moved.clone() if moved is kept else moved
        shared = moved.untyped_storage().data_ptr() == seen.untyped_storage().data_ptr()
        return moved.clone() if shared and moved.numel() else moved


@dataclass(frozen=True)
class _Filed:
    """The name under which a second record of a place is kept, and the place: what that names is no part of the key."""

    name: str
    layer: Layer

    def spot(self, spot: Spot) -> Spot:
        call = spot.call if self.layer.call is None else None
        return Spot(self.name, call, False, spot.part if self.layer.output is None else "")


def _look(tensor: torch.Tensor, spot: Spot, step: int) -> None:
    """Records nothing: the hook that follows does, once the gradient has been added up."""


def _beginning(station: Station, action: Action, recorded: Recorded, filed: str) -> Callable[[int], None]:
    """What is done when a forward begins: of the steps before there is nothing any more, and a gradient is awaited."""
    active, kind = action.active, action.of
    # Holds neither station nor action, which hold the session that holds this.
    asked = station.asked if isinstance(station, TensorStation) else None
    spot = Spot(station.name)

    def begin(step: int) -> None:
        if not active(step) or (kind == "gradient" and not torch.is_grad_enabled()):
            return
        recorded.begin(filed, step)
        if asked is not None:
            asked.add(spot)

    return begin


def _overlap(layer: Layer, station: LayerStation, action: Action) -> bool:
    """Whether a record of a layer would see what another one sees."""
    if (layer.module, layer.input) != (station.module, station.input):
        return False
    calls = layer.call is None or action.call in (None, layer.call)
    parts = action.part is None or layer.output is None
    return calls and (parts or within(str(layer.output), action.part) or within(str(action.part), layer.output))


def _key_at(station: Station, action: Action) -> str:
    """The key of the place that an action was put at."""
    if isinstance(station, LayerStation):
        return Layer(station.name, station.module, action.call, station.input, action.part).key
    return station.name


def _kind(of: Of | None, layer: bool, accumulated: bool) -> Of:
    kind = of or ("activation" if layer else "gradient")
    if kind not in ("activation", "gradient"):
        raise UsageError(f'of is "activation" or "gradient", not {kind!r}.')
    if kind == "activation" and not layer:
        raise UsageError("A parameter or tensor has no activation: it is there to be read. Record its gradient.")
    if accumulated and layer:
        raise UsageError("Only parameters accumulate gradients. Leave accumulated out for layers.")
    return kind
