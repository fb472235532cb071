"""camapp models: which models there are."""

from __future__ import annotations

import json

from camapp.cli.options import JsonOption, ModelsOption
from camapp.terminal import out, print_table, table_of


def list_models(models: ModelsOption = None, as_json: JsonOption = False) -> None:
    """List the models: input size, source, and whether the weights are on this machine."""
    from camapp.backbones.cards import list_cards
    from camapp.backbones.weights import locate

    cards = [(card, locate(card)) for card in list_cards(models)]
    if as_json:
        rows = [
            {
                "name": card.name,
                "title": card.title,
                "architecture": card.architecture,
                "input": list(card.preprocessing.size),
                "classes": card.labels.count,
                "layer": card.layer,
                "source": card.weights.kind,
                "megabytes": card.weights.megabytes,
                "here": status.here,
                "path": str(status.path),
                "how": None if status.here else status.how,
            }
            for card, status in cards
        ]
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    table = table_of("model", "what it is", "input", "MiB", "weights from", "here")
    for card, status in cards:
        size = "x".join(map(str, card.preprocessing.size))
        megabytes = f"{card.weights.megabytes:.0f}" if card.weights.megabytes else ""
        table.add_row(card.name, card.title, size, megabytes, card.weights.kind, "yes" if status.here else "no")
    print_table(table)
    missing = [card.name for card, status in cards if not status.here]
    if missing:
        out.print("Weights that are not here are fetched at the first use; camapp models --json says from where.")
