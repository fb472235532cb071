"""The same call as library code and as a command, to be copied; and the address of a result."""

from __future__ import annotations

import shlex
from typing import Any

from camapp.ui.explain.choices import NO_RIVAL, OWN_FIT, Explained
from camapp.ui.frame.calls import CalledModel, here, in_a_comment
from camapp.ui.frame.samples import is_sample


def python_of(explained: Explained) -> str:
    """A program that makes the same maps."""
    explanation, options = explained.explanation, _options(explained)
    targets = [one.index for one in explanation.classes]
    named = ", ".join(in_a_comment(one.label) for one in explanation.classes)
    model = _called(explained)
    arguments = [
        model.python,
        repr(explanation.picture.name),
        f"targets={targets if len(targets) > 1 else targets[0]},  # {named}",
    ]
    lines = [f"    {one}{'' if one.startswith('targets') else ','}" for one in arguments]
    lines += [f"    {name}={value!r}," for name, value in options.items()]
    body = "\n".join(lines)
    both = 'contrast = camapp.Contrast(explanation)\ncontrast.overlay().show()\ncontrast.save("heatmaps")'
    shown = both if len(targets) > 1 else "explanation.overlay().show()"
    call = f"explanation = camapp.explain(\n{body}\n)\n{shown}\n"
    return f'{model.hint}import camapp\n\n{call}explanation.save("heatmaps")\n'


def command_of(explained: Explained) -> str:
    """A command that makes the same maps."""
    explanation, options = explained.explanation, _options(explained)
    words = ["camapp", "explain", here(explanation.picture.name), *_called(explained).words]
    for one in explanation.classes:
        words += ["--target", str(one.index)]
    for name, value in options.items():
        for each in value if isinstance(value, list) else [value]:
            words += [f"--{name}", each]
    if len(explanation) > 1:
        words.append("--contrast")
    return shlex.join(words)


def address_of(explained: Explained) -> dict[str, str]:
    """What the page's address says of a result: everything but an uploaded picture; "" for what is as usual."""
    choices, explanation = explained.choices, explained.explanation
    return {
        "model": choices.model,
        "layer": ",".join(explanation.layer.split(" + ")) if "layer" in _options(explained) else "",
        "method": "" if explanation.method == "gradcam" else explanation.method,
        "class": "" if str(choices.target) == "-1" else str(choices.target),
        "vs": "" if choices.rival in (NO_RIVAL, str(NO_RIVAL)) else str(choices.rival),
        "fit": "" if choices.fit == OWN_FIT else choices.fit,
        "sign": "" if choices.sign == "positive" else choices.sign,
        "sample": explanation.picture.name if is_sample(choices.picture) else "",
    }


def _called(explained: Explained) -> CalledModel:
    return CalledModel(explained.named, explained.explanation.random_weights)


def _options(explained: Explained) -> dict[str, Any]:
    """What differs from a plain ``explain`` of the classes."""
    explanation, choices = explained.explanation, explained.choices
    options: dict[str, Any] = {}
    if explanation.method != "gradcam":
        options["method"] = explanation.method
    if choices.kind.takes_layer and not choices.own_layers(explained.layers):
        options["layer"] = list(choices.layers) if len(choices.layers) > 1 else choices.layers[0]
    if choices.fit not in (OWN_FIT, ""):
        options["fit"] = choices.fit
    if choices.sign != "positive":
        options["sign"] = choices.sign
    return options
