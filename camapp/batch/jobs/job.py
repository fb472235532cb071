"""Job: what a lane runs pictures through; and which model it runs, as a worker can load it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from camapp.backbones.load import LoadedModel
from camapp.batch.records import Item, Row
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
