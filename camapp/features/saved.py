"""The file of a probe, NAME.camapp: a safetensors file of the head, whose header says in TOML what it stands on."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import nn

from camapp.backbones.cards import ModelCard
from camapp.backbones.load import LoadedModel, find_device, load_network
from camapp.backbones.weights import Weights
from camapp.errors import ModelError, UsageError, WeightsError
from camapp.features.headed import HeadedNetwork, LogVotes
from camapp.features.probe import Probe
from camapp.files import file_sha256, write_atomically
from camapp.images.geometry import Fit, checked_fit
from camapp.version import VERSION

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SUFFIX = ".camapp"
FORMAT = 1

_HEADER = "camapp"


@dataclass(frozen=True)
class ProbeSettings:
    """What the features of a probe are, beside the backbone.

    Args:
        layers: the places, as ``FeatureExtractor`` takes them.
        pool: one of ``POOLS``.
        normalize: whether the features of a layer are scaled to length 1.
        fit: how pictures are fitted; None for the card's way.
    """

    layers: tuple[str, ...] = ("penultimate",)
    pool: str = "auto"
    normalize: bool = False
    fit: Fit | None = None


class _BackboneFacts(BaseModel):
    """What a probe's file says of the weights that its features came from."""

    model_config = ConfigDict(strict=True)

    weights: str
    random: bool = False
    sha256: str | None = None


def save_probe(
    path: str | os.PathLike[str],
    probe: Probe,
    backbone: LoadedModel,
    settings: ProbeSettings,
    training: Mapping[str, Any],
    *,
    overwrite: bool = False,
) -> Path:
    """Write a probe with all that ``load_model`` needs to run it, but for the backbone's own weights.

    Args:
        path: ends in ``.camapp``.
        probe: the classifier.
        backbone: what its features came from; it must have a card.
        settings: which features they were.
        training: facts to keep, ready for TOML: how many pictures, the accuracy, and so on.
        overwrite: replace a file of that name.

    Raises:
        UsageError: another ending, a file that is there, or a backbone that has no card to be loaded by.
    """
    path = check_probe_path(path, overwrite=overwrite)
    check_savable(backbone)
    from safetensors.torch import save  # imported late: listing models needs neither

    facts = {
        "format": FORMAT,
        "camapp": VERSION,
        "card": _card_facts(backbone.card, path.absolute().parent),
        "backbone": {
            "weights": backbone.weights.source,
            "random": backbone.weights.random,
            **({"sha256": backbone.weights.sha256} if backbone.weights.sha256 else {}),
        },
        "features": {
            "layers": list(settings.layers),
            "pool": settings.pool,
            "normalize": settings.normalize,
            **({"fit": settings.fit} if settings.fit else {}),
        },
        "probe": probe.facts(),
        "training": dict(training),
    }
    tensors = {name: tensor.contiguous() for name, tensor in probe.tensors().items()}
    import tomli_w

    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, save(tensors, {_HEADER: tomli_w.dumps(_without_none(facts))}))
    return path


