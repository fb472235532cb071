"""A model ready to run: the module, how it wants its pictures, and the names of its classes."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from camapp.backbones.cards import ModelCard, find_card
from camapp.backbones.classes import ClassNames
from camapp.backbones.weights import Weights, load_weights, obtain
from camapp.errors import CamappError, ModelError, UsageError, did_you_mean
from camapp.hooks.as_found import as_found
from camapp.images.decode import Picture
from camapp.images.geometry import Fit, Geometry, Placed, normalized, place

DEFAULT_MODEL = "efficientnet_lite0"

_SEED = 0


@dataclass(frozen=True, eq=False, repr=False)
class LoadedModel:
    """A backbone with its weights, on its device, in eval mode.

    Args:
        module: maps ``(B, 3, h, w)`` to class scores ``(B, classes)``.
        card: what it was loaded from.
        labels: the name of each class, by index.
        device: where it runs.
        weights: which weights it has.
    """

    module: nn.Module
    card: ModelCard
    labels: tuple[str, ...]
    device: torch.device
    weights: Weights

    def __repr__(self) -> str:
        return f"LoadedModel({self.name} on {self.device}, weights: {self.weights.source})"

    @property
    def name(self) -> str:
        """The card's name."""
        return self.card.name

    def twin(self) -> LoadedModel:
        """The same model once more, for another thread: calls on one network take turns, calls on twins do not.

        Parameters are shared, so it takes hardly any memory; buffers and modules are its own.
        """
        shared = {id(parameter): parameter for parameter in self.module.parameters()}
        with as_found(self.module):  # in its turn: a call that runs has hooks on it
            module = copy.deepcopy(self.module, memo=shared)
        return replace(self, module=module)

    def prepare(self, picture: Picture, fit: Fit | None = None) -> tuple[torch.Tensor, Geometry, list[str]]:
        """Turn a picture into this model's input.

        Args:
            picture: the decoded picture.
            fit: overrides the card's way to fit a picture of another aspect: crop, letterbox or stretch.

        Returns:
            The input of shape (1, 3, h, w) on the model's device, its geometry, and notes about what was done.
        """
        placed = self.place(picture, fit)
        return self.inputs([placed]), placed.geometry, list(placed.notes)

    def place(self, picture: Picture, fit: Fit | None = None) -> Placed:
        """What this model sees of a picture, as pixels; ``inputs`` makes a batch of several."""
        return place(picture, self.card.preprocessing, fit)

    def sides_for_draft(self, side: int = 0) -> tuple[int, int]:
        """The shorter and the longer side that a picture needs for what this model sees of it to stay sharp.

        Twice what the picture is resized to: decoded at that scale or a larger one, and then resized, it differs little
        from a picture that was decoded whole.

        Args:
            side: what the longer side is needed for otherwise, in pixels.
        """
        short = 2 * max(self.card.preprocessing.resize, *self.card.preprocessing.size)
        return short, max(short, side)

    def inputs(self, placed: Sequence[Placed]) -> torch.Tensor:
        """A batch of this model's inputs: pixels go to its device as bytes and are normalised there.

        Args:
            placed: B pictures, by ``place``.

        Returns:
            (B, 3, h, w) float32 on the model's device.
        """
        pixels = torch.from_numpy(np.stack([one.pixels for one in placed]))
        return normalized(pixels.to(self.device), self.card.preprocessing)

    @contextmanager
    def named_failures(self) -> Iterator[None]:
        """Say which card is to blame where the network fails on the card's own input.

        Raises:
            ModelError: in place of what the network raised, but for a lack of memory.
        """
        try:
            yield
        except (CamappError, torch.OutOfMemoryError):
            raise
        except (RuntimeError, AssertionError, ValueError, IndexError, TypeError) as error:
            size = "x".join(map(str, self.card.input.size))
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise ModelError(
                f"{self.name} fails on its own input of {size}: {reason} "
                + (f"Check input.size and architecture in its card {self.card.path}." if self.card.path else "")
            ) from error

    def label(self, index: int) -> str:
        """The name of the class ``index``.

        Raises:
            TargetError: the model has no such class.
        """
        return self.labels[self._classes.in_range(index)]

    def class_index(self, wanted: int | str) -> int:
        """The index of a class.

        Args:
            wanted: its index (digits are one too, unless a class has them for a name), its name in any case, or the
                start of a name that no other name shares, nor has as a word of its own.

        Raises:
            TargetError: no class is meant, or several are; lists the candidates.
        """
        return self._classes.index(wanted)

    @property
    def _classes(self) -> ClassNames:
        return ClassNames(self.name, self.labels)


