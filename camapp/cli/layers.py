"""camapp layers: what is inside a model."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from camapp.cli.options import JsonOption, ModelsOption
from camapp.terminal import out, print_table, table_of


def list_layers_of(
    model: Annotated[str, typer.Argument(help="A model card's name, or a card's .toml file.")],
    maps: Annotated[bool, typer.Option("--maps", help="Only layers that give a map, which can be explained.")] = False,
    models: ModelsOption = None,
    as_json: JsonOption = False,
) -> None:
    """List a model's layers with their shapes and what they cost, and mark the one to explain by default."""
    from camapp.backbones.costs import measure_costs
    from camapp.backbones.layers import list_layers
    from camapp.hooks.report.table import percent
    from camapp.loading import load_model

    loaded = load_model(model, random_weights=True, device="cpu", models=models)  # shapes need no weights
    layers = [one for one in list_layers(loaded) if one.worth_explaining or not maps]
    costs = measure_costs(loaded)
    if as_json:
        facts = [{**vars(one), "macs": costs[one.name].macs, "share": costs[one.name].share} for one in layers]
        print(json.dumps(facts, indent=2))
        return
    table = table_of("layer", "class", "shape", "map", "parameters", "compute", "", right=("parameters", "compute"))
    for one in layers:
        shape = "x".join(map(str, one.shape)) if one.shape else ("" if one.calls else "never runs")
        grid = "x".join(map(str, one.grid)) if one.grid else ""
        mark = "<- recommended" if one.recommended else ""
        parameters = f"{one.parameters:,}" if one.parameters else ""
        share = percent(costs[one.name].share) if costs[one.name].macs else ""
        table.add_row(one.name, one.kind, shape, grid, parameters, share, mark)
    print_table(table)
    size = "x".join(map(str, costs.size))
    out.print(f"{costs.parameters:,} parameters; {costs.macs / 1e6:,.0f} million multiply-accumulates at {size}")
