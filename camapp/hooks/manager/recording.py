"""Recording: the first layer of a manager, which only collects."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from camapp.errors import UsageError
from camapp.hooks.manager.places import Place
from camapp.hooks.manager.recordings import Recorded, Recordings, Spot
from camapp.hooks.manager.reducers import Reducer, find_reducer
from camapp.hooks.manager.registry import Registry
from camapp.hooks.manager.session import Session
from camapp.hooks.manager.stations import Action, LayerStation, Of
from camapp.hooks.manager.storage import Storage
from camapp.hooks.schedules import Active, schedule


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

        def make(name: str, layer: bool) -> Action:
            kind = _kind(of, layer, accumulated)
            if accumulated:
                return Action(name, "record", kind, lambda gradient, spot: None, active, watches=True)
            return Action(name, "record", kind, keeping.writer(kind), active, watches=True)

        for station, action in self._register(place, "record", name, make):
            self._session.recordings.of(action.of).expect(station.name)
            if accumulated:
                self._accumulated(station.name, action, keeping)
            elif isinstance(station, LayerStation):
                keeping.forget_each_step(action, station.name)

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

        def write(tensor: torch.Tensor, spot: Spot) -> None:
            storage.write(tensor)

        def make(name: str, layer: bool) -> Action:
            return Action(name, "collect", _kind("activation", layer, False), write, schedule(1), watches=True)

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
                missing[_key(spot)] = "requires no gradient: it is frozen, or ran under no_grad()"
            for spot in station.asked:
                missing[_key(spot)] = "no gradient came back: it is not on the way to the loss, or no backward ran"
        return missing

    def _accumulated(self, name: str, action: Action, keeping: _Keeping) -> None:
        parameter = dict(self.model.named_parameters(remove_duplicate=False))[name]
        session, write = self._session, keeping.writer("gradient")

        def on_accumulated(parameter: torch.Tensor) -> None:
            if action.live and session.heeded and action.active(session.step) and parameter.grad is not None:
                write(parameter.grad, Spot(name))

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

    def writer(self, kind: Of) -> Callable[[torch.Tensor, Spot], None]:
        """What writes a tensor that comes by into the recordings of a kind."""

        def write(tensor: torch.Tensor, spot: Spot) -> None:
            value = self._kept(tensor.detach(), kind)
            self._session.recordings.of(kind).put(spot, self._session.step, value, self._keep)

        return write

    def forget_each_step(self, action: Action, name: str) -> None:
        """Let what a layer gave in the step before go when the next begins: it may not run in that."""
        recorded, kind, active = self._session.recordings.of(action.of), action.of, action.active

        def begin(step: int) -> None:  # holds no action, whose writer holds the session that holds this
            if active(step) and (kind == "activation" or torch.is_grad_enabled()):
                recorded.begin(name)

        self._session.on_begin.append(begin)

    def _kept(self, tensor: torch.Tensor, kind: Of) -> Any:
        if kind == "gradient":
            scale = self._session.loss_scale(tensor)
            if scale is not None:
                tensor = tensor / scale
        if self._reducer is not None:
            return self._reducer(tensor)
        kept = tensor.to(self._device or tensor.device, self._dtype or tensor.dtype)
        same = kept.data_ptr() == tensor.data_ptr() and kept.numel() > 0
        return kept.clone() if same else kept


def _kind(of: Of | None, layer: bool, accumulated: bool) -> Of:
    kind = of or ("activation" if layer else "gradient")
    if kind not in ("activation", "gradient"):
        raise UsageError(f'of is "activation" or "gradient", not {kind!r}.')
    if kind == "activation" and not layer:
        raise UsageError("A parameter or tensor has no activation: it is there to be read. Record its gradient.")
    if accumulated and layer:
        raise UsageError("Only parameters accumulate gradients. Leave accumulated out for layers.")
    return kind


def _key(spot: Spot) -> str:
    call = f"@{spot.call}" if spot.call else ""
    return f"{spot.name}{call}{':input' if spot.input else ''}{f'#{spot.part}' if spot.part else ''}"
