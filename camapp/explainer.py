"""One picture in, an Explanation out: decode, prepare, run the engine, bring the maps back to the picture."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeAlias, TypedDict

import numpy as np
import torch
from PIL import Image

from camapp.backbones.inputs import run_channels_last
from camapp.backbones.load import LoadedModel
from camapp.cam.engine import LayerChoice, Method
from camapp.cam.methods import find_method
from camapp.cam.result import CamResult, Normalize, Sign, checked_look
from camapp.cam.targets import TopClasses
from camapp.cam.targets.plan import One
from camapp.cam.watch import Progress
from camapp.errors import TargetError, UsageError
from camapp.explanation import Explanation, Prediction
from camapp.images.decode import Picture, decode
from camapp.images.geometry import Fit, Placed
from camapp.loading import load_model

PictureSource: TypeAlias = Picture | Image.Image | np.ndarray | str | os.PathLike[str] | bytes | BinaryIO


def explain(
    model: str | LoadedModel,
    picture: PictureSource,
    *,
    targets: One | Sequence[One] | TopClasses | None = None,
    top_k: int = 1,
    method: str | Method = "gradcam",
    layer: LayerChoice = None,
    fit: Fit | None = None,
    sign: Sign = "positive",
    normalize: Normalize = "minmax",
    progress: Progress | None = None,
    deadline: float | None = None,
    cancel: Any | None = None,
) -> Explanation:
    """Show where a model looks in one picture.

    Args:
        model: the name of a model card, or a ``LoadedModel`` (load it once for many pictures).
        picture: a path, bytes, an open file, a ``Picture``, a Pillow image, or an array (H, W, 3) uint8.
        targets: the class or classes to explain, by index or name (a unique beginning will do), or targets of
            ``camapp.cam.targets``; by default the ``top_k`` likeliest.
        top_k: how many of the likeliest classes to explain when no targets are given.
        method: the method's name, or a method made for this model, with options of its own.
        layer: the layer to explain, or several; the model card's recommended one by default.
        fit: "crop", "letterbox" or "stretch"; the model card's own way by default.
        sign: "positive" for what supports the class, "negative" for what speaks against it.
        normalize: "minmax", "max" or "shared" (one scale over all classes explained), as for the methods.
        progress: called with the forwards done and expected, by methods that run the model many times.
        deadline: seconds after which such a method gives up.
        cancel: a ``threading.Event`` or a function; such a method stops once it is set.

    Returns:
        The explanation, whose maps lie on the picture as it is, not on the model's crop of it.

    Raises:
        DecodeError: a file that is no readable picture.
        ModelError, WeightsError: a model that cannot be loaded.
        LayerError, TargetError, UsageError: a layer, class, method or option that does not exist.
        StoppedError: the deadline passed, or ``cancel`` was set.

    Example:
        >>> camapp.explain("efficientnet_lite0", "cat.jpg", targets="tabby").save("heatmaps")
    """
    loaded = opened_model(model)
    look = checked_paintable(sign, normalize)
    engine = _engine(method, loaded, layer)
    wanted = _wanted(targets, top_k)
    opened = open_picture(picture)
    return explain_prepared(
        loaded,
        engine,
        [Prepared(opened, loaded.place(opened, fit))],
        wanted,
        look,
        progress=progress,
        deadline=deadline,
        cancel=cancel,
    )[0]


def opened_model(model: str | LoadedModel) -> LoadedModel:
    """A model that knows how to prepare a picture: loaded by its card's name, or as it is.

    Raises:
        ModelError, WeightsError: it cannot be loaded.
        UsageError: something else.
    """
    loaded = load_model(model) if isinstance(model, str) else model
    if not isinstance(loaded, LoadedModel):
        raise UsageError(
            f"model is a {type(model).__name__}; needed is a card's name or a LoadedModel, which know how to prepare "
            "a picture. camapp.wrap_model(network, size=..., mean=..., std=...) makes one of any nn.Module; for a "
            "prepared tensor there is camapp.GradCAM(model)(inputs)."
        )
    return loaded


def open_picture(picture: PictureSource) -> Picture:
    """A picture of any source.

    Raises:
        DecodeError: a file that is no readable picture.
        UsageError: an array that is none.
    """
    if isinstance(picture, Picture):
        return picture
    if isinstance(picture, Image.Image):
        return Picture.from_pil(picture)
    if isinstance(picture, np.ndarray):
        return Picture.from_array(picture)
    return decode(picture)


@dataclass(frozen=True, eq=False)
class Prepared:
    """A picture, ready for a model.

    Args:
        picture: as it was read.
        placed: what the model sees of it.
    """

    picture: Picture
    placed: Placed


def explain_prepared(
    model: LoadedModel, engine: Method, prepared: Sequence[Prepared], targets: Any, look: Look, **watch: Any
) -> list[Explanation]:
    """Explain several pictures in one go.

    Args:
        model: the model that prepared them.
        engine: the method, made for the model.
        prepared: B pictures.
        targets: as the engine takes them for B rows, K a row.
        look: from ``checked_paintable``.
        **watch: ``progress``, ``deadline`` and ``cancel`` of the engine.

    Raises:
        TargetError, LayerError, ModelError, StoppedError: as ``explain``.
    """
    start = time.perf_counter()
    with model.named_failures():
        inputs = model.inputs([one.placed for one in prepared])
        result = run_channels_last(engine.model, lambda batch: engine(batch, targets, **look, **watch), inputs)
    return explanations_of(model, result, prepared, look, (time.perf_counter() - start) / len(prepared))


def explanations_of(
    model: LoadedModel, result: CamResult, prepared: Sequence[Prepared], look: Look, seconds: float
) -> list[Explanation]:
    """What a method found in B pictures, as their explanations.

    Args:
        model: the model that prepared them.
        result: of a call with K targets a row, in the order of the pictures.
        prepared: the B pictures.
        look: that it was made with.
        seconds: time taken, a picture.
    """
    maps, raw, logits = result.maps.cpu().numpy(), result.raw.cpu().numpy(), result.logits.cpu()
    if look["normalize"] == "shared":  # by the classes of a picture, and not by the other pictures of the batch
        highest = maps.max(axis=(1, 2, 3), keepdims=True)
        maps = maps / np.where(highest > 0, highest, 1)
    probabilities = logits.softmax(1)
    warning = ("random weights: predictions and maps mean nothing",) if model.weights.random else ()

    def prediction(row: int, index: int) -> Prediction:
        return Prediction(index, model.label(index), float(probabilities[row, index]), float(logits[row, index]))

    def explained(row: int, k: int) -> Prediction:
        index, name = int(result.targets[row, k]), str(result.target_names[row][k])
        if name == f"class {index}":
            return prediction(row, index)
        return Prediction(index, name, float("nan"), float(result.scores[row, k]))

    def explanation(row: int, one: Prepared) -> Explanation:
        best = logits[row].sort(descending=True, stable=True).indices[:5].tolist()
        return Explanation(
            picture=one.picture,
            model=model.name,
            weights={
                "source": model.weights.source,
                "sha256": model.weights.sha256,
                "random": model.weights.random,
            },
            method=result.method,
            layer=result.layer,
            classes=tuple(explained(row, k) for k in range(result.targets.shape[1])),
            predictions=tuple(prediction(row, index) for index in best),
            reasons=tuple(result.reasons[row] or ()),
            model_maps=maps[row],
            raw=raw[row],
            geometry=one.placed.geometry,
            notes=(*warning, *one.picture.notes, *one.placed.notes, *result.notes),
            seconds=seconds,
            sign=look["sign"],
        )

    return [explanation(row, one) for row, one in enumerate(prepared)]


class Look(TypedDict):
    """How a map is made of signed values."""

    sign: Sign
    normalize: Normalize


def checked_paintable(sign: str, normalize: str | None) -> Look:
    """A sign and a normalisation whose maps lie in [0, 1], so that they can be painted.

    Raises:
        UsageError: others.
    """
    checked_look(sign, normalize)
    if sign == "both" or normalize is None:
        raise UsageError(
            'An explanation is painted, so its maps lie in [0, 1]: sign is "positive" or "negative", and normalize one '
            "of minmax, max, shared. The methods themselves, such as camapp.GradCAM, give signed and raw maps."
        )
    return {"sign": sign, "normalize": normalize}  # type: ignore[typeddict-item]


def _engine(method: str | Method, model: LoadedModel, layer: LayerChoice) -> Method:
    if not isinstance(method, Method):
        return find_method(method)(model, layer)
    method.check_made_for(model)
    if layer is not None:
        raise UsageError(f"layer={layer!r} comes too late: name it where the {method.title} is made.")
    return method


def _wanted(targets: Any, top_k: int) -> Any:
    """The engine's targets for one picture, always with an axis of K."""
    if targets is None:
        return TopClasses(top_k)
    if isinstance(targets, TopClasses):
        return targets
    if isinstance(targets, torch.Tensor | np.ndarray):
        targets = targets.tolist()
    if not isinstance(targets, list | tuple):
        return [[targets]]
    if not targets:
        raise TargetError("targets is empty. Name one class or more, or leave it out for the likeliest.")
    return [list(targets)]
