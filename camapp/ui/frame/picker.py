"""A control to pick one or several of many things that need more than a name: grouped, described and searched."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from camapp.ui.frame.component import own_component, view

_HERE = Path(__file__).parent

# What a request may name at most; the controls of the page offer fewer.
_MOST_PICKED, _LONGEST_NAME = 32, 300


@dataclass(frozen=True)
class Option:
    """One thing to pick.

    Args:
        value: what the server is told.
        label: its name.
        group: the heading it stands under.
        detail: what there is to know about it, in one line.
        badge: a word or two that set it apart.
    """

    value: str
    label: str
    group: str = ""
    detail: str = ""
    badge: str = ""


def picker(label: str, options: Iterable[Option], chosen: Sequence[str], *, most: int = 1, **settings: Any) -> Picker:
    """The component; its value, for an event, is the list of what is picked.

    Args:
        label: what it is for.
        options: what there is to pick; those of one group follow each other.
        chosen: what is picked at first.
        most: how many may be picked at once.
        settings: for ``gr.HTML``. A pick triggers ``pick``.
    """
    return view(_HERE, "picker", kind=Picker, value=picker_value(options, chosen, most=most), title=label, **settings)


def picker_value(options: Iterable[Option], chosen: Sequence[str], *, most: int = 1) -> dict[str, Any]:
    """Another list of options, as the value of a picker that is there."""
    return {"options": [vars(option) for option in options], "chosen": list(chosen), "most": most}


with own_component():

    class Picker(gr.HTML):
        """``gr.HTML`` that hands an event the names picked, and nothing else of what a request claims."""

        is_template = True  # else the page asks for a custom component's JavaScript, and never finishes loading (6.31)

        def preprocess(self, payload: Any) -> list[str]:  # type: ignore[override]
            """The names picked, as text."""
            chosen = payload.get("chosen") if isinstance(payload, dict) else None
            if not isinstance(chosen, list) or len(chosen) > _MOST_PICKED:
                raise gr.Error("The request says nothing of what is picked.", print_exception=False)
            if any(not isinstance(one, str) or len(one) > _LONGEST_NAME for one in chosen):
                raise gr.Error("The request picks something that is no name.", print_exception=False)
            return list(dict.fromkeys(chosen))
