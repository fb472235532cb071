"""The selection that all tabs share: a picture, a model, its layers, a method and a class."""

from __future__ import annotations

import html
from typing import Any

import gradio as gr

from camapp.backbones.layers import LayerInfo
from camapp.cam.methods import METHODS
from camapp.ui.frame.choices import MOST_LAYERS, recommended_layer
from camapp.ui.frame.classes import chosen_class, class_picker, class_value, usual_class
from camapp.ui.frame.models import ModelPool
from camapp.ui.frame.picker import Option, picker, picker_value
from camapp.ui.frame.samples import sample_strip
from camapp.ui.frame.uploads import picture_input
from camapp.ui.frame.words import shape_text

Update = dict[Any, Any]


class Selection:
    """Draws the shared controls inside the open ``gr.Blocks``, and knows what another model makes of them.

    Args:
        pool: the models on offer.
    """

    picture: gr.Image
    samples: gr.HTML
    model: gr.Dropdown
    layers: gr.HTML
    method: gr.HTML
    target: gr.HTML

    def __init__(self, pool: ModelPool) -> None:
        self._pool = pool
        # tabs' own controls for classes, which must fit the model too
        self.other_classes: list[gr.HTML] = []

    @property
    def chosen(self) -> list[Any]:
        """The components, as inputs of an event: path of the picture or None, model, layers, methods (one), class."""
        return [self.picture, self.model, self.layers, self.method, self.target]

    @property
    def switched(self) -> list[Any]:
        """The components that ``switched_to`` updates."""
        return [self.model, self.layers, self.method, self.target, *self.other_classes]

    def retargeted(self, target: int | str) -> Update:
        """The class for which one thing is to be shown, and nothing of what was chosen beside the class before."""
        return {self.target: chosen_class(target), **{control: usual_class() for control in self.other_classes}}

    def draw_model(self) -> None:
        """The model, for the top bar."""
        cards = self._pool.cards
        self.model = gr.Dropdown(
            [(card.title, card.name) for card in cards],
            value=self._pool.default,
            label="Model",
            elem_id="model",
        )

    def draw_picture(self) -> None:
        """The picture and the samples."""
        self.picture = picture_input(
            label="Picture",
            elem_id="picture",
            elem_classes=["picture-input"],
            height=230,
            buttons=[],
            placeholder="Drop a picture here, or click to choose one",
            alt_text="The picture to look at",
        )
        self.samples = sample_strip(elem_id="samples")

    def draw_layers(self) -> None:
        """The layers of the model, several at once."""
        layers = self._pool.layers(self._pool.default)
        self.layers = picker(
            "Layer", layer_options(layers), [recommended_layer(layers)], most=MOST_LAYERS, elem_id="layers"
        )

    def draw_method(self) -> None:
        """The methods that suit the model."""
        self.method = picker("Method", self._method_options(self._pool.default), ["gradcam"], elem_id="method")

    def draw_target(self) -> None:
        """The classes of the model."""
        value = class_value(self._pool.default, self._pool.labels(self._pool.default))
        self.target = class_picker("Class to explain", value, elem_id="target")

    def draw_other_models(self) -> None:
        """The models that could be on offer, if their weights were here."""
        missing = self._pool.missing
        if not missing:
            return
        names = html.escape(", ".join(card.title for card in missing))
        count = "1 more model" if len(missing) == 1 else f"{len(missing)} more models"
        gr.HTML(
            f'<details class="other-models"><summary>{count} without weights here</summary>'
            f"<p>{names}. <code>camapp models --json</code> says how to get their weights.</p></details>",
            elem_id="other-models",
            apply_default_css=False,
        )

    def switched_to(self, name: str, method: str = "gradcam") -> Update:
        """What another model makes of the controls: its layers, methods and classes; the method stays where it suits.

        Args:
            name: of a model on offer, or of a trained one as the pool named it.
            method: the method chosen so far.

        Raises:
            ModelError, WeightsError: there is no such model, or it cannot be loaded.
        """
        layers, card = self._pool.layers(name), self._pool.card(name)
        suited = "gradcam" if method in self._pool.unsuitable(name) or method not in METHODS else method
        cards = [(one.title, one.name) for one in self._pool.cards]
        if name not in {value for _, value in cards}:
            cards.append((f"{card.title} (trained here)", name))
        return {
            self.model: gr.Dropdown(choices=cards, value=name),
            self.layers: picker_value(layer_options(layers), [recommended_layer(layers)], most=MOST_LAYERS),
            self.method: picker_value(self._method_options(name), [suited]),
            **{one: class_value(name, self._pool.labels(name)) for one in (self.target, *self.other_classes)},
        }

    def _method_options(self, model: str) -> list[Option]:
        return method_options(self._pool.unsuitable(model))


def layer_names(text: str) -> list[str]:
    """Names of layers with commas between."""
    return [name.strip() for name in text.split(",") if name.strip()]


def layer_options(layers: list[LayerInfo]) -> list[Option]:
    """Layers, deepest first, under the size of their maps."""
    return [
        Option(
            layer.name,
            layer.name,
            group=_stage(layer),
            detail=shape_text(layer.shape) + f" · {layer.kind}",
            badge="recommended" if layer.recommended else "",
        )
        for layer in layers
    ]


def method_options(unsuitable: dict[str, str]) -> list[Option]:
    """The methods that suit a model: quick ones first, each with what it does, costs, and whether it knows classes."""
    suited = [kind for name, kind in METHODS.items() if name not in unsuitable]
    return [
        Option(
            kind.name,
            kind.title,
            group="Slow: seconds to minutes" if kind.runs_many else "Quick",
            detail=f"{kind.summary().partition(': ')[2] or kind.summary()} Cost: {kind.cost}.",
            badge="" if kind.class_specific else "ignores the class",
        )
        for kind in sorted(suited, key=lambda kind: kind.runs_many)
    ]


def _stage(layer: LayerInfo) -> str:
    return f"Maps of {shape_text(layer.grid)}"
