"""The same call as library code and as a shell command, to be copied."""

from __future__ import annotations

import shlex

from camapp.ui.features.extracting import Request
from camapp.ui.frame.calls import CalledModel, here, in_a_comment


def extract_code(request: Request, model: CalledModel, source: str) -> dict[str, str]:
    """How to take the same features without the page.

    Args:
        request: what was wanted.
        model: that took them.
        source: what the folder of the pictures is called.
    """
    out = f"{source}.parquet"
    python = (
        f"import camapp\n\n{model.hint}{_folder_hint(source)}"
        f"table = camapp.extract_features(\n    {model.python}, {source!r}, layers={list(request.layers)!r}, "
        f"pool={request.pool!r}, normalize={request.normalize}\n)\ntable.save({out!r})\n"
    )
    words = ["camapp", "features", here(source), here(out), *_options(request, model)]
    return {"python": python, "command": shlex.join(words)}


def train_code(request: Request, model: CalledModel, source: str, kind: str, test_share: float) -> dict[str, str]:
    """How to train the same classifier without the page; its pictures lie in one folder a class."""
    out = f"{source}.camapp"
    python = (
        f"import camapp\n\n{model.hint}{_folder_hint(source)}"
        f"trained = camapp.train_probe(\n    {model.python}, {source!r}, layers={list(request.layers)!r}, "
        f"pool={request.pool!r}, normalize={request.normalize}, kind={kind!r}, test_share={test_share}\n)\n"
        f"print(trained.report.to_markdown())\ntrained.save({out!r})\n"
    )
    words = ["camapp", "probe", here(source), *_options(request, model), "--kind", kind]
    return {"python": python, "command": shlex.join([*words, "--test-share", str(test_share), "--out", here(out)])}


def _folder_hint(source: str) -> str:
    return f"# {in_a_comment(source)}: the folder of the pictures (unpack a .zip first)\n"


def _options(request: Request, model: CalledModel) -> list[str]:
    options = [*model.words, "--layers", ",".join(request.layers), "--pool", request.pool]
    return [*options, "--normalize"] if request.normalize else options