def check_probe_path(path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Make sure that a probe can be written to a path, before it is trained.

    Raises:
        UsageError: another ending, or a file that is there.
    """
    path = Path(path).expanduser()
    if path.suffix.lower() != SUFFIX:
        raise UsageError(f"{path} does not end in {SUFFIX}, by which load_model knows a trained classifier.")
    if path.is_dir():
        raise UsageError(f"{path} is a folder. Give the name of a file.")
    if path.exists() and not overwrite:
        raise UsageError(f"{path} exists. Give another name, or replace it: --overwrite (overwrite=True).")
    return path


def check_savable(backbone: LoadedModel) -> None:
    """Refuse a backbone that a file cannot name.

    Raises:
        UsageError: it was wrapped by hand, or is a probe itself.
    """
    if backbone.card.weights is None or isinstance(backbone.module, HeadedNetwork):
        raise UsageError(
            f"{backbone.name} has no model card, by which a {SUFFIX} file could name it. Save its weights, and write a "
            'card with weights.kind = "file" (docs/models.md); train the probe on that.'
        )


def load_probe(
    path: str | os.PathLike[str],
    *,
    random_weights: bool = False,
    device: str | torch.device = "auto",
    download: bool = True,
) -> LoadedModel:
    """A saved probe as a model: its backbone, its head and the names of its classes.

    Args:
        path: the file.
        random_weights: give the backbone random weights.
        device: as for ``load_model``.
        download: as for ``load_model``.

    Raises:
        ModelError: a file that is missing, damaged, no probe, or of a later version of the format.
        WeightsError: the backbone's weights are missing, or not those that the probe was trained on.
        UsageError: a device that this machine does not have.
    """
    path = Path(path).expanduser()
    facts, tensors = read_probe(path)
    where = find_device(device)
    try:
        card = ModelCard.model_validate(_found_beside(facts["card"], path), context={"folder": path.absolute().parent})
        settings = _settings(facts["features"])
        probe = Probe.from_parts(tensors, facts["probe"])
        trained_on = _BackboneFacts(**facts["backbone"])
    except (ValidationError, KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{path} is damaged, or written by another program: {_reason(error)}.") from error
    random = random_weights or trained_on.random
    module, weights = load_network(card, random_weights=random, download=download)
    if not random and trained_on.sha256 not in (None, weights.sha256):
        raise WeightsError(
            f"{path} was trained on other weights of {card.name} ({trained_on.weights}, SHA-256 "
            f"{str(trained_on.sha256)[:12]}...) than are here ({weights.source}, {str(weights.sha256)[:12]}...). Get "
            "those weights, or train it again."
        )
    backbone = LoadedModel(module.to(where), card, (), where, weights)
    model = headed_model(backbone, probe, settings, path.stem)
    return replace(model, weights=Weights(f"{path.name} on {weights.source}", file_sha256(path), weights.random, path))


def headed_model(backbone: LoadedModel, probe: Probe, settings: ProbeSettings, name: str) -> LoadedModel:
    """Backbone and classifier as one model; the backbone's module is shared, not copied.

    The softmax of its scores is the probe's probabilities; a ridge probe has none, and its scores are decision values.
    """
    head = probe.head().to(backbone.device)
    if probe.kind == "knn":
        head = nn.Sequential(head, LogVotes())
    network = HeadedNetwork(backbone.module, settings.layers, settings.pool, head, normalize=settings.normalize)
    weights = Weights(f"{name} on {backbone.weights.source}", None, backbone.weights.random)
    card = _headed_card(name, backbone.card, settings, len(probe.classes))
    return LoadedModel(network.eval(), card, tuple(probe.classes), backbone.device, weights)


def read_probe(path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """What a probe's file says and holds; nothing of it is run.

    Raises:
        ModelError: a file that is missing, damaged, no probe, or of a later version of the format.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            header = (file.metadata() or {}).get(_HEADER)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
    except FileNotFoundError as error:
        raise ModelError(f"There is no file {path}. camapp probe makes one.") from error
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path} is damaged, or no classifier trained by camapp: {_reason(error)}.") from error
    if header is None:
        raise ModelError(
            f"{path} is a safetensors file, but no classifier trained by camapp: it does not say what it stands on. "
            "Weights of a network are named by a model card (docs/models.md)."
        )
    try:
        facts = tomllib.loads(header)
    except tomllib.TOMLDecodeError as error:
        raise ModelError(f"{path} is damaged: what it says of itself is no TOML ({error}).") from error
    if facts.get("format") != FORMAT:
        raise ModelError(
            f"{path} has the format {facts.get('format')!r}; this camapp {VERSION} reads {FORMAT}. It was written by "
            f"camapp {facts.get('camapp', '?')}: use that version or a later one."
        )
    return facts, tensors


def _settings(facts: Mapping[str, Any]) -> ProbeSettings:
    layers = tuple(map(str, facts["layers"]))
    fit = None if facts.get("fit") is None else checked_fit(facts["fit"])
    return ProbeSettings(layers, str(facts["pool"]), bool(facts["normalize"]), fit)


def _headed_card(name: str, base: ModelCard, settings: ProbeSettings, classes: int) -> ModelCard:
    """The backbone's card with another name and other classes; the layer to explain stays where it still runs."""
    penultimate = settings.layers == ("penultimate",) and base.layer is not None
    return base.model_copy(
        update={
            "name": name,
            "title": name,
            "summary": f"a classifier of {classes} classes on features of {base.title}",
            "layer": f"backbone.{base.layer}" if penultimate else None,
            "input": base.input.model_copy(update={"fit": settings.fit} if settings.fit else {}),
            "labels": base.labels.model_copy(update={"source": None, "count": classes}),
        }
    )


def _card_facts(card: ModelCard, folder: Path) -> dict[str, Any]:
    """The card, its files by the way to them from the probe's folder; no one's folders are written down beyond it."""
    facts = card.model_dump(mode="json", exclude_none=True)
    if facts["weights"]["kind"] == "file":
        facts["weights"]["file"] = Path(os.path.relpath(facts["weights"]["file"], folder)).as_posix()
    if "file" in facts["labels"]:
        facts["labels"]["file"] = Path(facts["labels"]["file"]).name  # never read: the probe has classes of its own
    return facts


def _found_beside(facts: dict[str, Any], path: Path) -> dict[str, Any]:
    """The card's facts, with weights beside the probe where they are not where they were: both were moved."""
    weights = facts["weights"]
    if weights["kind"] != "file" or (path.parent / weights["file"]).is_file():
        return facts
    name = Path(weights["file"]).name
    return {**facts, "weights": {**weights, "file": name}} if (path.parent / name).is_file() else facts


def _without_none(value: Any) -> Any:
    """TOML has no null: what is None is left out."""
    if isinstance(value, Mapping):
        return {str(key): _without_none(one) for key, one in value.items() if one is not None}
    if isinstance(value, list | tuple):
        return [_without_none(one) for one in value if one is not None]
    return value


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        fault = error.errors()[0]
        return f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}"
    if isinstance(error, KeyError):
        return f"{error.args[0]!r} is missing"
    return (str(error).strip() or type(error).__name__).splitlines()[0]
