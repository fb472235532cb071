"""The command line, a file a command."""

from __future__ import annotations

import io
import sys
from typing import Annotated

import typer

from camapp.cli import (
    channels,
    compare,
    evaluate,
    explain,
    features,
    heatmaps,
    inspect,
    layers,
    methods,
    models,
    probe,
    serve,
)
from camapp.cli.options import FAILED, SOME_FAILED, USAGE
from camapp.errors import CamappError, DecodeError, WeightsError
from camapp.terminal import complain, out
from camapp.version import VERSION

app = typer.Typer(
    help="See where a vision model looks: heatmaps of classes over pictures.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def main() -> None:
    """Run the command line. Errors are one line; exit codes 1 failed, 2 usage, 3 some inputs failed, 130 Ctrl-C."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names of files need not be Unicode, nor the terminal speak it
            stream.reconfigure(errors="backslashreplace")
    try:
        app(prog_name="camapp")
    except CamappError as error:
        complain(str(error))
        sys.exit(_exit_code(error))
    except OSError as error:
        complain(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}")
        sys.exit(FAILED)


def _exit_code(error: CamappError) -> int:
    if isinstance(error, WeightsError):
        return FAILED
    return SOME_FAILED if isinstance(error, DecodeError) else USAGE  # not one of the pictures could be read


def _print_version(asked: bool) -> None:
    if asked:
        out.print(f"camapp {VERSION}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    pass


app.command()(explain.explain)
app.command()(compare.compare)
app.command("heatmaps")(heatmaps.export_heatmaps)
app.command()(features.features)
app.command()(probe.probe)
app.command()(evaluate.evaluate)
app.command()(inspect.inspect)
app.command("channels")(channels.save_channels)
app.command("models")(models.list_models)
app.command("layers")(layers.list_layers_of)
app.command("methods")(methods.list_methods)
app.command()(serve.serve)
