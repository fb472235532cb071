"""The same batch as a call of the library, and as a command of the shell: for the buttons that copy them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from camapp.batch.jobs.map_files import OUTPUTS
from camapp.ui.frame.calls import CalledModel, here

ARCHIVE, FOLDER = "heatmaps.zip", "heatmaps"


def python_call(
    files: Sequence[str],
    model: CalledModel,
    method: str,
    layers: Sequence[str],
    targets: int | str | Mapping[str, int | str] | None,
    outputs: Sequence[str],
) -> str:
    """Lines of Python that make the same archive in the folder of the files.

    Args:
        files: their names.
        model: how the model is called.
        method: the method's name.
        layers: those named; none for the method's own.
        targets: the class for all, or each picture's own by its name; None for the likeliest.
        outputs: what goes into the archive.
    """
    source = files[0] if len(files) == 1 else list(files)
    options = [f"method={method!r}"]
    if layers:
        options.append(f"layer={layers[0] if len(layers) == 1 else list(layers)!r}")
    if targets is not None:
        options.append(f"targets={dict(targets) if isinstance(targets, Mapping) else targets!r}")
    wanted = "" if tuple(outputs) == OUTPUTS else f", outputs={list(outputs)!r}"
    imported = "import camapp\n" if model.random_weights else ""
    return (
        f"{imported}from camapp.batch.live import ResultsArchive, explain_each\n\n{model.hint}"
        f"outcomes = explain_each({model.python}, {source!r}, {', '.join(options)})\n"
        f"with ResultsArchive({ARCHIVE!r}{wanted}) as archive:\n"
        "    for outcome in outcomes:\n"
        "        archive.add(outcome)\n"
    )


def shell_call(
    files: Sequence[str],
    model: CalledModel,
    method: str,
    layers: Sequence[str],
    target: int | str | None,
    outputs: Sequence[str],
    table: tuple[str, str, str] | None = None,
) -> str:
    """A command that writes the same files into a folder.

    Args:
        files: their names.
        model: how the model is called.
        method: the method's name.
        layers: those named; none for the method's own.
        target: the class for all; None for the likeliest.
        outputs: which files.
        table: name, column of files and column of classes of a table, which is the source then.
    """
    sources = [table[0]] if table else list(files)
    words = ["camapp", "heatmaps", *map(here, sources), FOLDER, *model.words, "--method", method]
    words += [word for name in layers for word in ("--layer", name)]
    if table:
        words += ["--target", "column", "--path-column", table[1], "--target-column", table[2]]
    elif target is not None:
        words += ["--target", str(target)]
    if tuple(outputs) != OUTPUTS:
        words += ["--outputs", ",".join(outputs)]
    return shlex.join(words)
