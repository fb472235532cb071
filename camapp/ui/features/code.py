"""The same call as library code and as a shell command, to be copied."""

from __future__ import annotations

import shlex

from camapp.ui.features.extracting import Request


def extract_code(request: Request, source: str) -> dict[str, str]:
    """How to take the same features without the page.

    Args:
        request: what was wanted.
        source: what the folder of the pictures is called.
    """
    out = f"{source}.parquet"
    python = (
        "import camapp\n\n"
        f"table = camapp.extract_features(\n    {request.model!r}, {source!r}, layers={list(request.layers)!r}, "
        f"pool={request.pool!r}, normalize={request.normalize}\n)\ntable.save({out!r})\n"
    )
    return {"python": python, "command": _shell("camapp features", source, out, *_options(request))}


def train_code(request: Request, source: str, kind: str, test_share: float) -> dict[str, str]:
    """How to train the same classifier without the page; its pictures lie in one folder a class."""
    out = f"{source}.camapp"
    python = (
        "import camapp\n\n"
        f"trained = camapp.train_probe(\n    {request.model!r}, {source!r}, layers={list(request.layers)!r}, "
        f"pool={request.pool!r}, normalize={request.normalize}, kind={kind!r}, test_share={test_share}\n)\n"
        f"print(trained.report.to_markdown())\ntrained.save({out!r})\n"
    )
    options = [*_options(request), "--kind", kind, "--test-share", str(test_share), "--out", out]
    return {"python": python, "command": _shell("camapp probe", source, *options)}


def _options(request: Request) -> list[str]:
    options = ["--model", request.model, "--layers", ",".join(request.layers), "--pool", request.pool]
    return [*options, "--normalize"] if request.normalize else options


def _shell(command: str, *words: str) -> str:
    return " ".join([command, *map(shlex.quote, words)])
