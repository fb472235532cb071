"""The engine: inputs and targets in, maps out. Methods add only how what a layer gave becomes a map."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeAlias

import torch
from torch import nn

from camapp.backbones.inputs import check_inputs, like_parameters
from camapp.backbones.load import LoadedModel
from camapp.backbones.recommend import recommended_layer
from camapp.cam.evidence import FUSES, Evidence, advised_reasons
from camapp.cam.passes import Passes, mixes_rows
from camapp.cam.result import CamResult, Normalize, Sign, blank_reasons, checked_look, normalised_maps
from camapp.cam.targets.output import How
from camapp.cam.targets.plan import Targets, plan_targets
from camapp.cam.watch import Progress, Watch
from camapp.errors import LayerError, UsageError
from camapp.hooks.as_found import as_found
from camapp.hooks.layers import find_layer, unwrap

LayerChoice: TypeAlias = str | nn.Module | Sequence[str | nn.Module] | None


class Method(ABC):
    """A way to explain; an engine for one model and one layer (or several).

    Args:
        model: any ``nn.Module``, or a ``LoadedModel``. Compiled and parallel wrappers are looked through.
        layer: the target layer: a dotted name, ``name@call`` for one call of a layer that runs several times,
            ``name:input`` for what goes into it, the module itself, a list of several, or None for the recommended one.
        output: which part of what the model returns is explained: a key or field, a position, or a function; found
            where it is a tensor, or has a usual name.
        fuse: how the maps of several layers become one, each stretched to [0, 1] before: "mean", "max", "product", or
            "geometric" for their geometric mean.

    Raises:
        LayerError: the model has no such layer.
        ModelError: the model cannot be hooked (a scripted one, say).
        UsageError: an option that there is not.
    """

    name: ClassVar[str]
    #: The name as papers write it.
    title: ClassVar[str]
    #: Whether it looks at a layer of the user's choice; some methods look at the whole network.
    takes_layer: ClassVar[bool] = True
    #: Whether its maps can be part of a graph (``create_graph=True``); of a method over another one, together with it.
    differentiable: bool = False
    #: Whether its maps say something of the target; some methods show what a network looks at, whatever it is asked.
    class_specific: bool = True
    #: What it costs for one picture and target, in words.
    cost: ClassVar[str] = "one forward and one backward"
    #: Whether it runs the network so often that it takes seconds where others take a fraction of one.
    runs_many: ClassVar[bool] = False
    #: Whether it is made for some kinds of networks only, and refuses the others.
    selective: ClassVar[bool] = False
    #: How several layers are fused; of the class, by default.
    fuse: str = "mean"

    def __init__(
        self, model: nn.Module | LoadedModel, layer: LayerChoice = None, *, output: How = None, fuse: str | None = None
    ) -> None:
        self._loaded = model if isinstance(model, LoadedModel) else None
        self.model = unwrap(model.module if isinstance(model, LoadedModel) else model)
        if layer is not None and not self.takes_layer:
            raise UsageError(f"{self.title} looks at the whole network; it takes no layer (layer={layer!r}).")
        self.layers = self._named(layer)
        self.output = output
        self.fuse = self.fuse if fuse is None else fuse
        if self.fuse not in FUSES:
            raise UsageError(f"fuse={fuse!r}; use one of {', '.join(FUSES)}.")
        self._warned = False

    @classmethod
    def summary(cls) -> str:
        """What the method does, in one line."""
        return (cls.__doc__ or "").strip().partition("\n")[0]

    @property
    def layer(self) -> str | None:
        """The layer explained, several joined by " + "; None for the recommended one."""
        return " + ".join(self.layers) if self.layers else None

    def __call__(
        self,
        inputs: torch.Tensor,
        targets: Targets | None = None,
        *,
        sign: Sign = "positive",
        normalize: Normalize | None = "minmax",
        create_graph: bool = False,
        progress: Progress | None = None,
        deadline: float | None = None,
        cancel: Any | None = None,
    ) -> CamResult:
        """Explain a batch.

        The model is explained as it would predict (eval mode), is left as it was found, and may be frozen, in train
        mode, or called under ``no_grad`` or ``inference_mode``. Calls on one model from several threads take turns.

        Args:
            inputs: (B, C, *size): pictures (B, C, H, W), signals (B, C, L) or volumes (B, C, D, H, W), normalised as
                the model wants them. Moved to the model's device and dtype.
            targets: None for each row's top class; one target for all rows; one a row; a list of B lists of K, all K
                of a row explained in as few passes as the network allows; a bool tensor (B, classes); or
                ``TopClasses(k)``. A target is a class index, a class name where the model is a ``LoadedModel``, a
                target of ``camapp.cam.targets``, or a function from one row's output to one number.
            sign: "positive" for what supports the target, "negative" for what speaks against it (counterfactual maps),
                "both" for signed maps.
            normalize: "minmax" stretches each map to [0, 1]; "max" divides each by its maximum; "shared" divides all by
                the maximum of the batch, so that they can be compared; None leaves the method's own values.
            create_graph: make maps that can be differentiated with respect to the parameters and the inputs.
            progress: called with the forwards done and expected, by methods that run the model many times.
            deadline: seconds after which such a method gives up.
            cancel: a ``threading.Event`` or a function; such a method stops once it is set.

        Returns:
            The maps, on the model's device.

        Raises:
            UsageError: inputs that are no such batch, or an option that there is not.
            TargetError: targets that do not fit the batch or the model.
            LayerError: the layer does not run, is not on the way to the scores, or does not map onto the picture.
            OutputError: the model returns nothing that can be explained.
            StoppedError: the deadline passed, or ``cancel`` was set.
        """
        ready = self.ready(inputs, targets, bool(create_graph), Watch(progress, deadline, cancel))
        checked_look(sign, normalize)
        with as_found(self.model):
            passes = ready()
            return self.result(self.evidence(passes), passes, sign, normalize)

    def check_made_for(self, model: nn.Module | LoadedModel) -> None:
        """Raise a UsageError where this engine was made for another model."""
        if self.model is not unwrap(model.module if isinstance(model, LoadedModel) else model):
            raise UsageError(f"The {self.title} given was made for another model. Make it for this one, or name it.")

    @abstractmethod
    def evidence(self, passes: Passes) -> Evidence:
        """What the method finds, with the model in the hands of ``as_found``; other methods build on it."""

    def default_layers(self, inputs: torch.Tensor) -> tuple[str, ...]:
        """The layers to look at when the user names none."""
        if not self.takes_layer:
            return ()
        if self._loaded is not None and self._loaded.card.layer is not None:
            return (self._loaded.card.layer,)
        return (recommended_layer(self.model, inputs),)

    def ready(
        self, inputs: torch.Tensor, targets: Targets | None, create_graph: bool, watch: Watch
    ) -> Callable[[], Passes]:
        """Check what a call was given; the answer makes its passes, once the model is in the hands of ``as_found``."""
        check_inputs(inputs, self.model)
        plan = plan_targets(targets, len(inputs), self._loaded.class_index if self._loaded else None)
        if create_graph and not self.differentiable:
            raise UsageError(
                f"create_graph=True: the maps of {self.title} cannot be differentiated. Those of methods that read one "
                "layer and its gradient can, such as GradCAM."
            )

        def passes() -> Passes:
            batch = like_parameters(inputs, self.model, keep_graph=create_graph)
            layers = self.layers or self.default_layers(batch)
            return Passes(self.model, batch, layers, plan, self.output, watch, create_graph)

        return passes

    def result(self, evidence: Evidence, passes: Passes, sign: Sign, normalize: Normalize | None) -> CamResult:
        """What was found, as maps of the input's size with reasons and notes."""
        grad_mode = torch.set_grad_enabled(passes.differentiable)
        with grad_mode, torch.autocast(passes.inputs.device.type, enabled=False):
            shot, plan = evidence.shot, passes.plan
            size = tuple(passes.inputs.shape[2:])
            raw, reached = evidence.one_map(size, sign, self.fuse)
            maps, shows = normalised_maps(raw, size, sign, normalize)
        layer = " + ".join(passes.layers)
        reasons = advised_reasons(blank_reasons(raw.detach(), shows, reached, layer, sign), passes, self.fuse)
        rows, per_row = shot.scores.shape

        def shaped(values: torch.Tensor) -> torch.Tensor:
            return values if plan.single else values.unflatten(0, (rows, per_row))

        def nested(values: list[Any]) -> list[Any]:
            return values if plan.single else [values[i : i + per_row] for i in range(0, rows * per_row, per_row)]

        is_scores = isinstance(shot.output, torch.Tensor) and shot.output.dim() == 2
        return CamResult(
            maps=shaped(maps),
            raw=shaped(raw),
            scores=shaped(shot.scores.flatten().float()),
            targets=shaped(shot.aims.indices.flatten().to(maps.device)),
            target_names=nested([name for row in shot.aims.names for name in row]),
            reasons=nested(reasons),
            logits=shot.output.float() if is_scores else maps.new_zeros(rows, 0),  # type: ignore[union-attr]
            layer=layer,
            method=self.name,
            notes=(*self._repeated(shot.calls), *self._mixed(rows), *evidence.notes),
        )

    def _named(self, layer: LayerChoice) -> tuple[str, ...]:
        """The keys of the layers that a user named."""
        if layer is None:
            return ()
        several = isinstance(layer, Sequence) and not isinstance(layer, str)
        given: Sequence[Any] = layer if several else [layer]  # type: ignore[assignment]
        if not given:
            raise LayerError("layer=[] names no layer. Name one or more, or leave it out for the recommended one.")
        return tuple(dict.fromkeys(find_layer(self.model, one).key for one in given))

    def _mixed(self, rows: int) -> tuple[str, ...]:
        if rows == 1 or not mixes_rows(self.model):
            return ()
        return ("a BatchNorm without running statistics: each map depends on the other pictures of the batch",)

    def _repeated(self, calls: dict[str, int]) -> tuple[str, ...]:
        """Say that a layer which ran several times, and of which no call was named, is explained at its last."""
        notes = tuple(
            f'"{layer}" runs {count} times in one forward; its last call is explained. "{layer}@0" names the first.'
            for layer, count in calls.items()
            if count > 1 and "@" not in layer
        )
        if notes and not self._warned:
            warnings.warn(notes[0], stacklevel=4)
            self._warned = True
        return notes
