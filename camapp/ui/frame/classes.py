"""A control to pick one of a model's classes, by typing: the names lie with the browser, not with Gradio.

Gradio 6.31 copies the properties of every input several times an event; with the thousand choices of a ``gr.Dropdown``
that takes a tenth of a second.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from camapp.ui.frame.component import own_component, view

# gr.HTML takes None for "nothing chosen"
TOP_PREDICTION = -1

# Classes are numbered by 32 bits at most, whatever a request says.
_MOST = 2**31

_HERE = Path(__file__).parent

# What a class may be: its index, or its index or name as text. See ``is_top``.
Target = int | str | None


def is_top(target: Target) -> bool:
    """Whether a class that a visitor or a program sent means the top prediction."""
    return target in (TOP_PREDICTION, str(TOP_PREDICTION), "", None)


def class_picker(
    label: str,
    value: dict[str, Any],
    specials: Sequence[tuple[str, int]] = (("Top prediction", TOP_PREDICTION),),
    **settings: Any,
) -> ClassPicker:
    """The component; its value, for an event, is the index of the class, or the number of a special choice.

    Args:
        label: what it is for.
        value: see ``class_value``.
        specials: what may be chosen beside the classes: text and number, below 0. The first is the usual choice.
        settings: for ``gr.HTML``. A pick triggers ``pick``.
    """
    return view(
        _HERE,
        "classes",
        kind=ClassPicker,
        value=value,
        title=label,
        specials=[list(special) for special in specials],
        **settings,
    )


def class_value(model: str, labels: Sequence[str], chosen: int | None = None) -> dict[str, Any]:
    """Another model's classes, as the value of a class picker; of two classes of one name each says its index.

    Args:
        model: whose; told the classes of the model that it has, a class picker keeps what is chosen.
        labels: the names of its classes, by index.
        chosen: what is chosen; None for the usual choice of another model.
    """
    count = Counter(labels)
    names = [f"{label} ({index})" if count[label] > 1 else label for index, label in enumerate(labels)]
    value: dict[str, Any] = {"model": model, "classes": names}
    return value if chosen is None else value | chosen_class(chosen)


def chosen_class(chosen: int | str) -> dict[str, Any]:
    """Another choice among the classes that a class picker has, as its value; anything but a number means nothing."""
    return {"chosen": chosen}


def usual_class() -> dict[str, Any]:
    """The usual choice of a class picker, the first of its special ones, as its value."""
    return {"usual": True}


with own_component():

    class ClassPicker(gr.HTML):
        """``gr.HTML`` that hands an event the number chosen, and nothing else of what a request claims."""

        is_template = True  # else the page asks for a custom component's JavaScript, and never finishes loading (6.31)

        def preprocess(self, payload: Any) -> int:  # type: ignore[override]
            """The number chosen."""
            chosen = payload.get("chosen", TOP_PREDICTION) if isinstance(payload, dict) else None
            if not isinstance(chosen, int) or isinstance(chosen, bool) or abs(chosen) > _MOST:
                raise gr.Error("The request says nothing of which class is meant.", print_exception=False)
            return chosen
