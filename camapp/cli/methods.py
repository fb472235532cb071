"""camapp methods: the ways to make a map."""

from __future__ import annotations

import json

from camapp.cli.options import JsonOption
from camapp.terminal import print_table, table_of


def list_methods(as_json: JsonOption = False) -> None:
    """List the methods: what each does in a line, and whether it looks at a layer."""
    from camapp.cam.methods import METHODS

    if as_json:
        rows = [
            {
                "name": kind.name,
                "title": kind.title,
                "summary": kind.summary(),
                "takes_layer": kind.takes_layer,
                "class_specific": kind.class_specific,
                "cost": kind.cost,
            }
            for kind in METHODS.values()
        ]
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    table = table_of("method", "what it shows")
    for kind in METHODS.values():
        table.add_row(kind.name, kind.summary())
    print_table(table)
