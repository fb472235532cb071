"""Job: what a lane runs pictures through; and which model it runs, as a worker can load it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch

from camapp.backbones.load import LoadedModel
from camapp.batch.records import Item, Row
from camapp.errors import CamappError, ModelError, UsageError
from camapp.features.saved import SUFFIX
from camapp.loading import load_model

PRECISIONS = ("float32", "bfloat16", "float16")

_log = logging.getLogger("camapp")


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

    def absolute(self) -> ModelChoice:
        """The same choice for processes that run in other folders."""
        model, models = self.model, self.models or os.environ.get("CAMAPP_MODELS")
        if isinstance(model, str) and model.lower().endswith((".toml", SUFFIX)):
            model = os.path.abspath(os.path.expanduser(model))
        return replace(self, model=model, models=Path(models).expanduser().absolute() if models else None)


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


@dataclass
class Parts:
    """Runs batches in parts where they cannot run whole.

    Args:
        most: how many pictures the GPU's memory has taken at once; None as long as it took all.
    """

    most: int | None = None

    def run(self, run: Callable[[Sequence[Any]], Sequence[Any]], batch: Sequence[Any]) -> list[Any]:
        """Run a batch: in halves where the GPU has not enough memory, one by one where it ends with an error.

        The halved size stays, and is logged as a warning once.

        Returns:
            For each of the batch its result, or the CamappError that it ended with alone.
        """
        most = self.most  # which may fall while the first part runs
        if most is not None and len(batch) > most:
            return [*self.run(run, batch[:most]), *self.run(run, batch[most:])]
        try:
            return list(run(batch))
        except torch.OutOfMemoryError:
            if len(batch) == 1:
                return [ModelError("The GPU has not enough memory for this picture alone.")]
        except CamappError as error:
            if len(batch) == 1:
                return [error]
            return [result for one in batch for result in self.run(run, [one])]
        self.most = len(batch) // 2  # out of the handler, whose traceback holds the tensors that did not fit
        _log.warning("The GPU has not enough memory for %d pictures at once: %d from now on.", len(batch), self.most)
        torch.cuda.empty_cache()
        return self.run(run, batch)


def check_precision(precision: str) -> None:
    """Raise a UsageError for what is none of ``PRECISIONS``."""
    if precision not in PRECISIONS:
        raise UsageError(f"precision is one of {', '.join(PRECISIONS)}, not {precision!r}.")


def at_precision(precision: str, device: torch.device) -> torch.autocast:
    """A context in which networks compute in another precision where that is known to do no harm (autocast)."""
    return torch.autocast(device.type, getattr(torch, precision), enabled=precision != "float32")


class Job(Protocol):
    """What is done with each picture; picklable before it is opened."""

    batch_size: int

    def open(self, out: Path) -> None:
        """Load the model; files go into the folder ``out``.

        Raises:
            CamappError: a model, layer or option that cannot be meant.
        """

    def checked_items(self, items: Iterable[Item]) -> Iterator[Item]:
        """The inputs as they come.

        Raises:
            UsageError: none of them has what the job needs.
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
