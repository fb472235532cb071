"""camapp layers: what is inside a model."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from camapp.cli.options import JsonOption, ModelsOption
from camapp.terminal import print_table, table_of


def list_layers_of(
    model: Annotated[str, typer.Argument(help="A model card's name, or a card's .toml file.")],
    maps: Annotated[bool, typer.Option("--maps", help="Only layers that give a map, which can be explained.")] = False,
    models: ModelsOption = None,
    as_json: JsonOption = False,
) -> None:
    """List a model's layers with their shapes, and mark the one to explain by default."""
    from camapp.backbones.layers import list_layers
    from camapp.loading import load_model

    loaded = load_model(model, random_weights=True, device="cpu", models=models)  # shapes need no weights
    layers = [one for one in list_layers(loaded) if one.worth_explaining or not maps]
    if as_json:
        print(json.dumps([vars(one) for one in layers], indent=2))
        return
    table = table_of("layer", "class", "shape", "map", "parameters", "")
    for one in layers:
        shape = "x".join(map(str, one.shape)) if one.shape else ("" if one.calls else "never runs")
        grid = "x".join(map(str, one.grid)) if one.grid else ""
        mark = "<- recommended" if one.recommended else ""
        table.add_row(one.name, one.kind, shape, grid, f"{one.parameters:,}" if one.parameters else "", mark)
    print_table(table)