def load_backbone(
    model: str | Path | ModelCard = DEFAULT_MODEL,
    *,
    random_weights: bool = False,
    device: str | torch.device = "auto",
    models: str | Path | None = None,
    download: bool = True,
) -> LoadedModel:
    """Load a backbone by its card; ``camapp.loading.load_model`` with all it says, but for files of probes."""
    card = model if isinstance(model, ModelCard) else find_card(model, models)
    where = find_device(device)
    labels = read_labels(card)
    module, weights = load_network(card, random_weights=random_weights, download=download)
    return LoadedModel(module.to(where), card, labels, where, weights)


def load_network(card: ModelCard, *, random_weights: bool = False, download: bool = True) -> tuple[nn.Module, Weights]:
    """A card's architecture in eval mode on the CPU, with its weights or with random ones.

    Raises:
        ModelError, WeightsError: as ``load_backbone``.
    """
    path = None if random_weights else obtain(card, download=download)
    module = build(card)
    weights = Weights(f"random (seed {_SEED})", random=True) if path is None else load_weights(module, card, path)
    return module.eval(), weights


def find_device(device: str | torch.device) -> torch.device:
    """The device that a name means; ``"auto"`` is CUDA where there is a GPU, else the CPU.

    Raises:
        UsageError: this machine does not have it.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        where = torch.device(device)
        torch.zeros(1, device=where).item()  # the only test that holds for every kind of device
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        gpus = torch.cuda.device_count()
        found = "cpu" + "".join(f", cuda:{index}" for index in range(gpus))
        raise UsageError(f'device="{device}" is not on this machine. Use auto, or one of {found}.') from error
    return where


def build(card: ModelCard) -> nn.Module:
    """The card's architecture with random weights, the same ones each time.

    Raises:
        ModelError: the library does not know the architecture, or cannot build it for the card's number of classes.
    """
    library, _, name = card.architecture.partition(":")
    create = _timm_model if library == "timm" else _torchvision_model
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        # torch.manual_seed would also reseed the caller's GPUs
        torch.default_generator.manual_seed(_SEED)
        module = create(name, card)
        wake_silent_layers(module)
    return module


def read_labels(card: ModelCard) -> tuple[str, ...]:
    """The names of a card's classes, by index.

    Raises:
        ModelError: the file of names is missing, is neither lines nor JSON names, or has another number of classes.
    """
    if card.labels.file is None:
        from torchvision.models import ResNet18_Weights

        return tuple(ResNet18_Weights.IMAGENET1K_V1.meta["categories"])
    path = card.labels.file
    try:
        text = path.read_text(encoding="utf-8-sig")
        names = _json_names(json.loads(text)) if text.lstrip()[:1] in ("[", "{") else text.rstrip().splitlines()
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise ModelError(f"Cannot read the labels of {card.name} in {path}: {reason}.") from error
    names = [name.strip() for name in names]
    if "" in names:
        raise ModelError(f"The labels of {card.name} in {path} have no name for class {names.index('')}.")
    if len(names) != card.labels.count:
        raise ModelError(
            f"The labels of {card.name} in {path} are {len(names)} names, but its card says labels.count = "
            f"{card.labels.count}."
        )
    return tuple(names)


def _json_names(content: object) -> list[str]:
    if isinstance(content, dict):
        if set(content) != {str(index) for index in range(len(content))}:
            raise ValueError(f'expected the keys "0" to "{len(content) - 1}" with a name each')
        content = [content[str(index)] for index in range(len(content))]
    if not isinstance(content, list) or not all(isinstance(name, str) for name in content):
        raise ValueError("expected a JSON list of names, or an object of index: name")
    return content


def _timm_model(name: str, card: ModelCard) -> nn.Module:
    import timm

    if not timm.is_model(name):
        raise _unknown_architecture(card, name, timm.list_models())
    return timm.create_model(name, pretrained=False, num_classes=card.labels.count)


def _torchvision_model(name: str, card: ModelCard) -> nn.Module:
    from torchvision import models

    known = models.list_models(module=models)
    if name not in known:
        raise _unknown_architecture(card, name, known)
    options: dict[str, bool] = {}
    if name in ("googlenet", "inception_v3"):
        # with its published weights torchvision's builder adds a change of the input's scale (torchvision 0.29)
        options = {"transform_input": card.weights.kind == "torchvision", "init_weights": True}
    return models.get_model(name, weights=None, num_classes=card.labels.count, **options)


def _unknown_architecture(card: ModelCard, name: str, known: list[str]) -> ModelError:
    return ModelError(
        f'The model card {card.path or card.name} is wrong: architecture = "{card.architecture}", but {card.library} '
        f'has no classifier "{name}".{did_you_mean(name, known)}'
    )


def wake_silent_layers(module: nn.Module) -> None:
    """Give random weights to linear layers that start at zero.

    A head of zeros (torchvision's vit_b_16) scores every picture 0 and has no gradient to explain.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Linear) and not layer.weight.any():
            nn.init.normal_(layer.weight, std=0.02)
