"""Which models the page offers, and the few that are loaded."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict, defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

from camapp.backbones.cards import ModelCard, find_card, list_cards
from camapp.backbones.classes import ClassNames
from camapp.backbones.layers import LayerInfo, list_layers
from camapp.backbones.load import DEFAULT_MODEL, LoadedModel, read_labels
from camapp.backbones.weights import locate, obtain
from camapp.cam.suitability import unsuitable_methods
from camapp.errors import ModelError, did_you_mean
from camapp.features.saved import SUFFIX
from camapp.loading import load_model
from camapp.ui.environment import kept_text
from camapp.ui.frame.kept import Kept

MOST_LOADED = 3
MOST_TRAINED = 20


@dataclass(frozen=True)
class _Ready:
    """A model that is loaded, and what the page asks of it over and over.

    Args:
        model: for quick tasks.
        twin: for slow ones, so that neither waits for the other.
        layers: those with a map, deepest first.
        unsuitable: methods that refuse it, with their reasons.
    """

    model: LoadedModel
    twin: LoadedModel
    layers: list[LayerInfo]
    unsuitable: dict[str, str]


class ModelPool:
    """The models whose weights are on this machine; the last few used stay loaded. Nothing is downloaded.

    Args:
        models: a folder of the user's own cards.
        default: the model chosen at first; also a trained classifier (``.camapp``), which is then on offer too.
        random_weights: offer every model, with random weights.
        device: as for ``load_model``.

    Raises:
        ModelError, WeightsError: the default model does not exist, or its weights are not here.
    """

    def __init__(
        self,
        models: str | Path | None = None,
        default: str = DEFAULT_MODEL,
        *,
        random_weights: bool = False,
        device: str = "auto",
    ) -> None:
        self._given: dict[str, LoadedModel] = {}
        cards = list_cards(models)
        if default.lower().endswith(SUFFIX):
            given = load_model(default, random_weights=random_weights, device=device, download=False)
            self._given[given.name] = given
            self.default = given.name
            cards = [given.card, *(card for card in cards if card.name != given.name)]
        else:
            self.default = find_card(default, models).name
        if self.default not in {card.name for card in cards}:  # the path of a card in no folder
            cards.insert(0, find_card(default))
        self.random_weights = random_weights
        self._cards = {
            card.name: card for card in cards if card.name in self._given or random_weights or locate(card).here
        }
        self.missing = tuple(card for card in cards if card.name not in self._cards)
        self._device = device
        self._loaded: OrderedDict[str, _Ready] = OrderedDict()
        self._trained: Kept[tuple[_Ready, int]] = Kept(
            f"This classifier was kept for {kept_text()}, and is gone. Train it again.",
            size_of=lambda trained: trained[1],
            most=MOST_TRAINED,
        )
        self._lock = threading.Lock()
        self._loading: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        if self.default not in self._cards:
            obtain(next(card for card in cards if card.name == self.default), download=False)

    @property
    def cards(self) -> tuple[ModelCard, ...]:
        """The cards of the models on offer to everybody."""
        return tuple(self._cards.values())

    def card(self, name: str) -> ModelCard:
        """The card of a model on offer.

        Raises:
            ModelError: the page does not offer it.
        """
        trained = self._trained_here(name)
        if trained is not None:
            return trained.model.card
        if name not in self._cards:
            raise ModelError(
                f'Model "{name}" is not available on this page.{did_you_mean(name, self._cards)} {self._known()} '
                f"Classifiers trained here are kept for {kept_text()}."
            )
        return self._cards[name]

    def load(self, name: str, *, slow: bool = False) -> LoadedModel:
        """The model, loaded once and kept until ``MOST_LOADED`` others have been used since.

        Args:
            name: of a model on offer, or as ``add`` named it.
            slow: for a task of the slow lane, which must not keep quick ones waiting.

        Raises:
            ModelError, WeightsError: the page does not offer it, or it cannot be loaded.
        """
        ready = self._get(name)
        return ready.twin if slow else ready.model

    def add(self, model: LoadedModel, file: str, owner: str = "", *, size: int = 0) -> str:
        """Offer a classifier that a visitor trained, to those who know its name; it is kept for an hour.

        Args:
            model: backbone and classifier.
            file: what its file is called: results and calls name it so, for the name below is nobody else's business.
            owner: whose it is, as ``owner_of`` says.
            size: bytes that the classifier takes beside its backbone.

        Returns:
            The name that nobody guesses.
        """
        name = f"{model.name}-{secrets.token_urlsafe(9)}"
        named = replace(model, card=model.card.model_copy(update={"name": file, "title": model.name}))
        return self._trained.keep((_ready(named), size), owner, token=name)

    def is_loaded(self, name: str) -> bool:
        """Whether the model is ready at once."""
        return name in self._loaded or self._trained_here(name) is not None

    def layers(self, name: str) -> list[LayerInfo]:
        """The layers of a model that have a map, deepest first."""
        return self._get(name).layers

    def unsuitable(self, name: str) -> dict[str, str]:
        """The methods that refuse a model, by name, with their reasons."""
        return self._get(name).unsuitable

    def labels(self, name: str) -> tuple[str, ...]:
        """The names of a model's classes, by index."""
        trained = self._trained_here(name)
        if trained is not None:
            return trained.model.labels
        return self._given[name].labels if name in self._given else read_labels(self.card(name))

    def class_index(self, name: str, wanted: int | str) -> int:
        """The index of one of a model's classes, as ``LoadedModel.class_index`` has it; the model need not be loaded.

        Raises:
            ModelError: the page does not offer the model.
            TargetError: no class is meant, or several are; lists the candidates.
        """
        return ClassNames(self.card(name).name, self.labels(name)).index(wanted)

    def _get(self, name: str) -> _Ready:
        trained = self._trained_here(name)
        if trained is not None:
            return trained
        card = self.card(name)
        with self._lock:
            if name in self._loaded:
                self._loaded.move_to_end(name)
                return self._loaded[name]
            loading = self._loading[name]
        with loading:  # once, while requests for other models go on
            with self._lock:
                if name in self._loaded:
                    return self._loaded[name]
            ready = _ready(self._given.get(name) or self._from_disk(card))
            with self._lock:
                self._loaded[name] = ready
                while len(self._loaded) > MOST_LOADED:
                    self._loaded.popitem(last=False)
            return ready

    def _from_disk(self, card: ModelCard) -> LoadedModel:
        return load_model(card, random_weights=self.random_weights, device=self._device, download=False)

    def _trained_here(self, name: str) -> _Ready | None:
        kept = self._trained.get(name)
        return None if kept is None else kept[0]

    def _known(self) -> str:
        return f"Models here: {', '.join(self._cards)}."


def _ready(model: LoadedModel) -> _Ready:
    layers = [layer for layer in list_layers(model) if layer.worth_explaining][::-1]
    return _Ready(model, model.twin(), layers, unsuitable_methods(model))
