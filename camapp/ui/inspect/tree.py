"""The layer tree: what a model is made of and what each part costs; a click on a layer with a map inspects it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from camapp.backbones.costs import Costs, ModuleCost
from camapp.backbones.layers import LayerInfo
from camapp.hooks.report.table import percent
from camapp.ui.frame.component import view
from camapp.ui.frame.words import amount, shape_text

_HERE = Path(__file__).parent


def tree_view(**options: Any) -> gr.HTML:
    """The component; its value is made by ``tree_of``, or None. A row triggers ``inspect`` with its ``layer``."""
    return view(_HERE, "tree", **options)


def tree_of(costs: Costs, layers: Sequence[LayerInfo], title: str, chosen: str, token: str) -> dict[str, Any]:
    """What the tree shows: plain data, which the page writes as text.

    Args:
        costs: of the model.
        layers: those that have a map and may be inspected.
        title: the model's, as people know it.
        chosen: the layer that is inspected; may name a call (``relu@0``).
        token: that the page can tell one result by.
    """
    maps = {layer.name: layer for layer in layers}
    size = shape_text(costs.size)
    compute = f"{amount(costs.macs)} multiply-accumulates for a picture of {size}"
    return {
        "title": title,
        "summary": f"{costs.parameters:,} parameters, {compute}",
        "rows": [_row(one, maps.get(one.name)) for one in costs if one.name],
        "chosen": chosen.partition("@")[0],
        "token": token,
    }


def _row(one: ModuleCost, layer: LayerInfo | None) -> dict[str, Any]:
    shape = shape_text(one.shape)
    return {
        "name": one.name,
        "short": one.short_name,
        "kind": one.kind,
        "depth": one.depth,
        "parts": len(one.children),
        "shape": shape if one.calls else "never runs",
        "calls": one.calls,
        "parameters": f"{one.parameters:,}" if one.parameters else "",
        "share": one.share,
        "compute": percent(one.share) if one.macs else "",
        "macs": f"{one.macs:,} multiply-accumulates" if one.macs else "",
        "map": layer is not None,
        "recommended": layer is not None and layer.recommended,
    }
