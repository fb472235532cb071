"""The depth view: norms of activations and gradients from the first layer to the last, and what is wrong in them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

import gradio as gr

from camapp.hooks.report.measured import TensorStatistics
from camapp.hooks.report.picture import Panel, Place, panels_of
from camapp.hooks.report.rows import LayerRow, layer_rows, subject
from camapp.hooks.report.table import percent
from camapp.inspection import Inspection
from camapp.ui.frame.component import view
from camapp.ui.frame.words import figure, shape_text

# Verdicts of one kind that are listed; a network of NaN has one for every layer.
MOST_OF_A_KIND = 4

_HERE = Path(__file__).parent


def depth_view(**options: Any) -> gr.HTML:
    """The component; its value is made by ``depth_of``, ``{"error": message}``, or ``{"waiting": true}``.

    A click on a layer that has a map triggers ``inspect`` with its ``layer``.
    """
    return view(_HERE, "depth", **options)


def depth_of(inspection: Inspection, maps: Iterable[str], token: str) -> dict[str, Any]:
    """What the view shows: plain data, finite numbers only, which the page writes as text.

    Args:
        inspection: of one picture.
        maps: the names of layers that may be inspected.
        token: under which the files are kept for download.
    """
    snapshot = inspection.snapshot
    rows = layer_rows(snapshot)
    panels = panels_of(snapshot)
    inspectable = set(maps)
    (picture,) = inspection.pictures
    kinds = dict.fromkeys(one.what for one in snapshot.verdicts)
    listed = [
        {"what": one.what, "subject": subject(snapshot, one), "why": one.why}
        for kind in kinds
        for one in [verdict for verdict in snapshot.verdicts if verdict.what == kind][:MOST_OF_A_KIND]
    ]
    marks = _marks(panels)
    return {
        "scored": f"{picture.target}, score {figure(picture.score)}",
        "layers": [_layer(row, row.name in inspectable, marks.get(row.name, [])) for row in rows],
        "stages": _stages([row.name for row in rows]),
        "panels": [_panel(panel) for panel in panels],
        "verdicts": listed,
        "more": len(snapshot.verdicts) - len(listed),
        "without_gradient": len(snapshot.without_gradient),
        "words": _in_words(panels),
        "token": token,
    }


def _marks(panels: list[Panel]) -> dict[str, list[str]]:
    """What is wrong at each layer, in its activation, its gradient or its parameters."""
    found: dict[str, list[str]] = {}
    for panel in panels:
        for place in panel.places:
            marked = found.setdefault(place.name, [])
            marked += [what for what in place.what if what not in marked]
    return found


def _layer(row: LayerRow, inspectable: bool, what: list[str]) -> dict[str, Any]:
    active, gradient = row.activation, row.gradient
    return {
        "name": row.name,
        "kind": row.kind,
        "shape": shape_text(row.shape[1:]),
        "map": inspectable,
        "activation": "" if active is None else figure(active.norm),
        "gradient": "" if gradient is None else figure(gradient.norm),
        "zero": "" if active is None else percent(active.zero_share),
        "what": what,
    }


def _panel(panel: Panel) -> dict[str, Any]:
    return {
        "title": panel.title[:1].upper() + panel.title[1:],
        "missing": panel.missing,
        "values": [_finite(place.figures) for place in panel.places],
        "broken": [at for at, place in enumerate(panel.places) if _is_broken(place)],
        "marks": [[at, what] for at, place in enumerate(panel.places) for what in place.what],
    }


def _finite(figures: TensorStatistics | None) -> float | None:
    return figures.norm if figures is not None and math.isfinite(figures.norm) else None


def _is_broken(place: Place) -> bool:
    return place.figures is not None and (place.figures.nonfinite > 0 or not math.isfinite(place.figures.norm))


def _stages(names: list[str]) -> list[list[Any]]:
    """Where the parts of the network begin: by the first word of the layers' names, and its number where it has one."""
    found = []
    at = 0
    for stage, group in groupby(names, _stage):
        found.append([at, stage])
        at += sum(1 for _ in group)
    return found


def _stage(name: str) -> str:
    first, _, rest = name.partition(".")
    second = rest.partition(".")[0]
    return f"{first}.{second}" if second.isdigit() else first


def _in_words(panels: list[Panel]) -> str:
    """The chart as a text alternative: for each panel, where the norm is smallest and largest."""
    said = []
    for panel in panels:
        norms = [(_finite(place.figures), place.name) for place in panel.places]
        known = [(norm, name) for norm, name in norms if norm is not None]
        if known:
            low, high = min(known), max(known)
            title = panel.title[:1].upper() + panel.title[1:]
            said.append(f"{title}: norms from {figure(low[0])} at {low[1]} to {figure(high[0])} at {high[1]}")
    return ". ".join(said) + "." if said else ""
