"""Job: what a lane runs pictures through; and which model it runs, as a worker can load it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from camapp.backbones.load import LoadedModel
from camapp.batch.records import Item, Row
from camapp.errors import CamappError, ModelError
from camapp.loading import load_model


@dataclass(frozen=True)
class ModelChoice:
    """A model, as every worker can load it for itself.

    Args:
        model: a card's name, the path of a card or of a ``.camapp`` file, or a ``LoadedModel``, which is sent along.
        models: a folder of cards of one's own.
        device: as for ``load_model``.
        random_weights: run without weights.
    """

    model: str | LoadedModel
    models: Path | None = None
    device: str = "auto"
    random_weights: bool = False

    def load(self) -> LoadedModel:
        """The model.

        Raises:
            ModelError, WeightsError: it cannot be loaded.
        """
        if isinstance(self.model, LoadedModel):
            return self.model
        return load_model(self.model, models=self.models, device=self.device, random_weights=self.random_weights)


@dataclass(frozen=True)
class Work:
    """One input on its way through a lane.

    Args:
        number: of the input in the source.
        item: the input.
        stem: how the names of its files begin, with the folders that it lies in.
        shard: the shard that it belongs to.
    """

    number: int
    item: Item
    stem: str
    shard: int


def run_apart(run: Callable[[Sequence[Any]], Sequence[Any]], batch: Sequence[Any]) -> list[Any]:
    """Run a batch; in halves where the GPU has not enough memory, one by one where it ends with an error.

    Returns:
        For each of the batch its result, or the CamappError that it ended with alone.
    """
    try:
        return list(run(batch))
    except torch.OutOfMemoryError:
        if len(batch) == 1:
            return [ModelError("The GPU has not enough memory for this picture alone.")]
        torch.cuda.empty_cache()
        half = len(batch) // 2
        return [*run_apart(run, batch[:half]), *run_apart(run, batch[half:])]
    except CamappError as error:
        if len(batch) == 1:
            return [error]
        return [result for one in batch for result in run_apart(run, [one])]


class Job(Protocol):
    """What is done with each picture; picklable before it is opened."""

    batch_size: int

    def open(self, out: Path) -> None:
        """Load the model; files go into the folder ``out``.

        Raises:
            CamappError: a model, layer or option that cannot be meant.
        """

    def prepare(self, data: bytes, work: Work) -> Any:
        """Decode a picture and make it ready for the model; runs in several threads.

        Raises:
            DecodeError, TargetError: it cannot be read, or what is to be explained is not there.
        """

    def run(self, batch: Sequence[Any]) -> list[Any]:
        """Run the model on several pictures; for each its result, or the CamappError that it ended with."""

    def write(self, result: Any, work: Work) -> Row:
        """Write the files of one result; runs in several threads."""

    def end_shard(self, shard: int, rows: Sequence[Row]) -> Sequence[Row]:
        """Write what belongs to a shard as a whole; the rows, with the files that this adds."""
