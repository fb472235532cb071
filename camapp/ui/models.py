"""Which models the page offers, and the few that are loaded."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path

from camapp.backbones.cards import ModelCard, find_card, list_cards
from camapp.backbones.layers import LayerInfo, list_layers
from camapp.backbones.load import DEFAULT_MODEL, LoadedModel, read_labels
from camapp.backbones.weights import locate, obtain
from camapp.errors import ModelError, did_you_mean
from camapp.features.saved import SUFFIX
from camapp.loading import load_model

MOST_LOADED = 3


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
        self._trained: dict[str, LoadedModel] = {}
        cards = list_cards(models)
        if default.lower().endswith(SUFFIX):
            trained = load_model(default, random_weights=random_weights, device=device, download=False)
            self._trained[trained.name] = trained
            self.default = trained.name
            cards = [trained.card, *(card for card in cards if card.name != trained.name)]
        else:
            self.default = find_card(default, models).name
        if self.default not in {card.name for card in cards}:  # the path of a card in no folder
            cards.insert(0, find_card(default))
        self.random_weights = random_weights
        self._cards = {
            card.name: card for card in cards if card.name in self._trained or random_weights or locate(card).here
        }
        self.missing = tuple(card for card in cards if card.name not in self._cards)
        self._device = device
        self._loaded: OrderedDict[str, tuple[LoadedModel, list[LayerInfo]]] = OrderedDict()
        self._lock = threading.Lock()
        if self.default not in self._cards:
            obtain(next(card for card in cards if card.name == self.default), download=False)

    @property
    def cards(self) -> tuple[ModelCard, ...]:
        """The cards of the models on offer."""
        return tuple(self._cards.values())

    def card(self, name: str) -> ModelCard:
        """The card of a model on offer.

        Raises:
            ModelError: the page does not offer it.
        """
        if name not in self._cards:
            raise ModelError(
                f'Model "{name}" is not available on this page.{did_you_mean(name, self._cards)} {self._known()}'
            )
        return self._cards[name]

    def load(self, name: str) -> LoadedModel:
        """The model, loaded once and kept until ``MOST_LOADED`` others have been used since.

        Raises:
            ModelError, WeightsError: the page does not offer it, or it cannot be loaded.
        """
        return self._get(name)[0]

    def is_loaded(self, name: str) -> bool:
        """Whether the model is ready at once."""
        return name in self._loaded

    def layers(self, name: str) -> list[LayerInfo]:
        """The layers of a model that have a map, deepest first."""
        return self._get(name)[1]

    def labels(self, name: str) -> tuple[str, ...]:
        """The names of a model's classes, by index."""
        return self._trained[name].labels if name in self._trained else read_labels(self.card(name))

    def _get(self, name: str) -> tuple[LoadedModel, list[LayerInfo]]:
        card = self.card(name)
        with self._lock:
            if name not in self._loaded:
                model = self._trained.get(name) or load_model(
                    card, random_weights=self.random_weights, device=self._device, download=False
                )
                while len(self._loaded) >= MOST_LOADED:
                    self._loaded.popitem(last=False)
                self._loaded[name] = (model, _layers_with_a_map(model))
            self._loaded.move_to_end(name)
            return self._loaded[name]

    def _known(self) -> str:
        return f"Models here: {', '.join(self._cards)}."


def _layers_with_a_map(model: LoadedModel) -> list[LayerInfo]:
    listed = list_layers(model)
    return [layer for layer in listed if layer.worth_explaining][::-1]
