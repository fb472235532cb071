"""FeatureExtractor: the features of named layers, from one forward that stops after the last layer needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from camapp.backbones.inputs import check_inputs, like_parameters, run_channels_last
from camapp.backbones.layers import LayerTable, list_layers
from camapp.backbones.layouts import Layout, find_layout
from camapp.backbones.load import LoadedModel
from camapp.backbones.pooling import Pool, read_pool, settled_pool
from camapp.errors import LayerError, UsageError
from camapp.features.features import Features
from camapp.features.info import FeatureInfo
from camapp.features.places import Places, check_patterns, find_places
from camapp.hooks.as_found import as_found, running_eagerly, unfused_attention
from camapp.hooks.layers import Layer, find_layers, module_name, unwrap
from camapp.hooks.selection import Pattern, select_layers
from camapp.hooks.visits import Visits

DTYPES = {"float32": torch.float32, "float16": torch.float16}


class FeatureExtractor(nn.Module):
    """Takes the features of named layers out of a backbone.

    One forward gives them all, and stops as soon as the last one is there. What comes back are normal tensors with
    memory of their own: no later in-place operation reaches them, and a head can be trained on them.

    With ``detach=True`` the backbone is observed: it predicts (eval mode), without gradients, and is left as it was
    found. With ``detach=False`` it takes part, as for distillation and style losses: it runs in the mode that it is in,
    BatchNorm statistics move in train mode, and gradients flow into it and into the inputs.

    It is a module itself, whose only part is ``backbone``: it can sit in another module, move to a device, and be
    saved. Its hooks live only inside a call.

    Args:
        model: a network, or a ``LoadedModel``.
        layers: one or several names, globs (``"blocks.*"``), parts (``"blocks[-4:]"``), ``"re:..."``, modules,
            ``"penultimate"`` (what goes into the classifier) or ``"last"`` (the last map or tokens before the pooling);
            ``@call``, ``:input`` and ``#part`` as in ``camapp.hooks.selection.select_layers``.
        pool: how each layer's output becomes a vector, one of ``camapp.features.POOLS``.
        normalize: scale each picture's features of a layer to length 1 (L2).
        dtype: ``"float32"``, ``"float16"``, or None for what the layer gives.
        detach: observe the backbone, or take part.
        early_exit: stop the forward after the last layer needed. False for a network in which a layer that ran once
            for the first batch may run again for others.
        channels_last: on a CPU, lay pictures out channels last, which makes convolutions faster and moves the features
            by rounding errors only.
        any_rows: also take outputs of more rows than the batch, for networks built on features, whose rows other hooks
            repeat.

    Raises:
        LayerError: a name or pattern that means no layer.
        UsageError: a pool or dtype that there is not.
        ModelError: a network that cannot be hooked.

    Example:
        >>> extractor = camapp.FeatureExtractor(model, ["layer3", "penultimate"])
        >>> features = extractor(inputs)
        >>> features["penultimate"].shape, features.info["layer3"].stride
        (torch.Size([8, 2048]), (16.0, 16.0))
    """

    def __init__(
        self,
        model: nn.Module | LoadedModel,
        layers: Pattern | Iterable[Pattern] = "penultimate",
        pool: str = "auto",
        *,
        normalize: bool = False,
        dtype: str | None = None,
        detach: bool = True,
        early_exit: bool = True,
        channels_last: bool = False,
        any_rows: bool = False,
    ) -> None:
        super().__init__()
        self._loaded = model if isinstance(model, LoadedModel) else None
        self.backbone = unwrap(model.module if isinstance(model, LoadedModel) else model)
        self.layers = (layers,) if isinstance(layers, str | nn.Module | type) else tuple(layers)
        check_patterns(self.backbone, self.layers)
        # a module in a tuple is no part of this module: kept by name, so that copies look at their own backbone
        self.layers = tuple(name for layer in self.layers for name in self._named(layer))
        read_pool(pool)
        if dtype is not None and dtype not in DTYPES:
            raise UsageError(f"dtype={dtype!r}; use one of {', '.join(DTYPES)}, or None for what the layer gives.")
        self.pool = pool
        self.normalize = normalize
        self.dtype = dtype
        self.detach = detach
        self.early_exit = early_exit
        self.channels_last = channels_last
        self.any_rows = any_rows
        self._places: dict[tuple[int, ...], Places] = {}
        self._kinds: dict[tuple[Any, ...], tuple[Pool, FeatureInfo, Layout | None]] = {}

    def forward(self, inputs: torch.Tensor) -> Features:
        """The features of a batch.

        Args:
            inputs: (B, C, H, W), (B, C, L) or (B, C, D, H, W), normalised as the backbone wants them. Moved to its
                device and dtype.

        Returns:
            By name, tensors (B, *size) on the backbone's device.

        Raises:
            LayerError: a layer that does not run, gives no tensor, or cannot be pooled as asked.
            UsageError: inputs that are no such batch; features too large for float16.
        """
        check_inputs(inputs, self.backbone, instead="camapp.extract_features(model, pictures)")
        with torch.inference_mode(False):  # what is made here shall be of use outside of it
            batch = like_parameters(inputs, self.backbone, keep_graph=not self.detach)
            with self._conditions():
                taken, places = self._taken_at_known_places(batch)
            tensors = {name: self._finished(name, taken[key]) for name, key in places.named.items()}
        info = {
            name: replace(taken[key].info, size=tuple(tensors[name].shape[1:])) for name, key in places.named.items()
        }
        return Features(tensors, info)

    def __repr__(self) -> str:
        layers = ", ".join(map(str, self.layers))
        return f"FeatureExtractor({type(self.backbone).__name__}: {layers}; pool={self.pool}, detach={self.detach})"

    def describe(self, inputs: torch.Tensor | None = None) -> LayerTable:
        """Every layer of the backbone with its class, shape, calls and parameters; found by a dry run.

        Args:
            inputs: a batch, of which one row is run; a ``LoadedModel`` needs none.

        Raises:
            UsageError: a plain network without inputs.
        """
        return LayerTable(list_layers(self._loaded or self.backbone, inputs))

    def _named(self, layer: Pattern) -> list[str]:
        return [layer] if isinstance(layer, str) else list(select_layers(self.backbone, layer, {}))

    def _conditions(self) -> Any:
        """What surrounds a forward: everything held still, or only what makes hooks work."""
        return _observed(self.backbone) if self.detach else _taking_part(self.backbone)

    def _taken_at_known_places(self, batch: torch.Tensor) -> tuple[dict[str, _Taken], Places]:
        """Run at the places found earlier for inputs of this size; where the network went another way, look again."""
        size = tuple(batch.shape[1:])
        known = self._places.get(size)
        if known is not None:
            taken = self._run(batch, known)
            if len(taken) == len(known.keys):
                return taken, known
        self._places[size] = places = find_places(self.backbone, self.layers, batch)
        taken = self._run(batch, places)
        missed = [key for key in places.keys if key not in taken]
        if missed:
            raise LayerError(
                f"{', '.join(missed)} ran for the first picture of this batch, but not for all of it: the network "
                "chooses its way by the pictures. Choose a layer that always runs."
            )
        return taken, places

    def _run(self, batch: torch.Tensor, places: Places) -> dict[str, _Taken]:
        """One forward: by place, the features taken there; fewer than places where the forward ended without them."""
        taken: dict[str, _Taken] = {}
        done, ended = _Done(), False

        def visit(layer: Layer, call: int, output: torch.Tensor) -> None:
            nonlocal ended
            if ended:
                return  # a model that caught the exit runs on
            taken[layer.key] = self._take(layer, call, output, batch)
            if self.early_exit and layer.key == places.end and len(taken) == len(places.keys):
                ended = True
                raise done

        def run(inputs: torch.Tensor) -> None:
            nonlocal ended
            taken.clear()
            ended = False
            try:
                with Visits(find_layers(self.backbone, places.keys), visit):
                    self.backbone(inputs.clone())  # a model may change its input in place
            except Exception as error:
                if not _comes_from(error, done):
                    raise
            finally:
                done.__traceback__ = None  # its frames hold it: a circle that would wait for the garbage collector

        failures = self._loaded.named_failures() if self._loaded else nullcontext()
        with failures:
            if self.channels_last:
                run_channels_last(self.backbone, run, batch)
            else:
                run(batch)
        return taken

    def _take(self, layer: Layer, call: int, output: torch.Tensor, batch: torch.Tensor) -> _Taken:
        """The features of what a layer gave, in memory of their own; those of a graph are pooled behind the forward.

        Within a part of the network that is checkpointed, the recomputation would miss what pooling keeps.
        """
        if output.dim() == 0 or (len(output) != len(batch) and not self.any_rows):
            raise LayerError(
                f'"{layer.key}" gives an output of shape {tuple(output.shape)} for a batch of {len(batch)}: its first '
                "axis is not the batch, so rows cannot be matched to pictures. Choose another layer."
            )
        kind = (layer.key, tuple(output.shape[1:]), output.dtype, tuple(batch.shape[1:]))
        if kind not in self._kinds:
            self._kinds[kind] = self._read(layer, output, batch)
        pool, info, layout = self._kinds[kind]
        if call and layer.call is None:
            info = replace(info, layer=replace(layer, call=call).key)
        if not self.detach:
            return _Taken(output.clone(), info, partial(pool, layout=layout, layer=layer.key))
        pooled = pool(output, layout, layer.key)
        if pooled.untyped_storage().data_ptr() == output.untyped_storage().data_ptr():
            pooled = pooled.clone(memory_format=torch.contiguous_format)
        return _Taken(pooled, info)

    def _read(self, layer: Layer, output: torch.Tensor, batch: torch.Tensor) -> tuple[Pool, FeatureInfo, Layout | None]:
        """How a layer's output lies in the picture, and how it is pooled."""
        name, shape = module_name(layer.key), tuple(output.shape)
        try:
            layout = (
                find_layout(self.backbone, name, shape, (len(output), *batch.shape[1:])) if len(shape) > 2 else None
            )
        except LayerError:  # no map of the picture: it can still be taken whole
            layout = None
        pool = settled_pool(self.pool, self.backbone, name, layout, output)
        grid = layout.grid if layout else None
        info = FeatureInfo(
            layer=layer.key,
            kind=type(layer.module).__name__,
            layout=layout.kind if layout else "NC" if len(shape) < 3 else "other",
            shape=shape[1:],
            grid=grid,
            stride=tuple(size / cells for size, cells in zip(batch.shape[2:], grid, strict=True)) if grid else None,
            prefix=layout.prefix if layout else 0,
            dtype=str(output.dtype).removeprefix("torch."),
            pool=pool.name,
            size=(),
        )
        return pool, info, layout

    def _finished(self, name: str, taken: _Taken) -> torch.Tensor:
        """A feature as it is handed out: a normal tensor, normalised, in the dtype asked for."""
        feature = taken.feature.clone() if taken.feature.is_inference() else taken.feature
        feature = taken.pool(feature) if taken.pool else feature
        wanted = feature.dtype if self.dtype is None else DTYPES[self.dtype]
        if self.normalize:
            feature = F.normalize(feature.flatten(1).float(), dim=1).view(feature.shape)
        typed = feature.to(wanted)
        if typed.dtype == torch.float16 and bool((typed.isinf() & feature.isfinite()).any()):
            raise UsageError(
                f'"{name}" has features up to {float(feature.abs().max()):g}, more than float16 holds (65504). Use '
                "float32, or normalize=True."
            )
        return typed


class _Done(Exception):  # noqa: N818 - the signal that ends a forward which has given all that is wanted
    pass


@dataclass(frozen=True)
class _Taken:
    feature: torch.Tensor
    info: FeatureInfo
    pool: Callable[[torch.Tensor], torch.Tensor] | None = None


@contextmanager
def _observed(backbone: nn.Module) -> Iterator[None]:
    with as_found(backbone), torch.no_grad():
        yield


@contextmanager
def _taking_part(backbone: nn.Module) -> Iterator[None]:
    with running_eagerly(backbone.modules()), unfused_attention():
        yield


def _comes_from(error: BaseException | None, signal: _Done) -> bool:
    """Whether an error is the signal, or was raised while a model handled it."""
    while error is not None:
        if error is signal:
            return True
        error = error.__cause__ or error.__context__
    return False
