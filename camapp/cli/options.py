"""What several commands share: options, exit codes, and loading the model that the options name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from camapp.terminal import err

if TYPE_CHECKING:
    from camapp.backbones.load import LoadedModel

FAILED, USAGE, SOME_FAILED = 1, 2, 3

ModelOption = Annotated[
    str, typer.Option("--model", "-m", help="A model card's name, a card (.toml) or a trained classifier (.camapp).")
]
ModelsOption = Annotated[Path | None, typer.Option("--models", help="Folder of your own model cards (CAMAPP_MODELS).")]
RandomOption = Annotated[bool, typer.Option("--random-weights", help="Run without weights; the results mean nothing.")]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")]
FitOption = Annotated[str | None, typer.Option(help="crop, letterbox or stretch; the model's own way by default.")]
PoolOption = Annotated[str, typer.Option(help="auto, avg, max, gem(3), cls, cls+patches, flatten, none, ...")]
BatchOption = Annotated[int, typer.Option(help="How many pictures run at once.")]
WorkersOption = Annotated[int | None, typer.Option(help="Threads that decode pictures; as many as processors.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def load(model: str, models: Path | None, device: str, random_weights: bool) -> LoadedModel:
    """The model of the options, with a loud warning where its weights are random."""
    from camapp.loading import load_model

    loaded = load_model(model, models=models, device=device, random_weights=random_weights)
    if random_weights:
        err.print("[bold white on red] RANDOM WEIGHTS [/] predictions and heatmaps mean nothing")
    return loaded


def split_names(text: str) -> list[str]:
    """Names parted by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]
