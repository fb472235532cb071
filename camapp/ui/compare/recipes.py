"""The same comparison as library code and as a command, to be copied; and its address."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from camapp.patches import PatchSimilarity
from camapp.ui.compare.choices import Compared
from camapp.ui.frame.calls import CalledModel, here, in_a_comment
from camapp.ui.frame.classes import TOP_PREDICTION
from camapp.ui.frame.samples import is_sample


def copies_of(compared: Compared) -> dict[str, str]:
    """The texts of the copy buttons."""
    return {"python": python_of(compared), "command": command_of(compared)}


def python_of(compared: Compared) -> str:
    """A program that makes the same comparison."""
    comparison = compared.comparison
    layers = "" if comparison.layers == (None,) else f"    layers={list(comparison.layers)!r},\n"
    model = CalledModel(comparison.model, comparison.weights["random"])
    return (
        f"{model.hint}import camapp\n\n"
        "comparison = camapp.compare_maps(\n"
        f"    {model.python},\n"
        f"    {comparison.picture.name!r},\n"
        f"    methods={list(comparison.methods)!r},\n"
        f"{layers}"
        f"    targets={comparison.target.index},  # {in_a_comment(comparison.target.label)}\n"
        ")\n"
        "comparison.sheet().show()\n"
        'comparison.save("comparison")\n'
    )


def command_of(compared: Compared) -> str:
    """A command that makes the same comparison."""
    comparison = compared.comparison
    words = ["camapp", "compare", here(comparison.picture.name)]
    words += CalledModel(comparison.model, comparison.weights["random"]).words
    for method in comparison.methods:
        words += ["--method", method]
    for (name, _), layer in zip(compared.columns, comparison.layers, strict=True):
        if comparison.layers != (None,):
            words += ["--layer", "own" if layer is None else name]
    words += ["--target", str(comparison.target.index)]
    return shlex.join(words)


def address_of(compared: Compared, usual: Sequence[str]) -> dict[str, str]:
    """What the page's address says of a comparison: everything but an uploaded picture; "" for what is as usual.

    Args:
        compared: the comparison.
        usual: the methods that are compared where nobody chose any.
    """
    choices, comparison = compared.choices, compared.comparison
    own = comparison.layers == (None,)
    return {
        "tab": "compare",
        "model": choices.model,
        "layer": "" if own else ",".join(name for name, _ in compared.columns),
        "methods": "" if set(comparison.methods) == set(usual) else ",".join(comparison.methods),
        "class": "" if str(choices.target) == str(TOP_PREDICTION) else str(choices.target),
        "sample": comparison.picture.name if is_sample(choices.picture) else "",
    }


def patches_python(alike: PatchSimilarity, *, random: bool = False) -> str:
    """A program that compares the same patches, with a model of random weights or of its own."""
    names = ", ".join(repr(picture.name) for picture in alike.pictures)
    x, y = alike.centre_of(alike.grid[0] // 2, alike.grid[1] // 2)
    model = CalledModel(alike.model, random)
    return (
        f"{model.hint}import camapp\n\n"
        f"alike = camapp.patch_similarity({model.python}, {names}, layer={alike.layer!r})\n"
        f"maps = alike.similar_to({x:.0f}, {y:.0f})  # of the patch under this pixel of the first picture\n"
        f"print(alike.best_matches({x:.0f}, {y:.0f}))\n"
    )
