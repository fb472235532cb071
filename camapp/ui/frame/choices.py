"""What the choices of all tabs have in common: what can be seen to be wrong, and what the recommended layer means."""

from __future__ import annotations

from collections.abc import Sequence

from camapp.backbones.layers import LayerInfo
from camapp.errors import LayerError, UsageError, did_you_mean

MOST_LAYERS = 3

# What a name may be at most in a message.
_LONGEST = 200


def needed_picture(picture: str | None) -> str:
    """The path of an upload.

    Raises:
        UsageError: there is none.
    """
    if not picture:
        raise UsageError("There is no picture yet. Upload one, paste one, or pick a sample.")
    return picture


def check_layer_count(layers: Sequence[str]) -> None:
    """Refuse more layers than can be joined.

    Raises:
        UsageError: there are too many.
    """
    if len(layers) > MOST_LAYERS:
        raise UsageError(f"{len(layers)} layers are too many: choose up to {MOST_LAYERS}.")


def check_layer(name: str, layers: Sequence[LayerInfo], model: str) -> None:
    """Refuse a layer that the page does not offer.

    Args:
        name: of the layer, or of one of its calls (``NAME@2``).
        layers: those of the model that have a map.
        model: its name.

    Raises:
        LayerError: it is none of them.
    """
    plain, names = name.partition("@")[0][:_LONGEST], [layer.name for layer in layers]
    if plain not in names:
        raise LayerError(f'{model} has no layer "{name[:_LONGEST]}" with a map.{did_you_mean(plain, names)}')


def recommended_layer(layers: Sequence[LayerInfo]) -> str:
    """The layer that is looked at where nobody chose one; "" where a model has none with a map."""
    return next((layer.name for layer in layers if layer.recommended), layers[0].name if layers else "")


def own_layers(chosen: Sequence[str], layers: Sequence[LayerInfo], *, exact: bool = False) -> bool:
    """Whether the method's own choice of layers is meant, which may be several.

    Args:
        chosen: names of layers.
        layers: those of the model that have a map.
        exact: whether the recommended layer means itself, as to a program. On the page, which always has a layer
            chosen, it means the method's own choice.
    """
    return not chosen or (not exact and list(chosen) == [recommended_layer(layers)])
