"""Features of many pictures: one file a shard, one row a picture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from camapp.backbones.load import LoadedModel
from camapp.batch.jobs.job import ModelChoice, Parts, Work, at_precision, check_precision
from camapp.batch.records import Item, Row
from camapp.errors import CamappError, UsageError
from camapp.features.extractor import FeatureExtractor
from camapp.features.features import Features
from camapp.features.formats import FORMATS, save_features
from camapp.features.table import FeatureTable
from camapp.images.decode import decode
from camapp.images.geometry import Fit, Placed, checked_fit
from camapp.transfer.extraction import provenance_of

# Formats that are one file, of which a shard's can be one.
FILES = tuple(name for name in FORMATS if name != "npy")


@dataclass(frozen=True, eq=False)
class ReadyPicture:
    """A picture that is ready."""

    placed: Placed
    width: int
    height: int
    notes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class _Taken:
    """What was taken out of one picture."""

    ready: ReadyPicture
    arrays: dict[str, np.ndarray]


@dataclass
class FeatureJob:
    """Takes features of named layers out of pictures; each shard becomes ``features/part-00012.parquet``.

    Args:
        choice: the model.
        layers: as for ``FeatureExtractor``.
        pool: one of ``camapp.features.POOLS``.
        normalize: scale each picture's features of a layer to length 1.
        dtype: "float32" or "float16".
        format: of ``FILES``.
        fit: "crop", "letterbox" or "stretch"; the card's own way by default.
        channels_last: as for ``FeatureExtractor``.
        batch_size: pictures in one forward.
        precision: of ``PRECISIONS``: what the network computes in; the features are of ``dtype``.
        draft: decode JPEGs at a fraction of their size where that is twice what the model wants, or more.
    """

    choice: ModelChoice
    layers: tuple[str, ...] = ("penultimate",)
    pool: str = "auto"
    normalize: bool = False
    dtype: str = "float32"
    format: str = "parquet"
    fit: Fit | None = None
    channels_last: bool = True
    batch_size: int = 32
    precision: str = "float32"
    draft: bool = False
    _parts: Parts = field(default_factory=Parts, repr=False, compare=False)
    _opened: tuple[Path, LoadedModel, FeatureExtractor] | None = field(default=None, repr=False, compare=False)
    _gathered: dict[int, dict[int, dict[str, np.ndarray]]] = field(default_factory=dict, repr=False, compare=False)
    _info: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def open(self, out: Path) -> None:
        """Load the model and find the layers."""
        self.checked()
        model = self.choice.load()
        extractor = FeatureExtractor(
            model,
            list(self.layers),
            self.pool,
            normalize=self.normalize,
            dtype=self.dtype,
            channels_last=self.channels_last,
        )
        self._opened = (out, model, extractor)

    def checked(self) -> None:
        """Refuse options that cannot be meant.

        Raises:
            UsageError: one of them.
        """
        if self.format not in FILES:
            raise UsageError(f"format is one of {', '.join(FILES)}, not {self.format!r}.")
        if self.fit is not None:
            checked_fit(self.fit)
        check_precision(self.precision)

    def checked_items(self, items: Iterable[Item]) -> Iterator[Item]:
        """The inputs as they come; any will do."""
        return iter(items)

    def prepare(self, data: bytes, work: Work) -> ReadyPicture:
        """Decode a picture."""
        _, model, _ = self._in_use
        picture = decode(data, name=work.item.name, at_least=model.sides_for_draft() if self.draft else None)
        placed = model.place(picture, self.fit)
        return ReadyPicture(placed, *picture.full_size, (*picture.notes, *placed.notes))

    def run(self, batch: Sequence[ReadyPicture]) -> list[_Taken | CamappError]:
        """Take features out of several pictures in one go."""
        return self._parts.run(self._taken, batch)

    def write(self, result: _Taken, work: Work) -> Row:
        """Keep the features until the shard is whole."""
        self._gathered.setdefault(work.shard, {})[work.number] = result.arrays
        ready = result.ready
        return Row(
            number=work.number,
            item=work.item,
            status="done",
            width=ready.width,
            height=ready.height,
            notes=ready.notes,
            shard=work.shard,
        )

    def end_shard(self, shard: int, rows: Sequence[Row]) -> Sequence[Row]:
        """Write the features of a shard as one file."""
        out, model, extractor = self._in_use
        gathered = self._gathered.pop(shard, {})
        done = [row for row in rows if row.status == "done"]
        if not done:
            return rows
        labels = [row.item.label for row in done]
        table = FeatureTable(
            names=tuple(row.item.name for row in done),
            features={name: np.stack([gathered[row.number][name] for row in done]) for name in self._info},
            info=self._info,
            labels=tuple(label or "" for label in labels) if any(labels) else None,
            provenance=provenance_of(model, extractor, self.fit),
        )
        name = f"features/part-{shard:05d}"
        (path,) = save_features(table, out / name, self.format, overwrite=True)
        file = path.relative_to(out).as_posix()
        return [replace(row, files=(file,)) if row.status == "done" else row for row in rows]

    def _taken(self, batch: Sequence[ReadyPicture]) -> list[_Taken]:
        _, model, extractor = self._in_use
        with model.named_failures(), at_precision(self.precision, model.device):
            features: Features = extractor(model.inputs([one.placed for one in batch]))
        self._info = dict(features.info)
        arrays = features.numpy()
        return [_Taken(one, {name: array[row] for name, array in arrays.items()}) for row, one in enumerate(batch)]

    @property
    def _in_use(self) -> tuple[Path, LoadedModel, FeatureExtractor]:
        if self._opened is None:
            raise UsageError("This job has not been opened.")
        return self._opened
