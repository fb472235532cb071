"""What an address asks for: every control but the upload, read once when the page is opened."""

from __future__ import annotations

import html
from collections.abc import Mapping

import gradio as gr

from camapp.errors import CamappError, UsageError, did_you_mean
from camapp.ui.frame.choices import MOST_LAYERS, check_layer
from camapp.ui.frame.classes import class_value, is_top
from camapp.ui.frame.models import ModelPool
from camapp.ui.frame.picker import picker_value
from camapp.ui.frame.samples import sample_path
from camapp.ui.frame.selection import Selection, Update, layer_names, layer_options, method_options

# Nobody means more by it.
_LONGEST = 300


def read_address(query: Mapping[str, str], pool: ModelPool, selection: Selection) -> tuple[Update, list[str]]:
    """The updates of the shared controls that an address asks for.

    Args:
        query: the address's parameters: model, layer (several with commas between), method, class, sample.
        pool: the models on offer.
        selection: the shared controls.

    Returns:
        The updates, and a sentence for each parameter that nothing can be made of; that stays as usual.
    """
    updates: Update = {}
    notices: list[str] = []
    asked = {name: value[:_LONGEST] for name, value in query.items() if value}
    model = asked.get("model", pool.default)
    try:
        if model != pool.default:
            updates |= selection.switched_to(model)
    except CamappError as error:
        notices.append(str(error))
        model = pool.default
    for read in (_layers, _method, _target, _sample):
        try:
            updates |= read(asked, model, pool, selection)
        except CamappError as error:
            notices.append(str(error))
    return updates, notices


def _layers(asked: Mapping[str, str], model: str, pool: ModelPool, selection: Selection) -> Update:
    if "layer" not in asked:
        return {}
    known = pool.layers(model)
    wanted = layer_names(asked["layer"])[:MOST_LAYERS]
    for name in wanted:
        check_layer(name, known, model)
    return {selection.layers: picker_value(layer_options(known), wanted, most=MOST_LAYERS)}


def _method(asked: Mapping[str, str], model: str, pool: ModelPool, selection: Selection) -> Update:
    if "method" not in asked:
        return {}
    options = method_options(pool.unsuitable(model))
    names = [option.value for option in options]
    if asked["method"] not in names:
        hint = did_you_mean(asked["method"], names)
        raise UsageError(f'The address names the method "{asked["method"]}", which {model} is not shown by.{hint}')
    return {selection.method: picker_value(options, [asked["method"]])}


def _target(asked: Mapping[str, str], model: str, pool: ModelPool, selection: Selection) -> Update:
    if "class" not in asked:
        return {}
    if is_top(asked["class"]):
        return {}
    chosen = pool.load(model).class_index(asked["class"])
    return {selection.target: class_value(model, pool.labels(model), chosen)}


def _sample(asked: Mapping[str, str], model: str, pool: ModelPool, selection: Selection) -> Update:
    return {selection.picture: sample_path(asked["sample"])} if "sample" in asked else {}


def notify(notices: list[str]) -> None:
    """Show what an address asked for in vain, in one message: Gradio 6.31 shows one of several."""
    if notices:
        gr.Warning("<br>".join(html.escape(notice, quote=False) for notice in notices))
